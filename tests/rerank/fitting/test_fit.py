"""Fitting and measuring on real rankings: oracles, cross-fitting, odd labels, empty rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hand_made import make_scored
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from calibration.drift import sketch
from calibration.maps import IsotonicMap
from calibration.selection import grouped_folds
from calibration.thresholds import Certificate, certify
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.predictions import Predictions, predict
from rerank.assessment.ranking import read
from rerank.config import Config, Thresholds
from rerank.data.labels import Labelled, hits
from rerank.fitting import certificates, passage_maps
from rerank.fitting import fit as fitting
from rerank.fitting.fit import Fitted, fit, rows_to_fit, sketch_with_passages
from rerank.fitting.passage_maps import CUTOFFS, choose_cutoff, fit_rankings, read_labelled
from rerank.fitting.scored_plan import ScoredPlan
from rerank.types import Floats, Ranking, Scored


@pytest.fixture(scope="module")
def with_empty(to_fit: Labelled[Scored]) -> Labelled[Scored]:
    """What the run was fitted on, and a query that brought back nothing."""
    return Labelled(
        [*to_fit.items, make_scored()], np.append(to_fit.groups, "none"), [*to_fit.grades, {}]
    )


def predicted(fitted: Fitted, scored: Labelled[Scored], config: Config) -> Predictions:
    return predict(scored.items, fitted.maps, config)


def test_the_alarm_compares_only_queries_for_which_passages_were_found(
    searched: ScoredPlan, with_empty: Labelled[Scored], config: Config
) -> None:
    """A query that brought back nothing has no features: it is in no window, nor in the sketch."""
    fitted = fit(replace(searched, to_fit=with_empty), config)
    assert fitted.has_passages.tolist() == [True] * (len(with_empty) - 1) + [False]
    found = np.flatnonzero(~fitted.copies & fitted.has_passages)
    names = list(fitted.maps.features.ranking)
    expected = sketch(fitted.features[found], names, fitted.groups[found])
    assert fitted.sketch.to_dict() == expected.to_dict()
    few = sketch_with_passages(fitted.features, names, fitted.groups, ~fitted.has_passages)
    assert few.to_dict() == sketch(fitted.features, names, fitted.groups).to_dict()


def test_the_cutoff_is_the_highest_that_keeps_the_order_as_good(
    to_fit: Labelled[Scored], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free of cost, it is the highest tried; where any above one costs the features, that."""

    def costs_above(most: float, scored: Scored, cutoff: float) -> Scored:
        if cutoff <= most:
            return scored
        blind = replace(scored.candidates, features=0 * scored.candidates.features)
        return replace(scored, candidates=blind, logits=0 * scored.logits)

    for most in (max(CUTOFFS), CUTOFFS[3], 0.0):
        monkeypatch.setattr(passage_maps, "limit_scored", partial(costs_above, most))
        assert choose_cutoff(to_fit, config) == most
    monkeypatch.setattr(passage_maps, "limit_scored", lambda scored, cutoff: scored)
    assert choose_cutoff(replace(to_fit, grades=[{}] * len(to_fit)), config) == 0.0


def test_the_score_is_scikit_learns_logistic_regression(to_fit: Labelled[Scored]) -> None:
    """The passage map is LogisticRegression on standardised features of every candidate."""
    X = np.concatenate([read(s).features for s in to_fit.items])
    pairs = zip(to_fit.items, to_fit.grades, strict=True)
    y = [p.doc_id in grades for s, grades in pairs for p in s.candidates.passages]
    scaler = StandardScaler().fit(X)
    oracle = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10).fit(
        scaler.transform(X), y
    )
    expected = oracle.predict_proba(scaler.transform(X))[:, 1]
    np.testing.assert_allclose(
        fit_rankings(read_labelled(to_fit, 0.0), Config())[0].predict(X), expected, atol=1e-9
    )


class Captured(Exception):  # noqa: N818 - not an error
    """Ends a fit as soon as its rankings are ordered."""


def ordered_for_features(
    monkeypatch: pytest.MonkeyPatch, rankings: ScoredPlan, config: Config
) -> list[Ranking]:
    """The rankings from which `fit` would compute its features."""
    seen: list[Ranking] = []

    def recording(ordered: Sequence[Ranking], _: object) -> Floats:
        seen.extend(ordered)
        raise Captured

    monkeypatch.setattr(fitting, "ranking_features", recording)
    with pytest.raises(Captured):
        fit(rankings, config)
    return seen


