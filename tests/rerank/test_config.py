"""The configuration: what it refuses, and that it survives JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from rerank.advice.settings import AnswerConfig
from rerank.config import Config, Thresholds
from rerank.errors import InputError


def test_a_configuration_survives_json() -> None:
    """What is logged and kept with a model reads back as an equal value."""
    made = Config(pool=17, thresholds=Thresholds(high=0.8), rank_by="fused")
    assert Config.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert Config.from_dict({}) == Config()


def test_a_configuration_cannot_be_changed() -> None:
    """It is one frozen value."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().pool = 1  # type: ignore[misc]


def test_values_within_a_configuration_are_of_their_own_kind() -> None:
    """A dictionary would fail only in the middle of a run."""
    with pytest.raises(InputError, match=r"`thresholds` should be a Thresholds, .* got \{'high"):
        Config(thresholds={"high": 0.95})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`strategy` should be a Strategy"):
        AnswerConfig(strategy={"max_k": 3})  # type: ignore[arg-type]


def test_the_advisory_threshold_is_0_7() -> None:
    """The bands are those that the documentation states."""
    t = Thresholds()
    assert (t.high, t.medium, t.low) == (0.9, 0.7, 0.5)


@pytest.mark.parametrize(
    "values",
    [
        {"pool": 0},
        {"candidates": -1},
        {"rerank_depth": 0},
        {"max_length": 0},
        {"encoder_max_length": 0},
        {"rank_by": "hope"},
        {"folds": 1},
        {"sufficiency_k": 0},
        {"sufficiency_k": 11},
        {"thresholds": {"high": 1.1}},
        {"thresholds": {"low": 0.8}},
        {"thresholds": {"low": -0.1}},
        {"thresholds": {"partial": 0.8}},
        {"thresholds": {"medium": float("nan")}},
        {"thresholds": {"certain": 1}},
        {"thresholds": None},
        {"pool": "seven"},
        {"shiny": True},
        {"seed": "x"},
        {"pool": 2.5},
        {"language": None},
        {"language": "klingon"},
        {"rrf_k": -1},  # 1 / (k + rank) needs k >= 0
    ],
)
def test_a_value_that_no_run_can_use_is_refused(values: dict[str, Any]) -> None:
    """Out of range, out of order, of the wrong type, or unknown."""
    with pytest.raises(InputError):
        Config.from_dict(values)


def test_an_unknown_field_is_named() -> None:
    """The error names the field and those that there are."""
    with pytest.raises(InputError, match=r"\['shiny'\].*'rerank_depth'"):
        Config.from_dict({"shiny": 1, "pool": 3})


@pytest.mark.parametrize("values", [{"encoder": 5}, {"reranker": None}])
def test_a_value_of_the_wrong_type_is_refused(values: dict[str, Any]) -> None:
    """`from_dict` says that a field of the wrong type is an InputError."""
    with pytest.raises(InputError, match="an object or a function"):
        Config.from_dict(values)
