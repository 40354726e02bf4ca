"""BM25 and dense search at scale: ours against rank-bm25, bm25s and FAISS, as ratios of one run.

    python tests/bench/first_stage.py [--set datasets/pydata] [--passages 10000 100000]

The passages are made of the set's own sentences, drawn at random, so that words are as frequent as
in real text; the vectors are those of its passages, each moved at random, so that they crowd as
real ones do. Peers that are not installed are left out: `pip install bm25s faiss-cpu` brings them.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from ratios import in_turns, ratios, table

from rerank.beir import read_labelled_set
from rerank.config import Config
from rerank.labelled_set import LabelledSet
from rerank.models import resolve
from rerank.retrieval.approximate import Graph, write_graph
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.dense import Encoder, Vectors
from rerank.retrieval.fusion import top
from rerank.text import words
from rerank.workspace import open_index

SENTENCES = 4  # a passage
NOISE = 0.5  # length of what is added to a vector of the set to make another
COUNT = 100  # candidates
SLOW = 100_000  # passages up to which rank-bm25 is measured too

Search = Callable[[], Any]


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
    """Print build time and query latency of the ways to search by BM25."""
    rows: dict[str, dict[str, str]] = {}
    ways: dict[str, Search] = {}

    def built(name: str, build: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        found = build()
        rows[name] = {"build, s": f"{time.perf_counter() - start:.1f}"}
        return found

    with tempfile.TemporaryDirectory() as folder:
        built("ours", lambda: BM25.build(made)).save(Path(folder))
        ours = BM25.open(Path(folder))
        ways["ours"] = lambda: [top(ours.scores(q), COUNT) for q in asked]
        if len(made) <= SLOW:
            from rank_bm25 import BM25Okapi

            okapi = built("rank-bm25", lambda: BM25Okapi(made))
            ways["rank-bm25"] = lambda: [top(okapi.get_scores(q), COUNT) for q in asked]
        if find_spec("bm25s"):
            import bm25s

            peer = bm25s.BM25(method="atire", k1=1.5, b=0.75)
            built("bm25s", lambda: peer.index(made, show_progress=False))
            ways["bm25s"] = lambda: [
                peer.retrieve([q], k=COUNT, show_progress=False, n_threads=1)[0][0] for q in asked
            ]
        _report(f"BM25, {len(made):,} passages", rows, ways, len(asked), rounds)


def dense(real: Vectors, asked: Vectors, size: int, rounds: int) -> None:
    """Print build time and query latency of the ways to search by cosine."""
    draw = np.random.default_rng(0)
    width = real.shape[1]
    vectors = np.empty((size, width), dtype=np.float32)
    for start in range(0, size, 100_000):
        count = min(100_000, size - start)
        moved = draw.standard_normal((count, width), dtype=np.float32) * (NOISE / width**0.5)
        part = real[draw.integers(len(real), size=count)] + moved
        vectors[start : start + count] = part / np.linalg.norm(part, axis=1, keepdims=True)
    ways: dict[str, Search] = {"ours": lambda: [top(vectors @ q, COUNT) for q in asked]}
    if find_spec("faiss"):
        import faiss

        flat = faiss.IndexFlatIP(width)
        flat.add(vectors)
        ways["FAISS, exact"] = lambda: [flat.search(q[None, :], COUNT)[1][0] for q in asked]
    rows: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if find_spec("usearch"):
            start = time.perf_counter()
            write_graph(vectors, Path(folder))
            rows["ours, approximate"] = {"build, s": f"{time.perf_counter() - start:.1f}"}
            graph = Graph(Path(folder), vectors)
            ways["ours, approximate"] = lambda: [graph.nearest(q, COUNT) for q in asked]
        _report(f"Dense, {size:,} passages of {width} dimensions", rows, ways, len(asked), rounds)


def _report(
    title: str, rows: dict[str, dict[str, str]], ways: dict[str, Search], asked: int, rounds: int
) -> None:
    seconds, found = in_turns(ways, rounds)
    ours = [set(rows.tolist()) for rows in found["ours"]]
    for name, ratio in ratios(seconds, "ours").items():
        each = 1000 * min(seconds[name]) / asked
        rows.setdefault(name, {})
        shared = np.mean(
            [
                len(a & set(np.ravel(b).tolist())) / COUNT
                for a, b in zip(ours, found[name], strict=True)
            ]
        )
        rows[name] |= {
            "ms a query": f"{each:.2f}",
            "times as fast as ours": ratio,
            "of our candidates": f"{shared:.3f}",
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n### {title}\n\n{table(rows)}\n\nPeak memory of the process so far: {peak:.1f} GiB.")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", type=Path, default=Path("datasets/pydata"))
    parser.add_argument("--passages", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("work"))
    o = parser.parse_args()
    labelled = read_labelled_set(o.set)
    asked = [q.text for q in list(labelled.queries.values())[: o.queries]]
    config = Config()
    real = np.asarray(open_index(labelled, config, o.work).vectors)
    encoder = Encoder(resolve(config.encoder), max_length=config.encoder_max_length)
    for size in o.passages:
        lexical(list(documents(labelled, size)), [words(text) for text in asked], o.rounds)
        dense(real, encoder.encode(asked), size, o.rounds)


if __name__ == "__main__":
    main()