def test_features_come_from_a_map_that_never_saw_the_group(
    searched: ScoredPlan, monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    """Other labels for a group leave that group's own features as they were, and move others'."""
    to_fit = searched.to_fit

    def doc_ids(i: int) -> list[str]:
        return [p.doc_id for p in to_fit.items[i].candidates.passages]

    victim = next(i for i, grades in enumerate(to_fit.grades) if set(grades) & set(doc_ids(i)))
    group = to_fit.groups[victim]
    wrong: list[Any] = [
        {doc_ids(i)[-1]: 1.0} if to_fit.groups[i] == group else grades
        for i, grades in enumerate(to_fit.grades)
    ]
    before = ordered_for_features(monkeypatch, searched, config)
    mislabelled = replace(searched, to_fit=replace(to_fit, grades=wrong))
    after = ordered_for_features(monkeypatch, mislabelled, config)
    moved = [not np.array_equal(a.score, b.score) for a, b in zip(before, after, strict=True)]
    folds = grouped_folds(to_fit.groups, config.folds, random_state=config.seed)
    assert moved == (folds != folds[victim]).tolist()


def test_the_same_seed_gives_the_same_numbers(
    fitted: Fitted, searched: ScoredPlan, config: Config
) -> None:
    """Fitting twice gives the same maps to the last bit."""
    again = fit(searched, config, to_keep=True)
    assert again == fitted


def test_the_order_of_queries_does_not_matter(
    fitted: Fitted,
    searched: ScoredPlan,
    to_fit: Labelled[Scored],
    to_report: Labelled[Scored],
    config: Config,
) -> None:
    """Fitted on the same candidates in another order, confidences agree to solver precision."""
    turned = Labelled(to_fit.items[::-1], to_fit.groups[::-1], to_fit.grades[::-1])
    other = fit(replace(searched, to_fit=turned), config)
    ours, theirs = (predicted(f, to_report, config) for f in (fitted, other))
    np.testing.assert_allclose(ours.confidence, theirs.confidence, atol=1e-3)
    np.testing.assert_allclose(ours.sufficiency, theirs.sufficiency, atol=1e-3)


def test_sufficiency_is_never_below_confidence(
    fitted: Fitted, to_fit: Labelled[Scored], to_report: Labelled[Scored], config: Config
) -> None:
    """P(right among the first k) >= P(the first is right), and both are probabilities."""
    for scored in (to_fit, to_report):
        found = predicted(fitted, scored, config)
        assert (found.sufficiency[:, 0] == found.confidence).all()
        assert (np.diff(found.sufficiency, axis=1) >= 0).all()
        assert (found.confidence >= 0).all()
        assert (found.sufficiency <= 1).all()


def test_mean_confidence_is_the_share_of_right_ones(
    fitted: Fitted, to_fit: Labelled[Scored], config: Config
) -> None:
    """On the fitted queries the mean confidence is the share of right top passages, roughly."""
    found = predicted(fitted, to_fit, config)
    right = hits(replace(to_fit, items=found.rankings))[:, 0]
    assert found.confidence.mean() == pytest.approx(right.mean(), abs=0.1)


@pytest.mark.parametrize("every_query", ["right", "wrong"])
def test_labels_of_one_class_still_fit(
    searched: ScoredPlan, to_fit: Labelled[Scored], config: Config, every_query: str
) -> None:
    """Where every query is right, or none, confidences are finite and on the right side."""
    right = every_query == "right"
    grades = [{p.doc_id: 1.0 for p in s.candidates.passages if right} for s in to_fit.items]
    labelled = replace(to_fit, grades=grades)
    found = fit(replace(searched, to_fit=labelled), config)
    values = predicted(found, labelled, config)
    for p in (values.confidence, values.sufficiency):
        assert ((p > 0.5) if right else (p < 0.5)).all()
    if not right:
        assert found.maps.certificate.threshold is None


def test_a_query_without_passages_has_no_confidence(
    searched: ScoredPlan, with_empty: Labelled[Scored], config: Config
) -> None:
    """It does not break fitting, and its features, all 0, widen no range of the map."""
    fitted = fit(replace(searched, to_fit=with_empty), config)
    found = predicted(fitted, with_empty, config)
    for p in (found.confidence, found.sufficiency):
        assert ((p >= 0) & (p <= 1)).all()
    assert found.confidence[-1] == 0
    lowest = fitted.features[fitted.has_passages].min(axis=0)
    np.testing.assert_allclose(fitted.maps.confidence.first.low, lowest)
    assert (lowest > 0).any()
    assert fitted.maps.certificate.queries == len(with_empty)


def test_only_what_is_accepted_is_certified(
    searched: ScoredPlan, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both certificates begin at their targets, whatever else the labels would certify."""
    floors = []

    def spied(y: Any, p: Any, **options: Any) -> Certificate:
        floors.append((options["target"], options["floor"]))
        return certify(y, p, **options)

    monkeypatch.setattr("rerank.fitting.fit.certify", spied)
    monkeypatch.setattr("rerank.fitting.certificates.certify", spied)
    targets = Thresholds(medium=0.6, low=0.5, sufficient=0.65)
    fit(searched, replace(config, thresholds=targets), to_keep=True)
    assert floors == [(0.6, 0.6), (0.65, 0.65)]


def test_where_all_that_is_found_is_right_the_empty_ones_teach() -> None:
    """Else there would be nothing to tell right from wrong by, or only one group."""
    has_passages, groups = np.array([True, True, False]), np.array(["a", "b", "c"])
    assert rows_to_fit(np.array([1, 1, 0]), has_passages, groups).all()
    np.testing.assert_array_equal(
        rows_to_fit(np.array([1, 0, 0]), has_passages, groups), has_passages
    )
    assert rows_to_fit(np.array([1, 0, 0]), has_passages, np.array(["a", "a", "c"])).all()


def test_the_named_calibrator_is_taken(
    fitted: Fitted, searched: ScoredPlan, config: Config
) -> None:
    """`calibrator` overrules the choice; `auto` takes no isotonic map below a thousand queries."""
    assert fitted.calibrator == "logistic"
    assert "isotonic not considered" in fitted.reason
    named = fit(searched, replace(config, calibrator="isotonic"))
    assert named.calibrator == "isotonic"
    assert named.reason.startswith("As asked for. It may be too sure at both ends: it takes 1,000")
    assert "independent labels, and by which of them are right these are worth" in named.reason
    assert isinstance(named.maps.confidence.second, IsotonicMap)


def test_segments_of_the_queries_get_corrections_of_their_own(
    fitted: Fitted, searched: ScoredPlan, to_fit: Labelled[Scored], config: Config
) -> None:
    """What the metadata says under `segment_by` moves a confidence up or down, and sorts none anew.

    In a segment of the right ones the confidence is higher on average, in one of the wrong ones
    lower; a segment of which nothing is known is as the map for all has it.
    """
    before = predicted(fitted, to_fit, config)
    right = hits(replace(to_fit, items=before.rankings))[:, 0].tolist()
    segmented = replace(config, segment_by="source")
    names = ["easy" if y else "hard" for y in right]
    found = fit(replace(searched, to_fit=_of_segments(to_fit, names)), segmented)
    assert set(found.maps.segments.updates) == {"easy", "hard"}
    for segment, sign in (("easy", 1), ("hard", -1), ("new", 0)):
        alike = _of_segments(to_fit, [segment] * len(to_fit))
        after = predict(alike.items, found.maps, segmented)
        assert [r.doc_ids for r in after.rankings] == [r.doc_ids for r in before.rankings]
        moved = np.round(after.confidence - before.confidence, 12)
        assert np.sign(moved.mean()) == sign
        assert sign or not moved.any()


def _of_segments(scored: Labelled[Scored], names: Sequence[str]) -> Labelled[Scored]:
    def named(one: Scored, name: str) -> Scored:
        query = replace(one.query, metadata={"source": name})
        return replace(one, candidates=replace(one.candidates, query=query))

    return replace(scored, items=[named(s, n) for s, n in zip(scored.items, names, strict=True)])


def test_the_context_is_certified_on_sufficiency_that_has_not_seen_its_query(
    searched: ScoredPlan,
    to_fit: Labelled[Scored],
    fitted: Fitted,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each fold's hazard is fitted on the others; the promise is of the first passages."""
    asked: list[set[str]] = []
    original = certificates.fit_hazards

    def watched(labelled: Labelled[Ranking], confidences: Floats, *reference: Any) -> Any:
        asked.append(set(labelled.groups.tolist()))
        return original(labelled, confidences, *reference)

    monkeypatch.setattr(certificates, "fit_hazards", watched)
    found = fit(searched, config, to_keep=True)
    everyone = set(to_fit.groups.tolist())
    assert len(asked) == config.folds
    assert set().union(*(everyone - groups for groups in asked)) == everyone
    context = found.maps.context_certificate
    assert context == fitted.maps.context_certificate
    assert context is not None
    assert context.event == f"have an answer among the first {config.sufficiency_k} passages"
    assert FittedMaps.from_dict(found.maps.to_dict()).context_certificate == context


def test_only_a_model_to_keep_promises_something_of_the_context(
    fitted: Fitted, searched: ScoredPlan, config: Config
) -> None:
    """A fold measures with the same maps, and makes none of the promises that nobody reads."""
    maps = fit(searched, config).maps
    assert maps == replace(fitted.maps, context_certificate=None, stopping_threshold=None)


def test_a_promise_is_about_what_was_asked_for(
    to_fit: Labelled[Scored], searched: ScoredPlan, config: Config
) -> None:
    """Two questions a group and no `metadata.group`: by questions, by groups, or one of each."""
    items = [
        replace(s, candidates=replace(s.candidates, query=replace(s.query, metadata={})))
        for s in to_fit.items
    ]
    pairs = np.array([f"group {i // 2}" for i in range(len(items))])
    plan = replace(searched, to_fit=replace(to_fit, items=items, groups=pairs))
    found = {
        promise: fit(plan, replace(config, promise=promise), to_keep=True).maps
        for promise in ("questions", "documents", "both")
    }
    groups = len(set(pairs.tolist()))
    assert found["questions"].certificate.groups != groups
    assert found["documents"].certificate.groups == groups
    assert found["both"].certificate == found["questions"].certificate
    assert found["both"].documents_certificate == found["documents"].certificate
    assert found["questions"].documents_certificate is None
