"""Work on the words of passages: counted before it begins, in pieces, and bounded in memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from pieces import driven

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.steps import Speed, expected_seconds
from rerank.data.words import READ, bytes_of_words, read_words
from rerank.types import Passage, Query

NO_NETWORKS = Speed(0.0, 0.0)
LONG = [f"the median {i} of {i * 7} arrays. " * (READ // 28) for i in range(12)]


@pytest.fixture(scope="module")
def model(run: Any) -> CalibratedReranker:
    """The session's model."""
    return CalibratedReranker.load(run.folder)


def _query(texts: list[str]) -> Query:
    return Query(
        "median of arrays", passages=tuple(Passage(str(i), "", t) for i, t in enumerate(texts))
    )


def test_words_of_long_passages_are_read_in_pieces(model: CalibratedReranker) -> None:
    """One long passage a piece, so that the work can stop after each; the numbers are the same."""
    query = _query(LONG)
    found, pieces = driven(model, query, 0.1, NO_NETWORKS)
    assert found.to_dict() == model.assess([query])[0].to_dict()
    assert [len(p.items) for p in pieces if p.stage == "words"] == [1] * len(LONG)


def test_the_estimate_counts_the_characters(model: CalibratedReranker) -> None:
    """Even where the networks take no time; only characters that are read count."""
    costs = [
        sum(expected_seconds(_query(texts), model.pipeline, NO_NETWORKS, scoring_seconds=0))
        for texts in (["a"], ["a " * (READ // 2)], ["a " * READ], LONG)
    ]
    assert costs[0] < costs[1] == costs[2] < costs[3]


@pytest.mark.parametrize("kind", ["words", "letters", "different", "cjk", "lines"])
def test_the_bytes_of_words_are_counted(kind: str) -> None:
    """The cache counts no less than they take, and not many times as much."""
    rng = np.random.default_rng(0)
    draw = {
        "words": lambda: " ".join(f"w{n}" for n in rng.integers(0, 900, 9_000)),
        "letters": lambda: " ".join(map(chr, rng.integers(97, 123, 32_000))),
        "different": lambda: " ".join(f"{n:x}" for n in range(14_000)),
        "cjk": lambda: "。".join(map(chr, rng.integers(0x4E00, 0x9FA5, 30_000))),
        "lines": lambda: "\n".join(map(chr, rng.integers(97, 123, 32_000))),
    }
    text = draw[kind]()
    tracemalloc.start()
    try:
        found = read_words("", text, "none")
        real = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert real <= 1.1 * bytes_of_words(found) <= 4 * real
