"""The training job on real text: what it fits, writes, tracks, reuses and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from calibration.maps import IsotonicMap, LogisticMap
from calibration.selection import grouped_folds
from calibration.store import StoreError, verify_folder
from rerank import fitting
from rerank.assessor import Calibrators
from rerank.calibrate import calibrate
from rerank.config import Config
from rerank.evaluate import evaluate_model
from rerank.features import FEATURES, feature_matrix
from rerank.fitting import Evaluation, Fitted, evaluate, fit, fit_relevance, hits
from rerank.heuristics import HEURISTICS
from rerank.labelled_set import LabelledSet
from rerank.pipeline import Pipeline, order
from rerank.plan import LEAST_QUERIES
from rerank.types import Floats, InputError, Ranking

Run = Any  # the session's run, see conftest
Rankings = Mapping[str, Ranking]
Relabel = Callable[[LabelledSet, Callable[[str], str]], LabelledSet]


@pytest.fixture(scope="module")
def to_fit(run: Run, rankings: Rankings) -> list[Ranking]:
    return [rankings[i] for i in run.plan.fit]


@pytest.fixture(scope="module")
def to_report(run: Run, rankings: Rankings) -> list[Ranking]:
    return [rankings[i] for i in run.plan.report]


@pytest.fixture(scope="module")
def fitted(to_fit: list[Ranking], small: LabelledSet, prior: LogisticMap, config: Config) -> Fitted:
    return fit(to_fit, small, prior, config)


def confidences(fitted: Fitted, rankings: Sequence[Ranking]) -> tuple[Floats, Floats]:
    ordered = [order(r, fitted.calibrators.relevance) for r in rankings]
    return fitted.calibrators.probabilities(feature_matrix(ordered))


# --- fitting ----------------------------------------------------------------------------------


def test_reported_queries_are_read_in_the_order_of_the_prior(
    pipeline: Pipeline, to_report: list[Ranking], prior: LogisticMap
) -> None:
    """The prior of the model folder orders the candidates; what it puts first was read."""
    unread = pipeline.find([r.query for r in to_report])
    assert [r.doc_ids for r in to_report] == [order(r, prior).doc_ids for r in unread]
    assert [r.doc_ids for r in to_report] != [r.doc_ids for r in unread]
    assert all(r.read[:2].all() and not r.read[2:].any() for r in to_report)


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


def test_hits_by_hand(small: LabelledSet, by_hand: Callable[..., Ranking]) -> None:
    """A query is right at k when one of its first k passages is judged right."""
    made = by_hand(texts=["a", "b", "c"])  # ids d0, d1, d2
    labelled = replace(small, qrels={"q": {"d1": 1.0, "elsewhere": 1.0}})
    assert [int(hits([made], labelled, k=k)[0]) for k in (1, 2, 3)] == [0, 1, 1]
    assert hits([made], replace(small, qrels={}), k=3).tolist() == [0]
    assert hits([by_hand()], labelled, k=3).tolist() == [0]


class Captured(Exception):  # noqa: N818 - not an error
    """Ends a fit as soon as its rankings are ordered."""


def ordered_for_features(
    monkeypatch: pytest.MonkeyPatch,
    rankings: Sequence[Ranking],
    labelled: LabelledSet,
    prior: LogisticMap,
    config: Config,
) -> list[Ranking]:
    """The ordered rankings from which `fit` would compute its features."""
    seen: list[Ranking] = []

    def recording(ordered: Sequence[Ranking]) -> Floats:
        seen.extend(ordered)
        raise Captured

    monkeypatch.setattr(fitting, "feature_matrix", recording)
    with pytest.raises(Captured):
        fit(rankings, labelled, prior, config)
    return seen


def test_features_come_from_a_map_that_never_saw_the_group(
    monkeypatch: pytest.MonkeyPatch,
    to_fit: list[Ranking],
    small: LabelledSet,
    prior: LogisticMap,
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
    before = ordered_for_features(monkeypatch, to_fit, small, prior, config)
    after = ordered_for_features(monkeypatch, to_fit, changed, prior, config)
    moved = {
        a.query.query_id
        for a, b in zip(before, after, strict=True)
        if not np.array_equal(a.relevance, b.relevance)
    }
    folds = grouped_folds([small.group(i) for i in by_id], config.folds, random_state=config.seed)
    fold_of = dict(zip(by_id, folds.tolist(), strict=True))
    assert moved == {i for i in by_id if fold_of[i] != fold_of[victim]}


def test_the_same_seed_gives_the_same_numbers(
    fitted: Fitted, to_fit: list[Ranking], small: LabelledSet, prior: LogisticMap, config: Config
) -> None:
    """Fitting twice gives the same maps to the last bit."""
    again = fit(to_fit, small, prior, config)
    assert again.calibrators == fitted.calibrators
    assert again.ways == fitted.ways
    assert again.taken == fitted.taken


def test_the_order_of_queries_does_not_matter(
    fitted: Fitted,
    to_fit: list[Ranking],
    to_report: list[Ranking],
    small: LabelledSet,
    prior: LogisticMap,
    config: Config,
) -> None:
    """Fitted on the same rankings in another order, confidences agree to solver precision."""
    other = fit(to_fit[::-1], small, prior, config)
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
        assert (sufficiency >= confidence).all()
        assert (confidence >= 0).all()
        assert (sufficiency <= 1).all()


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
    prior: LogisticMap,
    config: Config,
    every_query: str,
) -> None:
    """Where every query is right, or none, confidences are finite and on the right side."""
    right = {
        r.query.query_id: dict.fromkeys(r.doc_ids, 1.0) for r in to_fit if every_query == "right"
    }
    found = fit(to_fit, replace(small, qrels=right), prior, config)
    for values in confidences(found, to_fit):
        assert ((values > 0.5) if right else (values < 0.5)).all()


@pytest.fixture(scope="module")
def empty(by_hand: Callable[..., Ranking]) -> Ranking:
    """A query that brought back nothing."""
    return by_hand()


@pytest.fixture(scope="module")
def asked(small: LabelledSet, empty: Ranking) -> LabelledSet:
    """The small set with the query of the empty ranking."""
    return replace(small, queries={**small.queries, empty.query.query_id: empty.query})


@pytest.fixture(scope="module")
def evaluation(
    fitted: Fitted, to_report: list[Ranking], empty: Ranking, asked: LabelledSet, config: Config
) -> Evaluation:
    """The reported queries, and one that brought back nothing, measured every way."""
    return evaluate([*to_report, empty], asked, fitted.calibrators, fitted.ways, config)


def test_a_query_without_passages_is_fitted_on(
    to_fit: list[Ranking],
    to_report: list[Ranking],
    empty: Ranking,
    asked: LabelledSet,
    prior: LogisticMap,
    config: Config,
) -> None:
    """A ranking with nothing in it does not break fitting; its confidence is a probability."""
    found = fit([*to_fit, empty], asked, prior, config)
    for values in confidences(found, [*to_report, empty]):
        assert ((values >= 0) & (values <= 1)).all()


def test_a_query_without_passages_has_no_confidence(evaluation: Evaluation) -> None:
    """Every way gives 0 where nothing was found, and it counts as wrong."""
    assert {name: values[-1] for name, values in evaluation.confidences.items()} == dict.fromkeys(
        evaluation.confidences, 0.0
    )
    assert evaluation.right[-1] == 0


def test_the_named_calibrator_is_taken(
    fitted: Fitted, to_fit: list[Ranking], small: LabelledSet, prior: LogisticMap, config: Config
) -> None:
    """`calibrator` overrules the choice; `auto` takes no isotonic map below a thousand queries."""
    assert fitted.taken == "logistic"
    assert "isotonic not considered" in fitted.choice.reason
    named = fit(to_fit, small, prior, replace(config, calibrator="isotonic"))
    assert named.taken == "isotonic"
    assert isinstance(named.calibrators.confidence.then, IsotonicMap)


def test_evaluation_measures_every_way_on_the_same_queries(
    evaluation: Evaluation, fitted: Fitted, to_report: list[Ranking], small: LabelledSet
) -> None:
    """The table has a row for each formula, the sigmoid, and both of ours; all on n queries."""
    assert set(evaluation.confidences) == {*HEURISTICS, "ours, logistic", "ours, isotonic"}
    assert {row.n for _, row in evaluation.table.rows} == {len(to_report) + 1}
    assert set(evaluation.orders) == {"fused", "logit", "relevance"}
    ordered = [order(r, fitted.calibrators.relevance) for r in to_report]
    assert evaluation.right[:-1].tolist() == hits(ordered, small).tolist()


def test_unanswerable_queries_are_measured_and_never_right(
    evaluation: Evaluation, to_report: list[Ranking], small: LabelledSet
) -> None:
    """They stand in the measurement, and no top passage of theirs is right."""
    none = np.array([not small.relevant(r.query.query_id) for r in to_report])
    assert none.sum() >= 5
    assert not evaluation.right[:-1][none].any()
    assert evaluation.right.any()


# --- the folder -------------------------------------------------------------------------------


def test_an_interrupted_run_leaves_no_model_folder(run: Run) -> None:
    """Stopped in the middle of scoring, nothing stands where the model would be."""
    assert run.interrupted.left_behind == ()


def test_the_second_run_scores_only_what_is_missing(run: Run, config: Config) -> None:
    """The chunk that was scored before the interruption is not scored again."""
    every = (len(run.plan.fit) + len(run.plan.report)) * config.rerank_depth
    assert 0 < run.interrupted.pairs_first < every
    assert run.interrupted.pairs_second == every - run.interrupted.pairs_first


def test_the_folder_is_whole_and_holds_data_only(run: Run, small: LabelledSet) -> None:
    """Every file has its hash in the manifest; there is no code and no pickle."""
    manifest = verify_folder(run.folder)
    files = set(manifest["files"])
    assert {"calibrators.json", "reliability.json", "reliability.png", "risk_coverage.png"} < files
    assert {Path(name).suffix for name in files} <= {".json", ".jsonl", ".npy", ".npz"} | {
        ".png",
        ".txt",
    }
    assert manifest["dataset"]["digest"] == small.digest()
    assert manifest["queries"]["fit"] == len(run.plan.fit)
    assert manifest["queries"]["report"] == len(run.plan.report)
    assert set(manifest["fingerprints"]) >= {"encoder", "reranker", "max_length"}


def test_the_configuration_is_kept_whole(run: Run, config: Config) -> None:
    """The manifest's configuration reads back as the one that was given."""
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert Config.from_dict(manifest["config"]) == config


