"""The bi-encoder, which gives a unit vector for each window of a passage, and the search of these:
a passage is as near to a query as its nearest window.

Large corpora have a graph of neighbours: HNSW (Malkov & Yashunin 2020) over vectors in 8 bits, by
USearch; what it finds is ranked by exact cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.config import Config, Graphs
from rerank.errors import InputError, optional
from rerank.inference.engine import NoExportError, onnx_runtime, open_engine, stand_aside
from rerank.inference.given import Given, vectors_of
from rerank.inference.model_files import Model, check_bi_encoder
from rerank.inference.tokenizer import Tokenizer, open_tokenizer
from rerank.process import cores, in_threads
from rerank.progress import in_chunks, progress
from rerank.protocols import Embedder, Role
from rerank.retrieval.fusion import top
from rerank.types import Bools, Floats, Ints, Passage

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str], Role], Vectors]
CHUNK = 128  # texts per update of the progress bar
BLOCK = 4607  # numbers, of which BLAS multiplies twice as many without threads, as OpenBLAS does
PART = 2**21  # numbers that are worth a thread


class PassageText(str):
    """A text of a passage, not equal to a query of the same words: their vectors may differ."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PassageText) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((PassageText, str.__hash__(self)))


class Encoder:
    """Any embedder: of files on this machine, or given as an object, whose passages are one window.

    The network is loaded at the first call. Safe to call from many threads; one of them loads it.
    """

    def __init__(
        self, model: Model, *, max_length: int, windows: int = 1, precision: Graphs = "fp32"
    ) -> None:
        if not isinstance(model, Given):
            check_bi_encoder(model)
        self.model = model
        self.max_length = max_length  # tokens of a text that are read
        self.precision = precision
        self.windows = windows  # of a longer passage, at most
        self._embed: Embed | None = None
        self._prompts: Mapping[str, str] = {}
        self._loading = Lock()

    @classmethod
    def from_config(cls, model: Model, config: Config) -> Encoder:
        """An encoder of this model that reads what the configuration says."""
        return cls(
            model,
            max_length=config.encoder_max_length,
            windows=config.encoder_windows,
            precision=config.encoder_precision,
        )

    def encode(self, texts: Sequence[str], *, label: str | None = None) -> Vectors:
        """Unit vectors, shape (n, d), n >= 1, float32; `label` shows a progress bar of that name.
        Texts are of queries, unless they are a `PassageText`.
        """
        how: Any = {"size": CHUNK, "label": label, "unit": "text"}
        return np.concatenate(in_chunks(texts, lambda chunk: [self._vectors(chunk)], **how))

    def encode_passages(self, passages: Sequence[Passage]) -> list[Vectors]:
        """The unit vectors (w, d) of the windows of each passage, in order, w >= 1: at most
        `windows` of `max_length` tokens each; what follows is not read.
        """
        texts = self.windows_of(passages)
        vectors = self.encode([text for of_passage in texts for text in of_passage])
        return np.split(vectors, np.cumsum([len(of_passage) for of_passage in texts])[:-1])

    def windows_of(self, passages: Sequence[Passage]) -> list[list[PassageText]]:
        """The text of each window of each passage; with room for the model's prompt."""
        if isinstance(self.model, Given) or self.windows == 1:
            return [[PassageText(passage.full_text)] for passage in passages]
        self._opened()
        tokenizer = open_tokenizer(self.model, max_length=self.max_length)
        prompt = self._prompts.get("passage", "")
        texts = windows(passages, tokenizer, self.windows, prompt=prompt)
        return [[PassageText(text) for text in of_passage] for of_passage in texts]

    @property
    def settings(self) -> dict[str, Any]:
        """All that the vectors of a passage depend on, besides its text."""
        return {
            "fingerprint": self.model.fingerprint,
            "max_length": self.max_length,
            "windows": self.windows,
            "precision": self.precision,
        }

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of some texts; those of each role are made together."""
        rows: dict[Role, list[int]] = {"query": [], "passage": []}
        for row, text in enumerate(texts):
            rows["passage" if isinstance(text, PassageText) else "query"].append(row)
        made, embed = dict[int, Vectors](), self._opened()
        for role, of_role in rows.items():
            if of_role:
                some = [str(texts[row]) for row in of_role]
                made |= zip(of_role, embed(some, role), strict=True)
        return np.stack([made[row] for row in range(len(texts))])

    def _opened(self) -> Embed:
        with self._loading:
            if self._embed is None:
                self._embed = self._open()
            return self._embed

    def _open(self) -> Embed:
        """The fastest engine that gives the vectors of sentence-transformers."""
        if isinstance(self.model, Given):
            assert isinstance(self.model.model, Embedder)
            return partial(vectors_of, self.model.model)
        try:
            engine = open_engine(self.model, "bi_encoder", self.precision)
        except NoExportError as error:
            with optional():
                from rerank.inference.torch_models import LibraryEncoder
            encoder = LibraryEncoder(self.model, self.max_length)
            stand_aside(self.model, error)
            self._prompts = encoder.prompts
            return encoder
        tokenizer = open_tokenizer(self.model, max_length=self.max_length)
        self._prompts = engine.prompts

        def embed(texts: Sequence[str], role: Role) -> Vectors:
            prompt = engine.prompts.get(role, "")
            return engine(tokenizer([prompt + text for text in texts] if prompt else texts))

        return embed


def windows(
    passages: Sequence[Passage], tokenizer: Tokenizer, max_windows: int, *, prompt: str = ""
) -> list[list[str]]:
    """The texts, `max_windows` at most, that together are a passage, for each passage.

    Each is the title and a part of the text, as long as the tokenizer reads, which will see the
    `prompt` before it. A passage that is read whole is one text.
    """
    if max_windows == 1 or not passages:
        return [[p.full_text] for p in passages]
    rooms = [tokenizer.room(prompt + (p.title and f"{p.title}.")) for p in passages]
    found = tokenizer.parts([p.text for p in passages], rooms, max_windows)
    return [
        [replace(passage, text=part).full_text for part in parts]
        for passage, (parts, _) in zip(passages, found, strict=True)
    ]


def cosines(vectors: Vectors, query: Vectors) -> Floats:
    """Cosine of one unit query (d,) with unit passages (n, d), shape (n,), in [-1, 1]."""
    return np.asarray(np.clip(product(vectors, query), -1.0, 1.0), dtype=np.float64)


def product(vectors: Vectors, query: Vectors) -> Vectors:
    """`vectors @ query`, shape (n,), on all cores, and the same to the bit on any number of them.

    NumPy gives BLAS one block of rows at a time, too small for threads of its own: they would go on
    spinning after the product, beside the networks, and know nothing of `RERANK_CORES`.
    """
    vectors, (count, width) = np.asarray(vectors), vectors.shape
    # four by four, as BLAS takes them in one product; of very wide vectors one by one
    rows = max(4, BLOCK // max(1, width) // 4 * 4) if 4 * width < 2 * BLOCK else 1
    whole = max(0, count // rows - 1) * rows  # a last row of its own would be rounded otherwise
    blocks = vectors[:whole].reshape(-1, rows, width)
    out = np.empty(count, dtype=np.result_type(vectors, query))
    np.matmul(vectors[whole:], query, out=out[whole:])
    into = out[:whole].reshape(-1, rows)

    def multiply(part: slice) -> None:
        np.matmul(blocks[part], query, out=into[part])

    threads = cores() if vectors.size > 2 * PART else 1
    each = max(1, len(blocks) // threads + 1)
    parts = [slice(start, start + each) for start in range(0, len(blocks), each)]
    in_threads(multiply, parts, threads)
    return out


FILE = "vectors.usearch"
NEIGHBOURS = 32  # of each passage in the graph
BUILDING = 256  # candidates kept while a passage is inserted
SEARCHING = 512  # candidates kept during a search, at least
OVERSAMPLED = 3  # times the requested number are compared exactly
LINKED = 4096  # passages per update of the progress bar


def write_graph(vectors: Vectors, folder: Path) -> None:
    """Write the graph of unit vectors (n, d) to `folder`, with a progress bar."""
    sizes = {"ndim": vectors.shape[1], "connectivity": NEIGHBOURS, "expansion_add": BUILDING}
    graph = library()(metric="cos", dtype="i8", **sizes)
    with progress(len(vectors), "linking passages", unit="text") as bar:
        for start in range(0, len(vectors), LINKED):
            chunk = np.asarray(vectors[start : start + LINKED])
            graph.add(np.arange(start, start + len(chunk), dtype=np.uint64), chunk)
            bar.update(len(chunk))
    graph.save(str(folder / FILE))


class Graph:
    """An open graph; it stays on disk and is read from there. Safe to search from many threads."""

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        self._graph = library().restore(str(folder / FILE), view=True)
        # of a million, 3,000 candidates find 99.9% of the nearest hundred, in the mean of 200
        # queries, and 6,000 no more: what is missing lies where the graph does not lead
        self._graph.expansion_search = max(SEARCHING, round(3 * math.sqrt(len(vectors))))
        self._vectors = vectors

    def check(self) -> None:
        """Refuse a graph whose number and width of vectors are not those of these vectors."""
        expected, there = self._vectors.shape, (len(self._graph), self._graph.ndim)
        if there != expected or int(np.asarray(self._graph.keys).max(initial=0)) >= expected[0]:
            raise InputError(f"its graph is of {there[0]} vectors of {there[1]}, not of {expected}")

    def nearest(self, query: Vectors, count: int) -> Ints:
        """About the `count` rows nearest to a unit query (d,), best first by exact cosine."""
        found = self._graph.search(query, min(count * OVERSAMPLED, len(self._vectors)), threads=1)
        rows = np.sort(found.keys.astype(np.int64))
        return rows[top(self._vectors[rows] @ query, count)]


def library() -> Any:
    """USearch's index class."""
    onnx_runtime()  # first: after USearch's own C++ library its import would end the process
    with optional():
        from usearch.index import Index
    return Index


