"""The bi-encoder and exact dense search: texts to unit vectors, cosines by one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from rerank.inference.engine import Engine, open_bi_encoder
from rerank.inference.model_files import ModelFiles
from rerank.inference.tokenizer import Tokenizer, open_tokenizer
from rerank.progress import in_chunks
from rerank.types import Floats

Vectors = NDArray[np.float32]
CHUNK = 256  # texts per update of the progress bar


class Encoder:
    """A sentence-transformers bi-encoder; the model is loaded at the first call.

    Safe to call from many threads; only one of them loads the model.
    """

    def __init__(self, files: ModelFiles, *, max_length: int) -> None:
        self.files = files
        self.max_length = max_length
        self._loaded: tuple[Tokenizer, Engine] | None = None
        self._loading = Lock()

    def encode(self, texts: Sequence[str], *, label: str | None = None) -> Vectors:
        """Unit vectors, shape (n, d), n >= 1, float32; `label` shows a progress bar of that name.

        Texts are truncated to `max_length` tokens.
        """
        with self._loading:
            if self._loaded is None:
                tokenizer = open_tokenizer(self.files, max_length=self.max_length)
                self._loaded = tokenizer, open_bi_encoder(self.files)
            tokenizer, engine = self._loaded
        chunks = in_chunks(
            texts, lambda chunk: [engine(tokenizer(chunk))], size=CHUNK, label=label, unit="text"
        )
        return np.concatenate(chunks)


def cosines(vectors: Vectors, query: Vectors) -> Floats:
    """Cosine of one unit query (d,) with unit passages (n, d), shape (n,), in [-1, 1]."""
    return np.asarray(np.clip(vectors @ query, -1.0, 1.0), dtype=np.float64)
