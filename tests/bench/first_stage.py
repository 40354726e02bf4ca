"""BM25 and dense search at scale: ours against rank-bm25, bm25s and FAISS, as ratios of one run.

    python tests/bench/first_stage.py [--set datasets/pydata] [--passages 10000 100000 1000000]

The passages are made of the set's own sentences, drawn at random, so that words are as frequent as
in real text; the vectors are those of its passages, each moved at random, so that they crowd as
real ones do. Peers that are not installed are left out, and a line says how to install them.
The peak of memory is printed.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rank_bm25 import BM25Okapi
from ratios import in_turns, installed, ratios, table, versions

from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.words import words
from rerank.inference.model_files import resolve
from rerank.jobs.pipelines import open_index
from rerank.process import cores
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.dense import NEIGHBOURS, SEARCHING, Encoder, Graph, Vectors, write_graph
from rerank.retrieval.fusion import top
from rerank.storage.folder import Workspace
from rerank.types import Ints

SENTENCES = 4  # a passage
NOISE = 0.5  # length of what is added to a vector of the set to make another
COUNT = 100  # candidates
SLOW = 100_000  # passages up to which rank-bm25, and FAISS's graph, are measured too
USED = ("numpy", "scipy", "usearch", "rank-bm25", "bm25s", "numba", "faiss-cpu")

Search = Callable[[], Any]
Rows = dict[str, dict[str, str]]


def documents(labelled: LabelledSet, count: int) -> Iterator[list[str]]:
    """Word lists of `count` passages made of the set's sentences."""
    sentences = [
        found
        for passage in labelled.corpus.values()
        for sentence in re.split(r"(?<=[.!?])\s+", passage.text)
        if (found := words(sentence))
    ]
    draw = random.Random(count)
    for _ in range(count):
        yield [word for _ in range(SENTENCES) for word in draw.choice(sentences)]


def lexical(made: list[list[str]], asked: Sequence[list[str]], rounds: int) -> None:
    """Print build time and query latency of the ways to search by BM25.

    Ours is built of a stream that is gone through once; the others need the list.
    """
    rows: Rows = {}
    ways: dict[str, Search] = {}
    BM25.build([["word"]])  # imports what it needs, as `installed` does for the others
    with tempfile.TemporaryDirectory() as folder:
        _built(rows, "ours", lambda: BM25.build(iter(made))).save(Path(folder))
        ours = BM25.open(Path(folder))
        ways["ours"] = lambda: [top(ours.scores(q), COUNT) for q in asked]
        if len(made) <= SLOW:
            okapi = _built(rows, "rank-bm25", lambda: BM25Okapi(made))
            ways["rank-bm25"] = lambda: [top(okapi.get_scores(q), COUNT) for q in asked]
        if installed("bm25s", "bm25s"):
            peer = _built(rows, "bm25s", lambda: _bm25s(made, "numpy"))
            ways["bm25s"] = partial(_retrieved, peer, asked)
            if installed("numba", "numba"):
                compiled = _built(rows, "bm25s, numba", lambda: _bm25s(made, "numba"))
                ways["bm25s, numba"] = partial(_retrieved, compiled, asked)
        _report(f"BM25, {len(made):,} passages", rows, ways, len(asked), rounds)


def dense(real: Vectors, asked: Vectors, size: int, rounds: int) -> None:
    """Print build time and query latency of the ways to search by cosine, and their limit."""
    vectors = crowd(real, size)
    rows: Rows = {}
    ways: dict[str, Search] = {"ours": lambda: [top(vectors @ q, COUNT) for q in asked]}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores()) as pool:
        if installed("faiss", "faiss-cpu"):
            flat = _built(rows, "FAISS, exact", lambda: _faiss(vectors, graph=False))
            ways["FAISS, exact"] = partial(_nearest, flat, asked)
        if installed("usearch", "usearch"):
            _built(rows, "ours, approximate", lambda: write_graph(vectors, Path(folder)))
            graph = Graph(Path(folder), vectors)
            ways["ours, approximate"] = lambda: [graph.nearest(q, COUNT) for q in asked]
        if size <= SLOW and installed("faiss", "faiss-cpu"):
            linked = _built(rows, "FAISS, HNSW", lambda: _faiss(vectors, graph=True))
            ways["FAISS, HNSW"] = partial(_nearest, linked, asked)
        ways["limit: read the vectors once"] = partial(_read, vectors, len(asked), pool)
        _report(
            f"Dense, {size:,} passages of {real.shape[1]} dimensions",
            rows,
            ways,
            len(asked),
            rounds,
        )


