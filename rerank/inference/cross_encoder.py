"""The cross-encoder: pairs of query and passage to raw logits, and whether a pair was truncated.

Any one-output model that sentence-transformers' CrossEncoder loads. No sigmoid is applied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError, optional
from rerank.inference.engine import EXPORT_FORMAT, open_cross_encoder
from rerank.inference.model_files import ModelFiles
from rerank.inference.score_cache import Score, ScoreCache
from rerank.inference.tokenizer import Tokenizer, Tokens, open_tokenizer
from rerank.normal_form import normal_form
from rerank.types import Floats, Precision

Pair = tuple[str, str]
Rows = Callable[[Sequence[Tokens]], NDArray[np.float32]]  # an engine


class CrossEncoder:
    """A cross-encoder; the model is loaded when the first pair must be scored.

    Safe to call from many threads; only one of them loads the model.
    """

    def __init__(
        self,
        files: ModelFiles,
        *,
        max_length: int,
        precision: Precision = "fp32",
        cache: ScoreCache | None = None,
    ) -> None:
        self.files = files
        self.max_length = max_length
        self.precision = precision
        self.cache = cache
        self._tokenizer: Tokenizer | None = None
        self._rows: Rows | None = None
        self._loading = Lock()

    def score(self, pairs: Sequence[Pair]) -> tuple[Floats, NDArray[np.bool_]]:
        """Logits, shape (n,), and whether each pair was truncated to `max_length` tokens.

        A pair's logit depends on the pair alone, not on its neighbours, their number or order,
        except for the rounding of bf16. So pairs in the cache are not scored again.

        Raises:
            InputError: the model cannot be loaded, has more than one output, or gives a logit that
                is not finite.
        """
        keys = [self._key(pair) for pair in pairs]
        score_of = self.cache.get(keys) if self.cache else {}
        missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in score_of}
        if missing:
            fresh = dict(zip(missing, self.read(list(missing.values())), strict=True))
            if self.cache:
                self.cache.put(fresh)
            score_of |= fresh
        scores = [score_of[key] for key in keys]
        logits = np.array([logit for logit, _ in scores], dtype=np.float64)
        return logits, np.array([cut for _, cut in scores], dtype=np.bool_)

    def read(self, pairs: Sequence[Pair]) -> list[Score]:
        """Scores of `pairs` (at least one) by the model, without the cache."""
        tokens = self.tokenizer()(pairs)
        rows = self._engine()(tokens)
        if rows.shape[1] != 1:
            raise InputError(
                f"{self.files.name} has {rows.shape[1]} outputs; expected one, as rerankers have"
            )
        if not np.isfinite(rows).all():
            raise InputError(
                f"{self.files.name} gives logits that are not finite; its weights are broken"
            )
        return [(float(row[0]), t.cut) for row, t in zip(rows, tokens, strict=True)]

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Whether each pair is longer than the model reads, shape (n,); no pair is scored."""
        return np.array([t.cut for t in self.tokenizer()(pairs)], dtype=np.bool_)

    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which is loaded without the model."""
        with self._loading:
            if self._tokenizer is None:
                self._tokenizer = open_tokenizer(self.files, max_length=self.max_length)
            return self._tokenizer

    def _engine(self) -> Rows:
        with self._loading:
            if self._rows is None:
                self._rows = self._open()
            return self._rows

    def _open(self) -> Rows:
        if self.precision != "bf16":
            return open_cross_encoder(self.files, self.precision)
        with optional():
            from rerank.inference.varlen import open_unpadded  # and torch

        return open_unpadded(self.files)

    def _key(self, pair: Pair) -> bytes:
        """16 bytes that identify the weights, how they are run, the longest input and the texts."""
        by = f"{self.files.fingerprint}\0{self.precision}\0{self.max_length}\0{EXPORT_FORMAT}"
        state = hashlib.sha256(by.encode())
        for text in pair:
            content = normal_form(text).encode()  # what the tokenizer reads
            state.update(len(content).to_bytes(8, "big") + content)
        return state.digest()[:16]
