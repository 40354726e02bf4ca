"""Vectors that other indexes already hold: equal passages are not encoded again.

An index whose files do not match its manifest is not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError
from rerank.retrieval.corpus import Corpus
from rerank.retrieval.dense import Encoder, Vectors
from rerank.retrieval.passage_vectors import PassageVectors
from rerank.storage.folder import read_manifest, verify_folder
from rerank.types import Passage

TextHashes = NDArray[np.uint64]


class KnownVectors:
    """The vectors of those indexes in `folders` that have this encoder and this layout.

    It holds 32 bytes per passage in memory. A vector depends on title and text alone, so it is bit
    for bit the one that the encoder gives on a machine of the same kind.
    """

    def __init__(self, folders: Iterable[Path], encoder: Encoder, *, layout: int) -> None:
        self.encoder = encoder
        self._held = [
            _Held(folder) for folder in folders if _has_vectors_of(folder, encoder, layout)
        ]

    def encode_passages(self, passages: Sequence[Passage]) -> list[Vectors]:
        """The vectors (w, d) of each passage, as `Encoder.encode_passages` gives them."""
        found: dict[int, Vectors] = {}
        for held in self._held:
            missing = [i for i in range(len(passages)) if i not in found]
            known = held.find([passages[i] for i in missing])
            found |= {missing[i]: vectors for i, vectors in known.items()}
        missing = [i for i in range(len(passages)) if i not in found]
        if missing:
            encoded = self.encoder.encode_passages([passages[i] for i in missing])
            found |= zip(missing, encoded, strict=True)
        return [found[i] for i in range(len(passages))]


class _Held:
    """The vectors of one index, by passage."""

    def __init__(self, folder: Path) -> None:
        self._corpus = Corpus(folder)
        self._vectors = PassageVectors(folder)
        hashes = _text_hashes(self._corpus)
        self._rows = np.argsort(hashes)
        self._hashes = hashes[self._rows]

    def find(self, passages: Sequence[Passage]) -> dict[int, Vectors]:
        """The known vectors of these passages, by position."""
        hashes = _text_hashes(passages)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        vectors = {}
        for i in np.flatnonzero(self._hashes[places] == hashes).tolist():
            row = int(self._rows[places[i]])
            held, passage = self._corpus.passage(row), passages[i]
            if (held.title, held.text) == (passage.title, passage.text):
                vectors[i] = self._vectors.of(row)
        return vectors


def _text_hashes(passages: Iterable[Passage]) -> TextHashes:
    """One number per passage, shape (n,); two texts rarely have the same."""
    texts = (p.full_text.encode("utf-8", "surrogatepass") for p in passages)
    hashed = (hashlib.sha256(text).digest()[:8] for text in texts)
    return np.frombuffer(b"".join(hashed), dtype=np.uint64)


def _has_vectors_of(folder: Path, encoder: Encoder, layout: int) -> bool:
    """Whether there is an intact index whose vectors this encoder made."""
    try:
        manifest = read_manifest(folder)
        made_by = {"windows": 1, **manifest["encoder"]}
        if manifest.get("layout") != layout or not encoder.settings.items() <= made_by.items():
            return False
        verify_folder(folder)
    except (InputError, OSError, KeyError, TypeError, AttributeError):
        return False
    return True
