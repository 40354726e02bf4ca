"""The bi-encoder: texts and passages to unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.config import Config
from rerank.inference.engine import Engine, open_bi_encoder
from rerank.inference.model_files import ModelFiles, check_bi_encoder
from rerank.inference.tokenizer import Tokenizer, open_tokenizer
from rerank.progress import in_chunks
from rerank.retrieval.windows import windows
from rerank.types import Floats, Passage

Vectors = NDArray[np.float32]
CHUNK = 256  # texts per update of the progress bar


class Encoder:
    """A sentence-transformers bi-encoder; the model is loaded at the first call.

    Safe to call from many threads; only one of them loads the model.

    Raises:
        InputError: the files are of a cross-encoder.
    """

    def __init__(self, files: ModelFiles, *, max_length: int, windows: int = 1) -> None:
        check_bi_encoder(files)
        self.files = files
        self.max_length = max_length
        self.windows = windows  # of a longer passage, at most
        self._loaded: tuple[Tokenizer, Engine] | None = None
        self._loading = Lock()

    @classmethod
    def from_config(cls, files: ModelFiles, config: Config) -> Encoder:
        """An encoder of these files that reads what the configuration says."""
        return cls(files, max_length=config.encoder_max_length, windows=config.encoder_windows)

    def encode(self, texts: Sequence[str], *, label: str | None = None) -> Vectors:
        """Unit vectors, shape (n, d), n >= 1, float32; `label` shows a progress bar of that name.

        Texts are truncated to `max_length` tokens.
        """
        tokenizer, engine = self._open()
        chunks = in_chunks(
            texts, lambda chunk: [engine(tokenizer(chunk))], size=CHUNK, label=label, unit="text"
        )
        return np.concatenate(chunks)

    def encode_passages(self, passages: Sequence[Passage]) -> list[Vectors]:
        """The unit vectors of each passage, at least one: of its windows (w, d), 1 <= w, in order.

        There are at most `windows` of `max_length` tokens each; what follows is not read.
        """
        texts = self.windows_of(passages)
        vectors = self.encode([text for of_passage in texts for text in of_passage])
        return np.split(vectors, np.cumsum([len(of_passage) for of_passage in texts])[:-1])

    def windows_of(self, passages: Sequence[Passage]) -> list[list[str]]:
        """The text of each window of each passage."""
        return windows(passages, self._open()[0], self.windows)

    @property
    def settings(self) -> dict[str, Any]:
        """All that the vectors of a passage depend on, besides its text."""
        return {
            "fingerprint": self.files.fingerprint,
            "max_length": self.max_length,
            "windows": self.windows,
        }

    def _open(self) -> tuple[Tokenizer, Engine]:
        with self._loading:
            if self._loaded is None:
                tokenizer = open_tokenizer(self.files, max_length=self.max_length)
                self._loaded = tokenizer, open_bi_encoder(self.files)
            return self._loaded


def cosines(vectors: Vectors, query: Vectors) -> Floats:
    """Cosine of one unit query (d,) with unit passages (n, d), shape (n,), in [-1, 1]."""
    return np.asarray(np.clip(vectors @ query, -1.0, 1.0), dtype=np.float64)
