"""What a training cannot be asked for."""

from __future__ import annotations

from typing import Any

import pytest

from rerank.errors import InputError
from rerank.training.settings import FinetuneConfig


@pytest.mark.parametrize(
    "values",
    [
        {"steps": 0},
        {"batch": 0},
        {"depth": 0},
        {"hard": -1},
        {"hard": 0, "easy": 0},
        {"hard": 5, "depth": 4},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"warmup": 1.0},
        {"dropout": -0.1},
        {"frozen_layers": -1},
        {"average": 4, "validation": 0, "steps": 300, "check_every": 101},  # three checkpoints
    ],
)
def test_a_training_run_that_cannot_be_is_refused(values: dict[str, Any]) -> None:
    """Counts, rates and shares out of range, or no wrong passage at all."""
    with pytest.raises(InputError):
        FinetuneConfig(**values)


def test_a_bound_that_is_excluded_is_no_value() -> None:
    """It is named in the sentence; one that is included is taken."""
    FinetuneConfig(warmup=0.0)
    expected = "`learning_rate` should be a number, above 0 and below 1, got 0.0"
    with pytest.raises(InputError) as told:
        FinetuneConfig(learning_rate=0.0)
    assert str(told.value) == expected
