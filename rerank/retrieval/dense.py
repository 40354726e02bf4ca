"""The bi-encoder and exact dense search: texts to normalised vectors, cosines by one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.models import ModelFiles
from rerank.progress import progress
from rerank.types import Floats

Vectors = NDArray[np.float32]
CHUNK = 256  # texts between two moves of the progress bar


class Encoder:
    """A sentence-transformers bi-encoder; the model is loaded at the first call."""

    def __init__(self, files: ModelFiles, *, max_length: int) -> None:
        self.files = files
        self.max_length = max_length
        self._model: Any = None

    def encode(self, texts: Sequence[str], *, label: str | None = None) -> Vectors:
        """Unit vectors, shape (n, d), float32; with `label`, a progress bar of that name.

        Longer texts are cut at `max_length` tokens. Texts go through in order of length, which
        changes no vector by more than rounding.
        """
        model = self._load()
        order = np.argsort([len(t) for t in texts], kind="stable")
        rows: list[Vectors] = []
        with progress(len(texts), label) as bar:
            for start in range(0, len(texts), CHUNK):
                part = [texts[i] for i in order[start : start + CHUNK]]
                rows.append(
                    model.encode(
                        part, batch_size=16, normalize_embeddings=True, show_progress_bar=False
                    )
                )
                bar.update(len(part))
        vectors = np.empty((len(texts), model.get_embedding_dimension()), dtype=np.float32)
        if rows:
            vectors[order] = np.concatenate(rows)
        return vectors

    def _load(self) -> Any:
        if self._model is None:
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(str(self.files.folder), local_files_only=True)
            self._model.max_seq_length = self.max_length
        return self._model


def cosines(vectors: Vectors, query: Vectors) -> Floats:
    """Cosine of one unit query (d,) with unit passages (n, d), shape (n,), in [-1, 1]."""
    return np.clip(vectors @ query, -1.0, 1.0).astype(np.float64)