def crowd(real: Vectors, size: int) -> Vectors:
    """`size` unit vectors, each one of `real` moved at random."""
    draw = np.random.default_rng(0)
    width = real.shape[1]
    vectors = np.empty((size, width), dtype=np.float32)
    for start in range(0, size, 100_000):
        count = min(100_000, size - start)
        moved = draw.standard_normal((count, width), dtype=np.float32) * (NOISE / width**0.5)
        part = real[draw.integers(len(real), size=count)] + moved
        vectors[start : start + count] = part / np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def _built(rows: Rows, name: str, build: Callable[[], Any]) -> Any:
    """What `build` gives; its time goes into the row of that name."""
    print(f"building: {name}", file=sys.stderr)
    start = time.perf_counter()
    found = build()
    rows[name] = {"build, s": f"{time.perf_counter() - start:.1f}"}
    return found


def _bm25s(made: list[list[str]], backend: str) -> Any:
    import bm25s

    peer = bm25s.BM25(method="atire", k1=1.5, b=0.75, backend=backend)
    peer.index(made, show_progress=False)
    return peer


def _retrieved(peer: Any, asked: Sequence[list[str]]) -> list[Ints]:
    return [peer.retrieve([q], k=COUNT, show_progress=False, n_threads=1)[0][0] for q in asked]


def _faiss(vectors: Vectors, *, graph: bool) -> Any:
    """Exact search, or a graph of as many neighbours as ours that is searched as widely.

    How widely it is built is FAISS's default.
    """
    import faiss

    if not graph:
        exact = faiss.IndexFlatIP(vectors.shape[1])
        exact.add(vectors)
        return exact
    index = faiss.IndexHNSWFlat(vectors.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = SEARCHING
    index.add(vectors)
    return index


def _nearest(index: Any, asked: Vectors) -> list[Ints]:
    return [index.search(q[None, :], COUNT)[1][0] for q in asked]


def _read(vectors: Vectors, times: int, pool: ThreadPoolExecutor) -> None:
    """Read every bit of the vectors as often as there are queries, a part a core."""

    def read(part: Vectors) -> None:
        for _ in range(times):
            np.bitwise_or.reduce(part.view(np.int32), axis=None)

    list(pool.map(read, np.array_split(vectors, cores())))


def _report(title: str, rows: Rows, ways: dict[str, Search], asked: int, rounds: int) -> None:
    """Print the table of `ways`; one that gives no candidates has no share of ours."""
    print(f"searching: {title}", file=sys.stderr)
    seconds, found = in_turns(ways, rounds)
    ours = [set(rows.tolist()) for rows in found["ours"]]
    table_rows: Rows = {}
    for name, ratio in ratios(seconds, "ours").items():
        table_rows[name] = rows.get(name, {"build, s": ""}) | {
            "ms a query": f"{1000 * min(seconds[name]) / asked:.2f}",
            "times as fast as ours": ratio,
        }
        if found[name] is not None:
            shared = [
                len(a & set(b.tolist())) / COUNT for a, b in zip(ours, found[name], strict=True)
            ]
            table_rows[name]["of our candidates"] = f"{np.mean(shared):.3f}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n### {title}\n\n{table(table_rows)}\n")
    print(f"Peak memory of the process so far: {peak:.1f} GiB.")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", type=Path, default=Path("datasets/pydata"))
    parser.add_argument("--passages", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("work"))
    o = parser.parse_args()
    labelled = LabelledSet.read(o.set)
    asked = [q.text for q in list(labelled.queries.values())[: o.queries]]
    config = Config()
    real = np.asarray(open_index(labelled, config, Workspace(o.work)).vectors.array)
    encoder = Encoder.from_config(resolve(str(config.encoder)), config)
    for size in o.passages:
        lexical(list(documents(labelled, size)), [words(text) for text in asked], o.rounds)
        dense(real, encoder.encode(asked), size, o.rounds)
    print(f"\n- first stage: {versions(USED)}")


if __name__ == "__main__":
    main()
