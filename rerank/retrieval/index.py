"""BM25 and dense over one corpus: built once, saved, opened again; searched by query and vector.

Text, vectors and postings stay on disk: an open index holds in memory the vocabulary, 16 bytes per
passage that say where it is, and the passages that the latest queries found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from rerank.config import Config
from rerank.data.words import Lexicon, words
from rerank.errors import InputError
from rerank.filters import Where
from rerank.progress import progress
from rerank.retrieval import dense
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.corpus import Columns, Corpus, write_passages
from rerank.retrieval.dense import Encoder, PassageVectors, Vectors
from rerank.retrieval.fusion import ranks, reciprocal_rank_fusion, top
from rerank.storage.folder import read_manifest, verify_folder, write_folder
from rerank.types import FirstStage, Ints, Passage

INDEX_KIND = "an index"
BEFORE = {"windows": 1, "precision": "fp32"}  # of encoders, where a manifest does not say
PART = 2**22  # numbers checked at a time: about as long as hashing them takes
LARGEST = 1e6  # limit for cosines, idf and BM25 weights, which are all below a hundred
USUAL_IDF = 4.0  # of a word where no corpus says how rare it is


def layout_of(language: object) -> int:
    """The version of the files in the folder, and of what a word of this language is."""
    return 4 if language == "english" else 5


class SearchableIndex(Lexicon, Protocol):
    """A corpus that can be searched by a query's words and by its vector."""

    folder: Path  # which is copied into a model folder

    def __len__(self) -> int:
        """Count of passages."""

    def search(
        self,
        query: str,
        vector: Vectors,
        *,
        pool: int,
        count: int,
        rrf_k: int,
        where: Where | None = None,
    ) -> FirstStage:
        """The `count` best fused of the `pool` best of each stage that fit `where`, best first."""

    def passage(self, row: int, /) -> Passage:
        """The passage at a row, as `FirstStage.rows` names it."""

    def refuse_mismatch(self, config: Config, encoder: Encoder) -> None:
        """Raise an InputError if it was made for another configuration or encoder."""


class NoIndex:
    """A `SearchableIndex` without passages: every word has the same weight."""

    folder = Path()

    def __init__(self, language: str) -> None:
        self.language = language

    def __len__(self) -> int:
        return 0

    def search(self, query: str, vector: Vectors, **_: Any) -> FirstStage:
        """Nothing can be found: no source searches it."""
        raise NotImplementedError

    def passage(self, row: int, /) -> Passage:
        """There are no rows."""
        raise IndexError(row)

    def idf(self, word: str, /) -> float:
        """The same for every word."""
        return USUAL_IDF

    def refuse_mismatch(self, config: Config, encoder: Encoder) -> None:
        """Nothing could differ."""


