"""A query in pieces: the same numbers, work of the size asked for, an end at any time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pieces import SPEED, driven

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.steps import (
    SCORE_OVERHEAD_S,
    expected_seconds,
    measured_speed,
    steps,
    tokens_of,
)
from rerank.errors import InputError
from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import open_tokenizer
from rerank.types import Passage, Query


@pytest.fixture(scope="module")
def model(run: Any) -> CalibratedReranker:
    """The session's model."""
    return CalibratedReranker.load(run.folder)


@pytest.fixture
def asked(texts: list[str]) -> list[Query]:
    """A search, passages with a repeated one, none, and some with logits."""
    provided = tuple(Passage(str(i), "", text) for i, text in enumerate([*texts[:9], texts[0]]))
    return [
        Query("median of an array"),
        Query("median", passages=provided),
        Query("median", passages=()),
        Query("median", passages=provided, logits=np.arange(10.0)),
    ]


@pytest.mark.parametrize("max_seconds", [1, 100, 10**6])
def test_the_numbers_are_those_of_one_call(
    model: CalibratedReranker, asked: Sequence[Query], max_seconds: int
) -> None:
    """To the bit, however small the pieces are, and the largest fit."""
    for query in asked:
        found, pieces = driven(model, query, max_seconds)
        (expected,) = model.assess([query])
        assert found.to_dict() == expected.to_dict()
        assert found.mode == expected.mode == query.mode
        assert all(len(p.items) == 1 or p.seconds <= max_seconds + SCORE_OVERHEAD_S for p in pieces)
        lefts = [p.left for p in pieces if p.stage == pieces[-1].stage]
        assert (lefts[-1], lefts) == (
            0 if pieces[-1].stage == "score" else 100,
            sorted(lefts)[::-1],
        )


def test_nothing_is_done_before_the_first_piece(model: CalibratedReranker) -> None:
    """Steps that are closed have read nothing; an empty query fails when it is begun."""
    walk = steps(model, Query(" "), SPEED, max_seconds=1, scoring_seconds=1)
    with pytest.raises(InputError, match="empty"):
        next(walk)
    steps(model, Query(" "), SPEED, max_seconds=1, scoring_seconds=1).close()


def test_estimates_are_near_the_tokenizer(
    model: CalibratedReranker, asked: Sequence[Query], texts: list[str]
) -> None:
    """Of real text, in all; and what is expected of a query is what its pieces come to."""
    tokenizer = open_tokenizer(resolve("minilm"), max_length=64)
    real = sum(len(t.ids) for t in tokenizer(texts))
    assert 0.7 < sum(tokens_of(text, max_tokens=64) for text in texts) / real < 1.4
    assert tokens_of("é" * 40, max_tokens=512) == 2 * tokens_of("e" * 40, max_tokens=512) - 3
    for query in asked[1:]:
        _, pieces = driven(model, query)
        encoding, scoring = expected_seconds(query, model.pipeline, SPEED, scoring_seconds=0)
        assert pieces[0].seconds <= encoding
        done = sum(p.seconds for p in pieces if p.stage == "score")
        assert done <= 1.5 * scoring
    assert expected_seconds(asked[0], model.pipeline, SPEED, scoring_seconds=7)[1] == 7


def test_the_speed_is_measured(model: CalibratedReranker) -> None:
    """Per token of both networks, more than nothing and far from a second."""
    speed = measured_speed(model)
    assert 0 < speed.encode < 1
    assert 0 < speed.score < 1
