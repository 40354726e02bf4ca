"""Vectors that other indexes already hold: passages of equal text are not encoded again.

An index whose files do not match its manifest is not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rerank.errors import FolderError, InputError
from rerank.retrieval.corpus import Corpus
from rerank.retrieval.dense import Encoder, Vectors
from rerank.storage.folder import read_manifest, verify_folder

Keys = NDArray[np.uint64]


class KnownVectors:
    """The vectors of those indexes in `folders` that have this encoder and this layout.

    It holds 16 bytes per passage in memory. A vector depends on its text alone, so it is bit for
    bit the one that the encoder gives on a machine of the same kind.
    """

    def __init__(self, folders: Iterable[Path], encoder: Encoder, *, layout: int) -> None:
        self.encoder = encoder
        self._held = [
            _Held(folder) for folder in folders if _has_vectors_of(folder, encoder, layout)
        ]

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape (n, d), n >= 1, as `Encoder.encode` gives them."""
        vectors: dict[int, Vectors] = {}
        for held in self._held:
            missing = [i for i in range(len(texts)) if i not in vectors]
            vectors |= {missing[i]: v for i, v in held.find([texts[i] for i in missing]).items()}
        missing = [i for i in range(len(texts)) if i not in vectors]
        if missing:
            vectors |= zip(missing, self.encoder.encode([texts[i] for i in missing]), strict=True)
        return np.stack([vectors[i] for i in range(len(texts))])


class _Held:
    """The vectors of one index, by text."""

    def __init__(self, folder: Path) -> None:
        self._corpus = Corpus(folder)
        self._vectors: Vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        keys = _keys(p.full_text for p in self._corpus)
        self._rows = np.argsort(keys)
        self._keys = keys[self._rows]

    def find(self, texts: Sequence[str]) -> dict[int, Vectors]:
        """The known vectors of these texts, by position."""
        keys = _keys(texts)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        vectors = {}
        for i in np.flatnonzero(self._keys[places] == keys).tolist():
            row = int(self._rows[places[i]])
            if self._corpus.passage(row).full_text == texts[i]:
                vectors[i] = self._vectors[row]
        return vectors


def _keys(texts: Iterable[str]) -> Keys:
    """One number per text, shape (n,); two texts rarely have the same."""
    hashed = (hashlib.sha256(t.encode("utf-8", "surrogatepass")).digest()[:8] for t in texts)
    return np.frombuffer(b"".join(hashed), dtype=np.uint64)


def _has_vectors_of(folder: Path, encoder: Encoder, layout: int) -> bool:
    """Whether there is an intact index whose vectors this encoder made."""
    made_by = {"fingerprint": encoder.files.fingerprint, "max_length": encoder.max_length}
    try:
        manifest = read_manifest(folder)
        if manifest.get("layout") != layout or not made_by.items() <= manifest["encoder"].items():
            return False
        verify_folder(folder)
    except (FolderError, InputError, OSError, KeyError, AttributeError):
        return False
    return True