class Index:
    """An open index folder. Safe to read from many threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: dict[str, Any] = read_manifest(folder)
        expected = layout_of(self.manifest.get("language"))
        if self.manifest.get("layout") != expected:
            raise InputError(
                f"{folder}: the index has layout {self.manifest.get('layout')}, this version reads "
                f"{expected}; build it again"
            )
        self.language = str(self.manifest["language"])
        self.bm25 = BM25.open(folder)
        self.vectors = PassageVectors(folder, approximate=self.manifest["approximate"])
        self.corpus = Corpus(folder)
        self.columns = Columns(self.corpus)
        self.passage = self.corpus.passage
        self.idf = self.bm25.idf

    def __len__(self) -> int:
        return len(self.corpus)

    def refuse_mismatch(self, config: Config, encoder: Encoder) -> None:
        """Refuse a configuration or an encoder that the index was not built for."""
        if differing := self.differences(config, encoder):
            raise InputError(f"{self.folder}: the index has {', '.join(differing)}; build it again")

    def differences(self, config: Config, encoder: Encoder) -> list[str]:
        """What the index was built with, where a configuration and its encoder differ from that,
        such as `"--language german instead of english"`.
        """
        made_by = BEFORE | self.manifest["encoder"]
        search = "approximate" if self.manifest["approximate"] else "exact"
        options = {
            "the encoder": (made_by["fingerprint"], encoder.model.fingerprint),
            "--encoder-max-length": (made_by["max_length"], encoder.max_length),
            "--encoder-windows": (made_by["windows"], encoder.windows),
            "--encoder-precision": (made_by["precision"], encoder.precision),
            "--language": (self.language, config.language),
            "--dense": (search, config.dense),
        }
        return [
            f"{name} {there!s:.12} instead of {expected!s:.12}"
            for name, (there, expected) in options.items()
            if there != expected and (name, expected) != ("--language", "auto")
        ]

    def check(self) -> None:
        """Refuse arrays of another type, shape or range than those of `build_index`."""
        corpus, bm25, vectors = self.corpus, self.bm25, self.vectors
        passages, terms = len(corpus.offsets) - 1, len(bm25.terms)
        _check_array("offsets", corpus.offsets, np.int64, (passages + 1,))
        _check_ends("offsets", corpus.offsets, corpus.text_bytes)
        if passages < 1:
            raise InputError("its offsets hold no passage")
        _check_array("vector starts", vectors.starts, np.int64, (passages + 1,))
        _check_ends("vector starts", vectors.starts, len(vectors.array), step=1)
        width = vectors.array.shape[-1:]
        _check_array("vectors", vectors.array, np.float32, (int(vectors.starts[-1]), *width))
        if bm25.size != passages:
            raise InputError(f"its postings are of {bm25.size} passages, its text of {passages}")
        _check_array("idf", bm25.term_idf, np.float64, (terms,))
        _check_array("starts", bm25.starts, np.int64, (terms + 1,))
        _check_array("rows", bm25.rows, np.int32, (len(bm25.rows),))
        _check_array("weights", bm25.weights, np.float64, (len(bm25.rows),))
        _check_ends("starts", bm25.starts, len(bm25.rows))
        numbers: dict[str, NDArray[Any]] = {"vectors": vectors.array, "idf": bm25.term_idf}
        for name, array in (numbers | {"weights": bm25.weights}).items():
            if not all((np.abs(block) <= LARGEST).all() for block in _parts(array)):
                raise InputError(f"its {name} hold a number that is not finite, or far too large")
        if not all(block.min() >= 0 and block.max() < passages for block in _parts(bm25.rows)):
            raise InputError("its rows point to a passage that does not exist")
        if vectors.graph is not None:
            vectors.graph.check()

    def search(
        self,
        query: str,
        vector: Vectors,
        *,
        pool: int,
        count: int,
        rrf_k: int,
        where: Where | None = None,
    ) -> FirstStage:
        """The `count` best fused passages of the `pool` best of each stage, best first.

        BM25 finds only passages that share a word with the query (score above 0).
        """
        lexical = self.bm25.scores(words(query, language=self.language))
        allowed = self.columns.allowed(where) if where else None
        if allowed is not None:
            lexical[~allowed] = 0.0
        by_bm25 = top(lexical, pool)
        lists = [by_bm25[lexical[by_bm25] > 0], self.vectors.nearest(vector, pool, allowed)]
        rows_found, scores = reciprocal_rank_fusion(lists, k=rrf_k)
        best = top(scores, count)
        rows = rows_found[best]
        bm25_rank, dense_rank = (ranks(f, rows, missing=pool + 1) for f in lists)
        return FirstStage(
            rows=rows,
            bm25=lexical[rows],
            dense=self.vectors.cosines(vector, rows),
            bm25_rank=bm25_rank,
            dense_rank=dense_rank,
            fused=scores[best],
        )


def build_index(
    corpus: Iterable[Passage],
    folder: Path,
    encoder: Encoder,
    *,
    language: str = "english",
    approximate: bool = False,
    overwrite: bool = False,
    known: Iterable[Path] = (),
) -> Index:
    """Build an index of `corpus` in `folder`, atomically, with a progress bar; and open it.

    The corpus is read once, and its text is never held in memory; its postings are, at about 40
    bytes each. With `approximate`, dense search uses a graph. Passages in the indexes of the
    folders `known` are not encoded again.
    """

    def fill(new: Path) -> Mapping[str, Any]:
        if not write_passages(corpus, new):
            raise InputError("the corpus holds no passage; an index needs at least one")
        written = Corpus(new)
        with progress(len(written), "counting words", unit="text") as bar:

            def words_of(passage: Passage) -> list[str]:
                bar.update()
                return words(passage.full_text, language=language)

            BM25.build(map(words_of, written)).save(new)
        _write_vectors(written, KnownVectors(known, encoder), new)
        if approximate:
            dense.write_graph(PassageVectors(new).array, new)
        return {
            "layout": layout_of(language),
            "language": language,
            "approximate": approximate,
            "passages": len(written),
            "encoder": {"name": encoder.model.name, **encoder.settings},
        }

    if approximate:
        dense.library()  # before the hours that encoding may take
    write_folder(folder, fill, overwrite=overwrite, kind=INDEX_KIND)
    return Index(folder)


class KnownVectors:
    """The vectors of those intact indexes in `folders` that this encoder made: to use them again.

    It holds 32 bytes per passage in memory. A vector depends on title and text alone, so it is bit
    for bit the one that the encoder gives on a machine of the same kind.
    """

    def __init__(self, folders: Iterable[Path], encoder: Encoder) -> None:
        self.encoder = encoder
        self._held = []
        for folder in folders:
            try:
                manifest = read_manifest(folder)
                made_by = BEFORE | manifest["encoder"]
                current = manifest.get("layout") == layout_of(manifest.get("language"))
                if not current or not encoder.settings.items() <= made_by.items():
                    continue
                verify_folder(folder)
            except (InputError, OSError, KeyError, TypeError, AttributeError):
                continue
            corpus = Corpus(folder)
            hashes = _text_hashes(corpus)
            rows = np.argsort(hashes)
            self._held.append((corpus, PassageVectors(folder), rows, hashes[rows]))

    def encode_passages(self, passages: Sequence[Passage]) -> list[Vectors]:
        """The vectors (w, d) of each passage, as `Encoder.encode_passages` gives them."""
        found: dict[int, Vectors] = {}
        hashes = _text_hashes(passages)
        for corpus, vectors, rows, known in self._held:
            places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            for i in np.flatnonzero(known[places] == hashes).tolist():
                row, asked = int(rows[places[i]]), passages[i]
                held = corpus.passage(row)
                if i not in found and (held.title, held.text) == (asked.title, asked.text):
                    found[i] = vectors.of(row)
        missing = [i for i in range(len(passages)) if i not in found]
        if missing:
            encoded = self.encoder.encode_passages([passages[i] for i in missing])
            found |= zip(missing, encoded, strict=True)
        return [found[i] for i in range(len(passages))]


def _text_hashes(passages: Iterable[Passage]) -> NDArray[np.uint64]:
    """One number per passage, shape (n,); two texts rarely have the same."""
    texts = (p.full_text.encode("utf-8", "surrogatepass") for p in passages)
    hashed = (hashlib.sha256(text).digest()[:8] for text in texts)
    return np.frombuffer(b"".join(hashed), dtype=np.uint64)


def _write_vectors(corpus: Corpus, encoder: KnownVectors, folder: Path) -> None:
    """Encode every passage, in chunks, into arrays in `folder`; equal passages once.

    Written, not memory-mapped: a full disk raises an error, where a map would end the process.
    """
    passages, counts, shape = iter(corpus), [0], (0, 0)
    _, group, times = np.unique(_text_hashes(corpus), return_inverse=True, return_counts=True)
    again = iter((times > 1)[group].tolist())
    kept: dict[tuple[str, str], Vectors] = {}
    with (
        (folder / dense.VECTORS).open("wb") as out,
        progress(len(corpus), "indexing passages", unit="text") as bar,
    ):
        while chunk := list(islice(passages, dense.CHUNK)):
            texts = [(p.title, p.text) for p in chunk]
            new = {text: p for text, p in zip(texts, chunk, strict=True) if text not in kept}
            found = dict(zip(new, encoder.encode_passages([*new.values()]), strict=True))
            vectors = [found[text] if text in found else kept[text] for text in texts]
            kept |= {t: v for t, v in zip(texts, vectors, strict=True) if next(again)}
            if not shape[1]:
                shape = (0, vectors[0].shape[1])
                _write_header(out, shape)
            counts += map(len, vectors)
            out.write(np.ascontiguousarray(np.concatenate(vectors)).data)
            bar.update(len(chunk))
        out.seek(0)  # the header has room for any number of vectors
        _write_header(out, (sum(counts), shape[1]))
    if max(counts) > 1:
        np.save(folder / dense.STARTS, np.cumsum(counts))


def _write_header(out: BinaryIO, shape: tuple[int, int]) -> None:
    header = np.lib.format.header_data_from_array_1_0(np.empty((0, 0), dtype=np.float32))
    np.lib.format.write_array_header_1_0(out, {**header, "shape": shape})


def _check_array(name: str, array: NDArray[Any], kind: Any, shape: tuple[int, ...]) -> None:
    if array.dtype != kind or array.shape != shape or array.ndim != len(shape):
        raise InputError(
            f"its {name} are {array.dtype} of shape {array.shape}, expected {np.dtype(kind)} of "
            f"shape {shape}"
        )


def _check_ends(name: str, ends: Ints, last: int, *, step: int = 0) -> None:
    if len(ends) < 1 or ends[0] != 0 or ends[-1] != last or (np.diff(ends) < step).any():
        raise InputError(f"its {name} do not rise from 0 to {last}")


def _parts(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    flat = array.reshape(-1)
    return (flat[i : i + PART] for i in range(0, len(flat), PART))
