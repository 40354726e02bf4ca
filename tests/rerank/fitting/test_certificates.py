"""As few passages as may be handed on: what is lost stays below what is promised."""

from __future__ import annotations

import numpy as np

from rerank.fitting.certificates import LOST, THRESHOLDS, choose_stopping_threshold


def world(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Hits and true sufficiencies at k = 1 to 10 of n questions."""
    hazard = rng.uniform(0, 0.9, size=(n, 1)) * 0.7 ** np.arange(10)
    found = np.maximum.accumulate(rng.uniform(size=(n, 10)) < hazard, axis=1).astype(np.int64)
    return found, 1 - np.cumprod(1 - hazard, axis=1)


def lost(found: np.ndarray, sufficiency: np.ndarray, threshold: float) -> float:
    """Share of the questions that ten passages answer and those handed on do not."""
    reached = np.minimum((sufficiency < threshold).sum(axis=1), 9)  # sufficiency never falls
    return float(np.mean(found[:, 9] - found[np.arange(len(found)), reached]))


def test_what_is_lost_stays_below_what_is_promised() -> None:
    """Chosen on 500 questions, and judged on 100,000: wrong in one of 20 draws at most."""
    rng = np.random.default_rng(0)
    fresh = world(rng, 100_000)
    chosen = [choose_stopping_threshold(*world(rng, 500), np.arange(500)) for _ in range(12)]
    known = [t for t in chosen if t is not None]
    assert len(known) > 8
    assert min(known) < 1.0
    assert sum(lost(*fresh, t) > LOST for t in known) <= 3  # of 12; more in 1 of 400 runs


def test_few_questions_promise_nothing() -> None:
    """Twenty questions cannot say that one in twenty is lost."""
    assert choose_stopping_threshold(*world(np.random.default_rng(0), 20), np.arange(20)) is None


def test_answers_that_come_first_need_one_passage() -> None:
    """Nothing is lost at any threshold: the lowest is taken."""
    found = np.ones((500, 10), dtype=np.int64)
    sufficiency = np.full((500, 10), 0.9)
    assert choose_stopping_threshold(found, sufficiency, np.arange(500)) == THRESHOLDS[-1]