VECTORS = "vectors.npy"
STARTS = "vector_starts.npy"  # no such file: one vector per passage


class PassageVectors:
    """The vectors (m, d) of n passages; those of passage i are `starts[i]` to `starts[i + 1]`.

    They stay on disk and are read from there. Safe to search from many threads.
    """

    def __init__(self, folder: Path, *, approximate: bool = False) -> None:
        self.array: Vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        self.starts: Ints = (
            np.load(folder / STARTS, allow_pickle=False)
            if (folder / STARTS).exists()
            else np.arange(len(np.atleast_1d(self.array)) + 1)
        )
        self.graph = Graph(folder, self.array) if approximate else None

    def of(self, row: int) -> Vectors:
        """The vectors (w, d) of one passage."""
        return self.array[self.starts[row] : self.starts[row + 1]]

    def cosines(self, query: Vectors, rows: Ints) -> Floats:
        """The cosine of a unit query (d,) with each of these passages, shape (k,), in [-1, 1]."""
        counts = self.starts[rows + 1] - self.starts[rows]
        begins = np.r_[0, np.cumsum(counts)]  # of each passage in what follows
        numbers = np.arange(begins[-1]) + np.repeat(self.starts[rows] - begins[:-1], counts)
        return _highest(cosines(self.array[numbers], query), begins)

    def nearest(self, query: Vectors, count: int, allowed: Bools | None = None) -> Ints:
        """The `count` rows nearest to a unit query (d,), best first; about these with a graph. Of
        the rows `allowed` (n,) alone, if that is given: then always exactly.
        """
        if self.graph is None or allowed is not None:
            near = _highest(product(self.array, query), self.starts)
            if allowed is not None:
                near, count = np.where(allowed, near, -np.inf), min(count, int(allowed.sum()))
            return top(near, count)
        longer = len(self.array) > len(self.starts) - 1
        # several of the nearest windows may be of one passage
        found = self.graph.nearest(query, 2 * count if longer else count)
        rows = np.searchsorted(self.starts, found, side="right") - 1
        _, first = np.unique(rows, return_index=True)
        return rows[np.sort(first)][:count]


def _highest(values: NDArray[Any], starts: Ints) -> NDArray[Any]:
    """The highest value of each passage, shape (n,), of those of its windows (m,)."""
    return values if len(values) == len(starts) - 1 else np.maximum.reduceat(values, starts[:-1])
