"""Relevance and sufficiency: they agree whatever the map, and are calibrated at every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from coherence import check_family
from hand_made import labelled, make_ranking
from hypothesis import given
from hypothesis import strategies as st
from relplot import smECE
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

from calibration.arrays import log_odds
from calibration.maps import LogisticMap
from rerank.assessment.relevance import (
    DEPTH,
    INPUTS,
    chain,
    fit_hazards,
    hazard_inputs,
    relevance_and_sufficiency,
)
from rerank.types import Floats, Ranking

UNIT = st.floats(0, 1)
WEIGHT = st.floats(-30, 30)
D = len(INPUTS)


def made(coef: tuple[float, ...], intercept: float) -> LogisticMap:
    return LogisticMap(coef, intercept, (0.0,) * D, (1.0,) * D)


def scored(scores: Sequence[float]) -> Ranking:
    return make_ranking(texts=["text"] * len(scores), score=scores)


MAP = st.builds(made, st.tuples(*[WEIGHT] * D), WEIGHT)


def exhaustive(
    confidence: float, first: list[float], hazard_after_hit: list[float]
) -> tuple[Floats, ...]:
    """Relevance and sufficiency by adding up the probability of every pattern of right passages."""
    n = len(first) + 1
    relevance, found = np.zeros(n), np.zeros(n)
    for pattern in product([0, 1], repeat=n):
        p = confidence if pattern[0] else 1 - confidence
        for k in range(1, n):
            right = hazard_after_hit[k - 1] if any(pattern[:k]) else first[k - 1]
            p *= right if pattern[k] else 1 - right
        relevance += p * np.array(pattern)
        found += p * (np.cumsum(pattern) > 0)
    return relevance, found


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_they_are_the_sums_over_all_patterns_of_right_passages(seed: int, n: int) -> None:
    """Where no relevance exceeds the one above it, nothing is scaled."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1)
    hazard, hazard_after_hit = 0.4 * rng.random((2, n - 1))
    relevance, found = exhaustive(confidence, hazard.tolist(), hazard_after_hit.tolist())
    ours = chain(confidence, hazard, hazard_after_hit)
    if (np.diff(relevance) <= 0).all():
        np.testing.assert_allclose(ours, (relevance, found), atol=1e-12)


def test_by_hand_where_one_is_scaled_down() -> None:
    """r_2 = .75 * .8 + .25 * .4 = .7 would exceed .25: both hazards shrink to 25/70 of it."""
    relevance, found = chain(0.25, np.array([0.8, 0.0]), np.array([0.4, 0.1]))
    second = 0.25 + 0.75 * 0.8 * 25 / 70
    np.testing.assert_allclose(relevance, [0.25, 0.25, second * 0.1], rtol=1e-15)
    np.testing.assert_allclose(found, [0.25, second, second], rtol=1e-15)


@given(
    st.lists(UNIT, max_size=30),
    UNIT,
    MAP,
    MAP,
)
def test_any_maps_give_probabilities_that_agree(
    scores: list[float], confidence: float, hazard: LogisticMap, hazard_after_hit: LogisticMap
) -> None:
    """Whatever the maps, the scores and the confidence, also where the order is not by score."""
    confidence = confidence if scores else 0.0
    found = relevance_and_sufficiency(scored(scores), confidence, hazard, hazard_after_hit)
    check_family(confidence, *found)


@pytest.mark.parametrize("n", [0, 1, 2, 9, 10, 11, 100, 1000])
def test_lists_of_any_length(n: int) -> None:
    """From no passage to a thousand, the last relevance included."""
    rng = np.random.default_rng(n)
    confidence = 0.8 if n else 0.0
    for _ in range(20):
        maps = [made(tuple(rng.normal(0, 1, D)), rng.normal(-2, 1)) for _ in range(2)]
        scores = np.sort(rng.random(n))[::-1]
        relevance, sufficiency = relevance_and_sufficiency(scored(scores), confidence, *maps)
        assert (relevance.shape, sufficiency.shape) == ((n,), (DEPTH,))
        check_family(confidence, relevance, sufficiency)


def test_a_hazard_of_almost_nothing_rounds_nothing_down() -> None:
    """Where no later passage can be right, sufficiency is the confidence, and no bit less."""
    never, equally_likely = made((0.0,) * D, -60.0), scored([0.5] * DEPTH)
    for confidence in (np.random.default_rng(0).random(1000) / 3).tolist():
        relevance, found = relevance_and_sufficiency(equally_likely, confidence, never, never)
        assert relevance[0] == found[0] == confidence
        assert (np.diff(found) >= 0).all()
        np.testing.assert_allclose(found, confidence, atol=1e-15)


