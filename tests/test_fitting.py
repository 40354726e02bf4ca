"""Fitting and measuring on real rankings: oracles, cross-fitting, odd labels, empty rankings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from calibration.maps import IsotonicMap, LogisticMap
from calibration.selection import grouped_folds
from rerank.config import Config
from rerank.features import feature_matrix
from rerank.fitting import fit as fitting
from rerank.fitting.fit import FLOORS, Fitted, choose_floor, fit, fit_relevance
from rerank.pipeline import Reading, order
from rerank.sets.grouping import grouped
from rerank.sets.labelled_set import LabelledSet
from rerank.sets.labels import hits
from rerank.sufficiency import INPUTS, sufficiencies
from rerank.types import Floats, Ranking


def confidences(fitted: Fitted, rankings: Sequence[Ranking]) -> tuple[Floats, Floats]:
    """Confidence (n,), and sufficiency at each k (n, 10)."""
    learned = fitted.calibrators
    ordered = [order(r, learned.relevance) for r in rankings]
    confidence = learned.confidence.predict(feature_matrix(ordered))
    return confidence, learned.sufficiencies(ordered, confidence)


def test_the_floor_is_the_highest_that_keeps_the_order_as_good(
    to_fit: list[Ranking], small: LabelledSet, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free of cost, it is the highest tried; where any above one costs the evidence, that."""

    def costs_above(most: float, ranking: Ranking, floor: float) -> Ranking:
        return replace(ranking, evidence=0 * ranking.evidence) if floor > most else ranking

    for most in (max(FLOORS), FLOORS[3], 0.0):
        monkeypatch.setattr(fitting, "forget", partial(costs_above, most))
        assert choose_floor(to_fit, small, config) == most
    monkeypatch.setattr(fitting, "forget", lambda ranking, floor: ranking)
    assert choose_floor(to_fit, replace(small, qrels={}), config) == 0.0


def test_relevance_is_scikit_learns_logistic_regression(
    to_fit: list[Ranking], small: LabelledSet
) -> None:
    """The passage map is LogisticRegression on standardised evidence of every candidate."""
    X = np.concatenate([r.evidence for r in to_fit])
    y = [d in small.relevant(r.query.query_id) for r in to_fit for d in r.doc_ids]
    scaler = StandardScaler().fit(X)
    oracle = LogisticRegression(C=1.0, tol=1e-6, max_iter=1000).fit(scaler.transform(X), y)
    expected = oracle.predict_proba(scaler.transform(X))[:, 1]
    np.testing.assert_allclose(fit_relevance(to_fit, small).predict(X), expected, atol=1e-9)


class Captured(Exception):  # noqa: N818 - not an error
    """Ends a fit as soon as its rankings are ordered."""


def ordered_for_features(
    monkeypatch: pytest.MonkeyPatch,
    rankings: Sequence[Ranking],
    labelled: LabelledSet,
    reading: Reading,
    config: Config,
) -> list[Ranking]:
    """The ordered rankings from which `fit` would compute its features."""
    seen: list[Ranking] = []

    def recording(ordered: Sequence[Ranking]) -> Floats:
        seen.extend(ordered)
        raise Captured

    monkeypatch.setattr(fitting, "feature_matrix", recording)
    with pytest.raises(Captured):
        fit(rankings, labelled, reading, config)
    return seen


def test_features_come_from_a_map_that_never_saw_the_group(
    monkeypatch: pytest.MonkeyPatch,
    to_fit: list[Ranking],
    small: LabelledSet,
    reading: Reading,
    config: Config,
) -> None:
    """Other labels for a group leave that group's own features as they were, and move others'."""
    by_id = {r.query.query_id: r for r in to_fit}
    victim = next(i for i in by_id if small.relevant(i) & set(by_id[i].doc_ids))
    group = small.group(victim)
    wrong = {
        i: {by_id[i].doc_ids[-1]: 1.0} if small.group(i) == group else dict(small.qrels.get(i, {}))
        for i in by_id
    }
    changed = replace(small, qrels={i: right for i, right in wrong.items() if right})
    before = ordered_for_features(monkeypatch, to_fit, small, reading, config)
    after = ordered_for_features(monkeypatch, to_fit, changed, reading, config)
    moved = {
        a.query.query_id
        for a, b in zip(before, after, strict=True)
        if not np.array_equal(a.relevance, b.relevance)
    }
    folds = grouped_folds([small.group(i) for i in by_id], config.folds, random_state=config.seed)
    fold_of = dict(zip(by_id, folds.tolist(), strict=True))
    assert moved == {i for i in by_id if fold_of[i] != fold_of[victim]}


def test_the_same_seed_gives_the_same_numbers(
    fitted: Fitted, to_fit: list[Ranking], small: LabelledSet, reading: Reading, config: Config
) -> None:
    """Fitting twice gives the same maps to the last bit."""
    labelled = grouped(small, [r.query.query_id for r in to_fit])
    assert fit(to_fit, labelled, reading, config) == fitted


