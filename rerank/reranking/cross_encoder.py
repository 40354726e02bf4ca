"""The cross-encoder: pairs of query and passage to raw logits, truncation counted.

Any one-output model that sentence-transformers' CrossEncoder loads. No sigmoid is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.models import ModelFiles
from rerank.types import Floats, InputError


class CrossEncoder:
    """A cross-encoder; the model is loaded at the first call."""

    def __init__(self, files: ModelFiles, *, max_length: int) -> None:
        self.files = files
        self.max_length = max_length
        self._model: Any = None

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[Floats, NDArray[np.bool_]]:
        """Logits, shape (n,), and whether a pair was longer than `max_length` tokens.

        Pairs go through sorted by length in small batches: padding then costs little.

        Raises:
            InputError: the model has more than one output.
        """
        model = self._load()
        if not pairs:
            return np.empty(0), np.empty(0, dtype=np.bool_)
        import torch

        tokens = model.tokenizer([q for q, _ in pairs], [p for _, p in pairs], verbose=False)
        lengths = np.array([len(row) for row in tokens["input_ids"]])
        logits = model.predict(
            list(pairs), batch_size=8, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        return np.asarray(logits, dtype=np.float64), lengths > self.max_length

    def _load(self) -> Any:
        if self._model is None:
            from sentence_transformers import CrossEncoder as Reference

            model = Reference(
                str(self.files.folder), max_length=self.max_length, local_files_only=True
            )
            if model.num_labels != 1:
                raise InputError(
                    f"{self.files.name} has {model.num_labels} outputs; expected one, as rerankers have"
                )
            self._model = model
        return self._model
