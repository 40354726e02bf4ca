"""The bi-encoder: texts and passages to unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.config import Config
from rerank.inference.engine import Engine, open_bi_encoder
from rerank.inference.given import Given, vectors_of
from rerank.inference.model_files import Model, ModelFiles, check_bi_encoder
from rerank.inference.tokenizer import Tokenizer, open_tokenizer
from rerank.progress import in_chunks
from rerank.protocols import Embedder, Role, Traits
from rerank.retrieval.windows import windows
from rerank.types import Floats, Passage

Vectors = NDArray[np.float32]
CHUNK = 256  # texts per update of the progress bar


class PassageText(str):
    """A text of a passage, not equal to a query of the same words: their vectors may differ."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PassageText) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((PassageText, str.__hash__(self)))


class BiEncoder:
    """The `Embedder` of a bi-encoder's files; the network is loaded at the first call.

    Texts are truncated to `max_length` tokens. Safe to call from many threads; only one of them
    loads the network.

    Raises:
        InputError: the files are of a cross-encoder.
    """

    def __init__(self, files: ModelFiles, max_length: int) -> None:
        check_bi_encoder(files)
        self.files = files
        self.max_length = max_length
        self.traits = Traits(files.name, f"{files.fingerprint}\0{max_length}", batch=CHUNK)
        self._loaded: tuple[Tokenizer, Engine] | None = None
        self._loading = Lock()

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """Unit vectors, shape (n, d), n >= 1, float32."""
        tokenizer, engine = self.open()
        return engine(tokenizer(texts))

    def open(self) -> tuple[Tokenizer, Engine]:
        """The tokenizer and the network."""
        with self._loading:
            if self._loaded is None:
                tokenizer = open_tokenizer(self.files, max_length=self.max_length)
                self._loaded = tokenizer, open_bi_encoder(self.files)
            return self._loaded


class Encoder:
    """Any embedder: of files on this machine, or given as an object, whose passages are one window.

    Raises:
        InputError: the files are of a cross-encoder.
    """

    def __init__(self, model: Model, *, max_length: int, windows: int = 1) -> None:
        self.model = model
        self.max_length = max_length
        self.windows = windows  # of a longer passage, at most
        self._own = None if isinstance(model, Given) else BiEncoder(model, max_length)

    @classmethod
    def from_config(cls, model: Model, config: Config) -> Encoder:
        """An encoder of this model that reads what the configuration says."""
        return cls(model, max_length=config.encoder_max_length, windows=config.encoder_windows)

    def encode(self, texts: Sequence[str], *, label: str | None = None) -> Vectors:
        """Unit vectors, shape (n, d), n >= 1, float32; `label` shows a progress bar of that name.

        Texts are of queries, unless they are a `PassageText`.
        """
        chunks = in_chunks(
            texts, lambda chunk: [self._vectors(chunk)], size=CHUNK, label=label, unit="text"
        )
        return np.concatenate(chunks)

    def encode_passages(self, passages: Sequence[Passage]) -> list[Vectors]:
        """The unit vectors of each passage, at least one: of its windows (w, d), 1 <= w, in order.

        There are at most `windows` of `max_length` tokens each; what follows is not read.
        """
        texts = self.windows_of(passages)
        vectors = self.encode([text for of_passage in texts for text in of_passage])
        return np.split(vectors, np.cumsum([len(of_passage) for of_passage in texts])[:-1])

    def windows_of(self, passages: Sequence[Passage]) -> list[list[PassageText]]:
        """The text of each window of each passage."""
        if self._own is None or self.windows == 1:
            return [[PassageText(passage.full_text)] for passage in passages]
        texts = windows(passages, self._own.open()[0], self.windows)
        return [[PassageText(text) for text in of_passage] for of_passage in texts]

    @property
    def settings(self) -> dict[str, Any]:
        """All that the vectors of a passage depend on, besides its text."""
        return {
            "fingerprint": self.model.fingerprint,
            "max_length": self.max_length,
            "windows": self.windows,
        }

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of some texts; those of each role are made together."""
        if self._own is not None:
            return self._own.embed(texts, "query")
        assert isinstance(self.model, Given)
        assert isinstance(self.model.model, Embedder)
        rows: dict[Role, list[int]] = {"query": [], "passage": []}
        for row, text in enumerate(texts):
            rows["passage" if isinstance(text, PassageText) else "query"].append(row)
        made: dict[int, Vectors] = {}
        for role, of_role in rows.items():
            if of_role:
                some = [str(texts[row]) for row in of_role]
                made |= zip(of_role, vectors_of(self.model.model, some, role), strict=True)
        return np.stack([made[row] for row in range(len(texts))])


def cosines(vectors: Vectors, query: Vectors) -> Floats:
    """Cosine of one unit query (d,) with unit passages (n, d), shape (n,), in [-1, 1]."""
    return np.asarray(np.clip(vectors @ query, -1.0, 1.0), dtype=np.float64)