def test_the_order_of_queries_does_not_matter(
    fitted: Fitted,
    to_fit: list[Ranking],
    to_report: list[Ranking],
    small: LabelledSet,
    reading: Reading,
    config: Config,
) -> None:
    """Fitted on the same rankings in another order, confidences agree to solver precision."""
    other = fit(to_fit[::-1], small, reading, config)
    for ours, theirs in zip(
        confidences(fitted, to_report), confidences(other, to_report), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_sufficiency_is_never_below_confidence(
    fitted: Fitted, to_fit: list[Ranking], to_report: list[Ranking]
) -> None:
    """P(right among the first k) >= P(the first is right), and both are probabilities."""
    for rankings in (to_fit, to_report):
        confidence, sufficiency = confidences(fitted, rankings)
        assert (sufficiency[:, 0] == confidence).all()
        assert (np.diff(sufficiency, axis=1) >= 0).all()
        assert (confidence >= 0).all()
        assert (sufficiency <= 1).all()


def test_a_hazard_of_almost_nothing_rounds_nothing_down(by_hand: Callable[..., Ranking]) -> None:
    """Where no later passage can be right, sufficiency is the confidence, and no bit less."""
    ranking = by_hand(texts=["a passage"] * 10)
    never = LogisticMap((0.0,) * len(INPUTS), -60.0, (0.0,) * len(INPUTS), (1.0,) * len(INPUTS))
    for confidence in (np.random.default_rng(0).random(1000) / 3).tolist():
        found = sufficiencies(ranking, confidence, never)
        assert found[0] == confidence
        assert (np.diff(found) >= 0).all()
        np.testing.assert_allclose(found, confidence, atol=1e-15)


def test_mean_confidence_is_the_share_of_right_ones(
    fitted: Fitted, to_fit: list[Ranking], small: LabelledSet
) -> None:
    """On the fitted queries the mean confidence is the share of right top passages, roughly."""
    ordered = [order(r, fitted.calibrators.relevance) for r in to_fit]
    confidence, _ = confidences(fitted, to_fit)
    assert confidence.mean() == pytest.approx(hits(ordered, small).mean(), abs=0.1)


@pytest.mark.parametrize("every_query", ["right", "wrong"])
def test_labels_of_one_class_still_fit(
    to_fit: list[Ranking],
    small: LabelledSet,
    reading: Reading,
    config: Config,
    every_query: str,
) -> None:
    """Where every query is right, or none, confidences are finite and on the right side."""
    right = {
        r.query.query_id: dict.fromkeys(r.doc_ids, 1.0) for r in to_fit if every_query == "right"
    }
    found = fit(to_fit, replace(small, qrels=right), reading, config)
    for values in confidences(found, to_fit):
        assert ((values > 0.5) if right else (values < 0.5)).all()
    if not right:
        assert found.calibrators.certificate.threshold is None


def test_a_query_without_passages_is_fitted_on(
    to_fit: list[Ranking],
    to_report: list[Ranking],
    empty: Ranking,
    asked: LabelledSet,
    reading: Reading,
    config: Config,
) -> None:
    """A ranking with nothing in it does not break fitting; its confidence is a probability."""
    found = fit([*to_fit, empty], asked, reading, config)
    for values in confidences(found, [*to_report, empty]):
        assert ((values >= 0) & (values <= 1)).all()


def test_the_named_calibrator_is_taken(
    fitted: Fitted, to_fit: list[Ranking], small: LabelledSet, reading: Reading, config: Config
) -> None:
    """`calibrator` overrules the choice; `auto` takes no isotonic map below a thousand queries."""
    assert fitted.taken == "logistic"
    assert "isotonic not considered" in fitted.reason
    named = fit(to_fit, small, reading, replace(config, calibrator="isotonic"))
    assert (named.taken, named.reason) == ("isotonic", "As asked for.")
    assert isinstance(named.calibrators.confidence.then, IsotonicMap)


def test_kinds_of_query_get_corrections_of_their_own(
    fitted: Fitted, to_fit: list[Ranking], small: LabelledSet, reading: Reading, config: Config
) -> None:
    """What the metadata says under `correct_by` moves a confidence up or down, and sorts none anew.

    The right ones, taken for a kind, are surer than before; a kind of which nothing is known is as
    the map for all has it.
    """
    ordered = [order(r, fitted.calibrators.relevance) for r in to_fit]
    right = hits(ordered, small).astype(bool)
    found = fit(
        [_of_kind(r, "easy" if y else "hard") for r, y in zip(to_fit, right, strict=True)],
        small,
        reading,
        replace(config, correct_by="source"),
    )
    assert set(found.calibrators.kinds.updates) == {"easy", "hard"}
    features = feature_matrix(ordered)
    before = fitted.calibrators.confidences(ordered, features)
    for kind, sign in (("easy", 1), ("hard", -1), ("new", 0)):
        alike = [_of_kind(r, kind) for r in ordered]
        after = found.calibrators.confidences(alike, features, correct_by="source")
        assert np.sign(np.round(after - before, 12)).tolist() == [sign] * len(before)


def _of_kind(ranking: Ranking, kind: str) -> Ranking:
    query = replace(ranking.query, metadata={"source": kind})
    return replace(ranking, candidates=replace(ranking.candidates, query=query))