def test_the_folder_holds_the_maps_that_fitting_gives(run: Run, fitted: Fitted) -> None:
    """`calibrators.json` is what fitting the same rankings again gives, to the last bit."""
    kept = json.loads((run.folder / "calibrators.json").read_text())
    assert Calibrators.from_dict(kept) == fitted.calibrators


def test_the_report_tells_what_was_measured(run: Run, small: LabelledSet) -> None:
    """The text names both counts and has a row for every way of being confident."""
    text = run.outcome.report
    assert f"fitted on {len(run.plan.fit)} queries" in text
    for way in (*HEURISTICS, "ours, logistic", "ours, isotonic"):
        assert way in text
    assert (run.folder / "report.txt").read_text() == text


def test_maps_loaded_without_scikit_learn_predict_as_scikit_learn(
    run: Run, to_report: list[Ranking], run_python: Callable[..., str], tmp_path: Path
) -> None:
    """The folder's maps, read where sklearn is blocked, equal sklearn's predictions to 1e-12."""
    kept = json.loads((run.folder / "calibrators.json").read_text())
    learned = Calibrators.from_dict(kept)
    ordered = [order(r, learned.relevance) for r in to_report]
    features, evidence = feature_matrix(ordered), np.concatenate([r.evidence for r in to_report])
    np.savez(tmp_path / "in.npz", features=features, evidence=evidence)
    code = f"""
import json
import numpy as np
from rerank.assessor import Calibrators
with open({str(run.folder / "calibrators.json")!r}) as file:
    c = Calibrators.from_dict(json.load(file))
given = np.load({str(tmp_path / "in.npz")!r})
print(json.dumps([c.relevance.predict(given["evidence"]).tolist(),
                  c.confidence.predict(given["features"]).tolist()]))
"""
    blocked = ("sklearn", "mlflow", "pandas", "matplotlib", "torch")
    relevance, confidence = json.loads(run_python(code, blocked=blocked))
    expected = sklearn_logistic(learned.relevance).predict_proba(
        scaled(learned.relevance, evidence)
    )
    np.testing.assert_allclose(relevance, expected[:, 1], rtol=0, atol=1e-12)
    first = sklearn_logistic(learned.confidence.first)
    score = first.decision_function(scaled(learned.confidence.first, features))[:, None]
    then = learned.confidence.then
    assert isinstance(then, LogisticMap)
    expected = sklearn_logistic(then).predict_proba(scaled(then, score))
    np.testing.assert_allclose(confidence, expected[:, 1], rtol=0, atol=1e-12)