def test_inputs_by_hand() -> None:
    """The columns of `INPUTS` for the second and the third passage."""
    found = hazard_inputs(np.array([0.9, 0.5, 0.2]), 0.8)
    top, last, sure = (float(log_odds(p)) for p in (0.9, 0.2, 0.8))
    expected = [[0, -top, sure, np.log(2)], [last, last - top, sure, np.log(3)]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_an_equal_passage_adds_nothing_to_the_sufficiency() -> None:
    """It is right if the first of its kind is; the others are as they are without it."""
    maps = (made((1.0, 0.3, 0.2, -0.4), -1.0), made((0.5, 0.0, 0.0, 0.0), -2.0))
    texts, scores = ["a", "b", "a", "c", "b"], [0.8, 0.6, 0.6, 0.4, 0.3]
    ranking = make_ranking(texts=texts, titles=[""] * 5, score=scores)
    alone = make_ranking(texts=["a", "b", "c"], titles=[""] * 3, score=[0.8, 0.6, 0.4])
    relevance, sufficiency = relevance_and_sufficiency(ranking, 0.7, *maps)
    expected, found = relevance_and_sufficiency(alone, 0.7, *maps)
    assert relevance.tolist() == expected[[0, 1, 1, 2, 2]].tolist()
    assert sufficiency.tolist() == found[[0, 1, 1, 2, 2, 2, 2, 2, 2, 2]].tolist()
    check_family(0.7, relevance, sufficiency)


def test_the_hazards_are_fitted_without_equal_passages() -> None:
    """As if each list had its passages once."""
    rng = np.random.default_rng(5)
    twice, once, confidences = [], [], rng.uniform(0.1, 0.9, 200)
    for _ in range(200):
        scores = np.sort(rng.random(6))[::-1]
        right = [f"d{j}" for j in np.flatnonzero(rng.random(6) < 0.3)]
        texts = [f"text {j}" for j in range(6)]
        numbers = {"titles": [""] * 6, "score": scores.tolist()}
        once.append((make_ranking(texts=texts, **numbers), right))
        copied = {"titles": [""] * 7, "score": [*scores.tolist(), 0.0]}
        twice.append((make_ranking(texts=[*texts, texts[0]], **copied), [*right, "d6"]))
    assert fit_hazards(labelled(*twice), confidences) == fit_hazards(labelled(*once), confidences)


# --- the fit ----------------------------------------------------------------------------------


def test_the_hazards_approach_scikit_learns_logistic_regressions() -> None:
    """Over the second to the tenth passages: where none above is right, or one is."""
    rng = np.random.default_rng(0)
    pairs, confidences = [], rng.uniform(0.1, 0.9, 600)
    rows: dict[bool, list[tuple[list[float], bool]]] = {False: [], True: []}
    for i, n in enumerate(rng.integers(0, 14, 600).tolist()):
        score, right = np.sort(rng.random(n))[::-1], rng.random(n) < 0.3
        ranking = make_ranking(texts=["text"] * n, score=score.tolist())
        pairs.append((ranking, [f"d{j}" for j in np.flatnonzero(right)]))
        for k in range(1, min(n, DEPTH)):
            own = [log_odds(score[k]), log_odds(score[k]) - log_odds(score[0])]
            row = [*own, log_odds(confidences[i]), np.log(k + 1)]
            rows[bool(right[:k].any())].append((row, bool(right[k])))
    for found, seen in zip(fit_hazards(labelled(*pairs), confidences), rows.values(), strict=True):
        X, y = (np.array(column) for column in zip(*seen, strict=True))
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        oracle = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(Z, y)
        np.testing.assert_allclose(found.predict(X), oracle.predict_proba(Z)[:, 1], atol=0.05)


def test_rephrasings_tell_the_hazards_no_more_than_one_question() -> None:
    """The same queries five times, in groups: nearly the same maps; as independent ones: not."""
    rng = np.random.default_rng(7)
    pairs = []
    for _ in range(40):
        score = np.sort(rng.random(6))[::-1]
        right = np.flatnonzero(rng.random(6) < 0.3)
        pairs.append((scored(score.tolist()), [f"d{j}" for j in right]))
    once = labelled(*pairs)
    copies = labelled(*pairs * 5)
    grouped = replace(copies, groups=np.tile(once.groups, 5))
    top, X = np.full(200, 0.5), hazard_inputs(np.linspace(0.9, 0.1, 6), 0.5)
    of_one, of_groups, of_rows = (
        fit_hazards(rows, top[: len(rows)])[0].predict(X) for rows in (once, grouped, copies)
    )
    np.testing.assert_allclose(of_groups, of_one, atol=0.01)
    assert np.abs(of_rows - of_one).max() > 2 * np.abs(of_groups - of_one).max()


@pytest.mark.parametrize(
    "queries",
    [
        [],
        [((), [])] * 3,
        [((0.7,), ["d0"])] * 3,
        [((0.7, 0.2), ["d0"]), ((0.6, 0.3), [])] * 3,
        [((0.7, 0.2), ["d1"]), ((0.6, 0.3), ["d0", "d1"])] * 3,
    ],
    ids=["none", "empty", "alone", "none right below", "all right below"],
)
def test_labels_with_little_to_learn_from_still_fit(
    queries: list[tuple[tuple[float, ...], list[str]]],
) -> None:
    """Without a second passage, or where the second is never right, or always."""
    pairs = [(make_ranking(texts=["t"] * len(s), score=s), right) for s, right in queries]
    maps = fit_hazards(labelled(*pairs), np.full(len(queries), 0.5))
    check_family(0.5, *relevance_and_sufficiency(scored([0.7, 0.4, 0.1]), 0.5, *maps))


def test_labels_without_a_right_passage_below_the_first_leave_the_order_of_the_scores() -> None:
    """Another is seldom right then, and the sooner the better its score; no constant for all."""
    ranking = make_ranking(texts=["t"] * 10, score=np.linspace(0.9, 0.01, 10).tolist())
    _, hazard_after_hit = fit_hazards(labelled(*[(ranking, ["d0"])] * 30), np.full(30, 0.6))
    told = hazard_after_hit.predict(hazard_inputs(ranking.score, 0.6))
    assert (np.diff(told) < 0.002).all()
    assert told[-1] < told[0] / 2
    assert told.max() < 0.15


def one_right(rng: np.random.Generator, n: int, m: int) -> tuple[Floats, Floats]:
    """One passage or none is right; P by softmax over the passages and none of them."""
    utility = np.sort(rng.normal(0, 2, (n, m)))[:, ::-1]
    none = rng.normal(1, 1, (n, 1))
    p = softmax(np.hstack([utility, none]), axis=1)
    drawn = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1)
    return p[:, :m], (drawn[:, None] == np.arange(m)).astype(int)


