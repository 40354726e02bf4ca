"""The cross-encoder: pairs of query and passage to raw logits, truncation counted.

Any one-output model that sentence-transformers' CrossEncoder loads. No sigmoid is applied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rerank.engine import Engine, Tokenizer, open_cross_encoder
from rerank.models import ModelFiles
from rerank.types import Floats, InputError


class CrossEncoder:
    """A cross-encoder; the model is loaded at the first call."""

    def __init__(self, files: ModelFiles, *, max_length: int) -> None:
        self.files = files
        self.max_length = max_length
        self._loaded: tuple[Tokenizer, Engine] | None = None

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[Floats, NDArray[np.bool_]]:
        """Logits, shape (n,), and whether a pair was cut at `max_length` tokens.

        A pair's logit depends on the pair alone: not on its neighbours, their number or order.

        Raises:
            InputError: the model has more than one output.
        """
        if not pairs:
            return np.empty(0), np.empty(0, dtype=np.bool_)
        if self._loaded is None:
            tokenizer = Tokenizer(self.files.folder, max_length=self.max_length)
            self._loaded = tokenizer, open_cross_encoder(self.files)
        tokenizer, engine = self._loaded
        tokens = tokenizer(pairs)
        rows = engine(tokens)
        if rows.shape[1] != 1:
            raise InputError(
                f"{self.files.name} has {rows.shape[1]} outputs; expected one, as rerankers have"
            )
        return rows[:, 0].astype(np.float64), np.array([t.cut for t in tokens])