def sklearn_logistic(learned: LogisticMap) -> LogisticRegression:
    """scikit-learn's own estimator with the map's weights."""
    model = LogisticRegression()
    model.coef_, model.intercept_ = np.array([learned.coef]), np.array([learned.intercept])
    model.classes_ = np.array([0, 1])
    return model


def scaled(learned: LogisticMap, X: Floats) -> Floats:
    """X, clipped to what was seen in fitting, standardised by scikit-learn's own scaler."""
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_ = np.array(learned.mean), np.array(learned.scale)
    clipped = np.clip(X, learned.low, learned.high) if learned.low else X
    return np.asarray(scaler.transform(clipped))


def test_the_isotonic_map_predicts_as_scikit_learn(
    fitted: Fitted, to_report: list[Ranking]
) -> None:
    """The isotonic way, through JSON, equals IsotonicRegression fitted on its knots, to 1e-12."""
    features = feature_matrix([order(r, fitted.calibrators.relevance) for r in to_report])
    way = fitted.ways["isotonic"]
    then = way.then
    assert isinstance(then, IsotonicMap)
    oracle = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(then.x, then.y)
    first = sklearn_logistic(way.first)
    expected = oracle.predict(first.decision_function(scaled(way.first, features)))
    again = type(way).__name__, json.loads(json.dumps(way.to_dict()))
    assert again[1]["then"]["x"] == list(then.x)
    np.testing.assert_allclose(way.predict(features), expected, rtol=0, atol=1e-12)