def several_right(rng: np.random.Generator, n: int, m: int) -> tuple[Floats, Floats]:
    """Answerable queries have several right passages, each on its own; the others have none."""
    answerable = rng.uniform(0.3, 1, (n, 1))
    own = expit(np.sort(rng.normal(-2, 1.5, (n, m)))[:, ::-1])
    right = (rng.random((n, m)) < own) & (rng.random((n, 1)) < answerable)
    return answerable * own, right.astype(int)


@pytest.mark.parametrize("world", [one_right, several_right])
def test_relevance_is_calibrated_at_every_rank(world: type) -> None:
    """In worlds that are not of the model's form, fitted on some queries and measured on others.

    The scores know each passage alone, and are overconfident; the confidence is true. The bound is
    what smECE (relplot's) shows of the true probabilities by chance, and .015 for the model's form.
    """
    rng = np.random.default_rng(3)
    truth, right = world(rng, 6000, 12)
    scores = expit(1.5 * log_odds(truth))
    rankings = [make_ranking(texts=["t"] * 12, score=s.tolist()) for s in scores]
    pairs = [
        (r, [f"d{j}" for j in np.flatnonzero(y)]) for r, y in zip(rankings, right, strict=True)
    ]
    maps = fit_hazards(labelled(*pairs[:3000]), truth[:3000, 0])
    told = [
        relevance_and_sufficiency(r, c, *maps)
        for r, c in zip(rankings[3000:], truth[3000:, 0].tolist(), strict=True)
    ]
    relevance, sufficiency = (np.array(rows) for rows in zip(*told, strict=True))
    truth, right = truth[3000:], right[3000:]
    found = np.maximum.accumulate(right, axis=1)
    for k in range(1, DEPTH):
        chance = smECE(truth[:, k], right[:, k])
        assert smECE(relevance[:, k], right[:, k]) < chance + 0.015
        assert relevance[:, k].mean() == pytest.approx(truth[:, k].mean(), abs=0.01)
        assert sufficiency[:, k].mean() == pytest.approx(found[:, k].mean(), abs=0.03)