# --- running again ----------------------------------------------------------------------------


def test_the_same_call_again_does_nothing(run: Run, small: LabelledSet, config: Config) -> None:
    """A model of this very data and configuration is left as it is, and its report is given."""
    before = (run.folder / "manifest.json").stat().st_mtime_ns
    again = calibrate(small, run.folder, config, work=run.work)
    assert again.run is None
    assert again.report == run.outcome.report
    assert (run.folder / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("change", ["data", "configuration", "bound"])
def test_another_model_is_not_replaced_unasked(
    run: Run, small: LabelledSet, config: Config, change: str
) -> None:
    """A folder made from other data, configuration or bound is refused before any work."""
    labelled = replace(small, qrels={}) if change == "data" else small
    options = replace(config, seed=1) if change == "configuration" else config
    bound = 40 if change == "bound" else None
    with pytest.raises(StoreError, match="exists"):
        calibrate(labelled, run.folder, options, work=run.work, max_queries=bound)


@pytest.fixture(scope="module")
def train_only(
    run: Run, small: LabelledSet, config: Config, relabelled: Relabel, tmp_path_factory: Any
) -> tuple[Any, str]:
    """The small set under other ids, all in one split, calibrated and tracked elsewhere."""
    every = tuple(i for ids in small.splits.values() for i in ids)
    labelled = relabelled(replace(small, splits={"train": every}), "x-{}".format)
    home = tmp_path_factory.mktemp("train-only")
    (home / "elsewhere.db").write_bytes((run.work / "mlflow.db").read_bytes())  # already migrated
    uri = f"sqlite:///{home / 'elsewhere.db'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        cheap = replace(config, rerank_depth=1)
        return calibrate(
            labelled, home / "model", cheap, work=run.work, max_queries=LEAST_QUERIES
        ), uri


def test_a_set_with_only_a_train_split_works(train_only: tuple[Any, str]) -> None:
    """A held-out part is reported on, the bound holds, and the counts say so."""
    manifest = verify_folder(train_only[0].folder)
    assert manifest["queries"]["report_split"] == "held out"
    assert manifest["queries"]["fit"] == LEAST_QUERIES
    assert 20 <= manifest["queries"]["report"] <= LEAST_QUERIES


def test_the_environment_names_the_store(run: Run, train_only: tuple[Any, str]) -> None:
    """MLFLOW_TRACKING_URI decides where a run goes, and nothing goes elsewhere."""
    from mlflow import MlflowClient

    outcome, uri = train_only
    assert outcome.run.tracking_uri == uri
    assert MlflowClient(tracking_uri=uri).get_run(outcome.run.run_id).info.status == "FINISHED"
    kept = MlflowClient(tracking_uri=f"sqlite:///{run.work / 'mlflow.db'}")
    assert len(kept.search_runs([run.outcome.run.experiment_id])) == 1


# --- evaluate ---------------------------------------------------------------------------------


def test_evaluating_again_gives_what_the_run_measured(run: Run, small: LabelledSet) -> None:
    """A loaded model measured on the reported split shows the numbers of its own report."""
    seen, notes = evaluate_model(run.folder, small, "test", work=run.work)
    assert notes == ()
    kept = json.loads((run.folder / "reliability.json").read_text())
    ours = dict(seen.table.rows)["ours, calibrated"].to_dict()
    expected = kept["confidence"]["ours, logistic"]
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert ours[name] == pytest.approx(value, abs=1e-12), name
    assert seen.orders == kept["orders"]
    assert seen.events.keys() == kept["events"].keys()
    for name, values in kept["events"].items():
        assert seen.events[name] == pytest.approx(values, abs=1e-12)


def test_what_flatters_the_figures_is_said(run: Run, small: LabelledSet) -> None:
    """Measured where it was fitted, the model says so, whatever the set is called."""
    renamed = replace(small, name="another name")
    _, notes = evaluate_model(run.folder, renamed, "train", work=run.work)
    assert any("fitted on queries of this split" in note for note in notes)
    other = replace(small, splits={"train": small.splits["test"]})
    _, notes = evaluate_model(run.folder, other, "train", work=run.work)
    assert notes == ()


def test_an_unknown_split_is_refused(run: Run, small: LabelledSet) -> None:
    """The refusal names the splits that there are."""
    with pytest.raises(InputError, match=r"no split 'tset'; it has \['train', 'test'\]"):
        evaluate_model(run.folder, small, "tset", work=run.work)


# --- tracking ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracked(run: Run) -> Any:
    """MLflow's own client on the run's store, and the run as it reads it."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.work / 'mlflow.db'}")
    return client, client.get_run(run.outcome.run.run_id)


def test_the_run_holds_its_parameters_and_metrics(
    run: Run, tracked: Any, small: LabelledSet
) -> None:
    """MLflow has the configuration, the data set's digest and counts, metrics with intervals."""
    _, kept = tracked
    assert kept.info.status == "FINISHED"
    assert kept.data.params["config.rerank_depth"] == "2"
    assert kept.data.params["dataset.digest"] == small.digest()
    assert kept.data.params["dataset.passages"] == str(len(small.corpus))
    assert kept.data.params["queries.fit"] == str(len(run.plan.fit))
    measured = json.loads((run.folder / "reliability.json").read_text())
    ours = measured["confidence"]["ours, logistic"]
    assert kept.data.metrics["brier"] == pytest.approx(ours["brier"])
    assert kept.data.metrics["smece_interval_low"] == pytest.approx(ours["smece_interval"][0])
    assert kept.data.metrics["smece_interval_high"] == pytest.approx(ours["smece_interval"][1])


def test_the_run_holds_figures_tables_and_the_folder(run: Run, tracked: Any) -> None:
    """The diagram, the curve, the weights of every feature and the model folder are artefacts."""
    client, kept = tracked
    names = {a.path for a in client.list_artifacts(kept.info.run_id)}
    assert {"reliability.png", "risk_coverage.png", "feature_weights.json", "model"} <= names
    files = {a.path for a in client.list_artifacts(kept.info.run_id, "model")}
    assert {"model/manifest.json", "model/calibrators.json", "model/index"} <= files
    path = client.download_artifacts(kept.info.run_id, "feature_weights.json")
    table = json.loads(Path(path).read_text())
    inputs = {row[table["columns"].index("input")] for row in table["data"]}
    assert set(FEATURES) <= inputs


def test_the_model_is_registered(run: Run, tracked: Any) -> None:
    """The registered version points at the run, and its folder passes every hash."""
    client, kept = tracked
    version = client.get_model_version("calibrated-rerank", run.outcome.run.model_version)
    assert version.run_id == kept.info.run_id
    verify_folder(client.download_artifacts(kept.info.run_id, "model"))
