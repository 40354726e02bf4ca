"""The training job on real text: what it scores, writes, tracks, reuses and refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_python
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from small_sets import relabelled

from calibration.maps import TILT, IsotonicMap, LogisticMap, map_from_dict
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.predictions import predict
from rerank.assessment.ranking import read
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES
from rerank.config import Config, Thresholds
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.errors import FolderError, InputError
from rerank.evaluation.baselines import HEURISTICS, OWN_SCORE
from rerank.evaluation.measure import OURS, Part, measure
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.scored_plan import ScoredPlan
from rerank.jobs.calibrate import calibrate
from rerank.storage.folder import verify_folder
from rerank.tracking.runs import FOLDER, INNER, logged_models
from rerank.types import Floats, Scored

Run = Any  # the session's run, see conftest


def doc_ids(scored: Sequence[Scored]) -> list[list[str]]:
    return [[p.doc_id for p in s.candidates.passages] for s in scored]


def test_reported_queries_are_scored_in_the_order_of_the_prior(
    pipeline: Pipeline, to_report: Labelled[Scored], maps: FittedMaps
) -> None:
    """The prior of the model folder orders the candidates; what it puts first was scored."""
    queries = [s.query for s in to_report.items]
    expected = pipeline.run(queries, replace(maps.policy, cutoff=0.0))
    assert doc_ids(to_report.items) == doc_ids(expected)
    for ours, theirs in zip(to_report.items, expected, strict=True):
        assert ours.logits.tolist() == theirs.logits.tolist()
    fused = [[p.doc_id for p in c.passages] for c in pipeline.retrieve(queries)]
    assert doc_ids(to_report.items) != fused


def test_fitted_queries_are_scored_in_the_order_of_a_prior_that_has_not_seen_them(
    pipeline: Pipeline, to_fit: Labelled[Scored], maps: FittedMaps
) -> None:
    """Not in the order of the prior that is kept, which was fitted on them."""
    kept = doc_ids(pipeline.run([s.query for s in to_fit.items], maps.policy))
    ours = doc_ids(to_fit.items)
    assert ours != kept
    assert all(set(a) == set(b) for a, b in zip(ours, kept, strict=True))


def test_formulas_are_given_what_the_model_did_not_score(
    maps: FittedMaps, to_report: Labelled[Scored], config: Config
) -> None:
    """A model that scores less changes its own confidence, not the rivals it is compared with."""
    some, all_of_it = (
        measure(
            [Part(to_report, replace(maps, policy=replace(maps.policy, cutoff=cutoff)))], config
        )
        for cutoff in (1.0, 0.0)
    )
    assert some.passages_scored == 2 < all_of_it.passages_scored == config.rerank_depth
    assert some.orders["logit"] == all_of_it.orders["logit"]
    assert some.confidences[OURS].tolist() != all_of_it.confidences[OURS].tolist()
    formula = "sigmoid of top logit"
    assert some.confidences[formula].tolist() == all_of_it.confidences[formula].tolist()


# --- the folder -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["medium", "sufficient"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_share_that_cannot_be_certified_is_refused_first(
    small: LabelledSet, tmp_path: Path, name: str, value: float
) -> None:
    """Of 0 all is true, and 1 cannot be shown: that is told before anything is indexed."""
    bands = {"high": 1.0, "low": 0.0, "partial": 0.0, name: value}
    with pytest.raises(InputError, match=f"`{name}` .* above 0 and below 1"):
        calibrate(small, tmp_path / "m", Config(thresholds=Thresholds(**bands)), work=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_leaves_no_model_folder(run: Run) -> None:
    """Stopped in the middle of scoring, nothing stands where the model would be."""
    assert run.interrupted.left_behind == ()


def test_the_second_run_scores_only_what_is_missing(run: Run, config: Config) -> None:
    """The chunk that was scored before the interruption is not scored again.

    The lists that callers might bring ask for a few more, which the index's order had not reached.
    """
    every = (len(run.plan.fit) + len(run.plan.report)) * config.rerank_depth
    assert 0 < run.interrupted.pairs_first < every
    more = run.interrupted.pairs_second - (every - run.interrupted.pairs_first)
    assert 0 <= more < 0.1 * every


def test_the_folder_is_whole_and_holds_data_only(run: Run, small: LabelledSet) -> None:
    """Every file has its hash in the manifest; there is no code and no pickle."""
    manifest = verify_folder(run.folder)
    files = set(manifest["files"])
    assert {"calibrators.json", "reliability.json", "reliability.png", "risk_coverage.png"} < files
    assert {Path(name).suffix for name in files} <= {".json", ".jsonl", ".npy", ".npz"} | {
        ".html",
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


def test_the_folder_holds_the_maps_that_fitting_gives(maps: FittedMaps, fitted: Fitted) -> None:
    """`calibrators.json` is what fitting the same rankings again gives, to the last bit."""
    assert maps.policy == fitted.maps.policy
    theirs = fitted.maps
    assert (
        replace(
            maps, certificate=theirs.certificate, context_certificate=theirs.context_certificate
        )
        == theirs
    )


def test_the_report_tells_what_was_measured(run: Run, small: LabelledSet) -> None:
    """The text names both counts and has a row for every way of being confident."""
    text = run.outcome.report
    assert f"fitted on {len(run.plan.fit)} queries" in text
    for way in (*HEURISTICS.keys() - {OWN_SCORE}, "temperature", OURS):
        assert way in text
    assert (run.folder / "report.txt").read_text() == text


def test_the_page_stands_alone_and_holds_every_picture(run: Run) -> None:
    """`report.html` fetches nothing and runs nothing; each picture of the folder is in it."""
    page = (run.folder / "report.html").read_text()
    assert "<script" not in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert page.count('src="data:image/png;base64,') == len(list(run.folder.glob("*.png")))
    assert f"Measured on {len(run.plan.report)} queries" in page


def test_what_is_measured_holds_the_ablations(run: Run) -> None:
    """`reliability.json` tells what fewer features and fewer labels would have given."""
    measured = json.loads((run.folder / "reliability.json").read_text())
    assert len(measured["ablation"]) == len(GROUPS)
    assert measured["ablation"][-1]["log_loss"] == pytest.approx(
        measured["confidence"][OURS]["log_loss"]
    )
    assert measured["labels"]["labels"][-1] == len(run.plan.fit)


def test_maps_loaded_without_scikit_learn_predict_as_scikit_learn(
    run: Run,
    maps: FittedMaps,
    config: Config,
    to_report: Labelled[Scored],
    tmp_path: Path,
) -> None:
    """The folder's maps, read where sklearn is blocked, equal sklearn's predictions to 1e-12."""
    features = predict(to_report.items, maps, config).features
    inputs = np.concatenate([read(s).features for s in to_report.items])
    np.savez(tmp_path / "in.npz", features=features, inputs=inputs)
    code = f"""
import json
import numpy as np
from rerank.assessment.fitted_maps import FittedMaps
with open({str(run.folder / "calibrators.json")!r}) as file:
    c = FittedMaps.from_dict(json.load(file)["search"])
given = np.load({str(tmp_path / "in.npz")!r})
print(json.dumps([c.score.predict(given["inputs"]).tolist(),
                  c.confidence.predict(given["features"]).tolist()]))
"""
    blocked = ("sklearn", "mlflow", "pandas", "matplotlib", "torch")
    score, confidence = json.loads(run_python(code, blocked=blocked))
    oracle = sklearn_logistic(maps.score)
    expected = oracle.predict_proba(scaled(maps.score, inputs))
    np.testing.assert_allclose(score, expected[:, 1], rtol=0, atol=1e-12)
    first = sklearn_logistic(maps.confidence.first)
    score = first.decision_function(scaled(maps.confidence.first, features))[:, None]
    second = maps.confidence.second
    assert isinstance(second, LogisticMap)
    expected = sklearn_logistic(second).predict_proba(scaled(second, score))
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
    searched: ScoredPlan, to_report: Labelled[Scored], config: Config
) -> None:
    """Through JSON it equals IsotonicRegression fitted on its knots, but for its slight tilt."""
    fitted = fit(searched, replace(config, calibrator="isotonic"))
    features = predict(to_report.items, fitted.maps, config).features
    way = fitted.maps.confidence
    second = way.second
    assert isinstance(second, IsotonicMap)
    oracle = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(second.x, second.y)
    scores = sklearn_logistic(way.first).decision_function(scaled(way.first, features))
    again = map_from_dict(json.loads(json.dumps(way.to_dict())))
    expected = (1 - TILT) * oracle.predict(scores) + TILT * expit(
        (scores - second.mean) / second.scale
    )
    np.testing.assert_allclose(again.predict(features), expected, rtol=0, atol=1e-12)


# --- running again ----------------------------------------------------------------------------


def test_the_same_call_again_does_nothing(run: Run, small: LabelledSet, config: Config) -> None:
    """A model of this very data and configuration is left as it is, and its report is given."""
    before = (run.folder / "manifest.json").stat().st_mtime_ns
    again = calibrate(small, run.folder, config, work=run.work)
    assert not again.made
    assert (again.run.run_id, again.run.found) == (run.outcome.run.run_id, True)
    assert again.report == run.outcome.report
    assert (run.folder / "manifest.json").stat().st_mtime_ns == before


def test_a_model_of_other_features_is_not_taken_for_this_one(
    run: Run, small: LabelledSet, config: Config, tmp_path: Path
) -> None:
    """What an earlier version made of the same data is not "there already", but in the way."""
    folder = shutil.copytree(run.folder, tmp_path / "model")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["inputs"]["ranking_features"].pop()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FolderError, match="exists"):
        calibrate(small, folder, config, work=run.work)


@pytest.mark.parametrize("change", ["data", "configuration", "bound"])
def test_another_model_is_not_replaced_unasked(
    run: Run, small: LabelledSet, config: Config, change: str
) -> None:
    """A folder made from other data, configuration or bound is refused before any work."""
    labelled = replace(small, qrels={}) if change == "data" else small
    options = replace(config, seed=1) if change == "configuration" else config
    bound = 40 if change == "bound" else None
    with pytest.raises(FolderError, match="exists"):
        calibrate(labelled, run.folder, options, work=run.work, max_queries=bound)


BOUND = 30  # queries to fit on, and to report on, of the set with one split


@pytest.fixture(scope="module")
def train_only(
    run: Run, small: LabelledSet, config: Config, tmp_path_factory: Any
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
        return calibrate(labelled, home / "model", cheap, work=run.work, max_queries=BOUND), uri


def test_a_set_with_only_a_train_split_works(train_only: tuple[Any, str]) -> None:
    """It is reported on in folds, every query once; the bound holds, and the report says how."""
    folder = train_only[0].folder
    manifest = verify_folder(folder)
    assert manifest["queries"]["report_split"] == "cross-fitted"
    assert manifest["queries"]["fit"] == manifest["queries"]["report"] == BOUND
    measured = json.loads((folder / "reliability.json").read_text())
    assert measured["confidence"][OURS]["n"] == BOUND
    said = "by nested cross-fitting: the fit"
    assert said in measured["reported"]
    assert said in " ".join((folder / "report.txt").read_text().split())
    assert said in " ".join((folder / "report.html").read_text().split())


def test_the_environment_names_the_store(run: Run, train_only: tuple[Any, str]) -> None:
    """MLFLOW_TRACKING_URI decides where a run goes, and nothing goes elsewhere."""
    from mlflow import MlflowClient

    outcome, uri = train_only
    assert outcome.run.tracking_uri == uri
    assert MlflowClient(tracking_uri=uri).get_run(outcome.run.run_id).info.status == "FINISHED"
    default = MlflowClient(tracking_uri=f"sqlite:///{run.work / 'mlflow.db'}")
    runs = default.search_runs([run.outcome.run.experiment_id])
    assert outcome.run.run_id not in {run.info.run_id for run in runs}


# --- tracking ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracked(run: Run) -> Any:
    """MLflow's own client on the run's store, and the run as it reads it."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.work / 'mlflow.db'}")
    return client, client.get_run(run.outcome.run.run_id)


def test_the_run_holds_its_parameters_and_metrics(
    run: Run, tracked: Any, small: LabelledSet, config: Config
) -> None:
    """MLflow has the configuration, the data set's digest and counts, metrics with intervals."""
    _, kept = tracked
    assert kept.info.status == "FINISHED"
    assert kept.data.params["config.rerank_depth"] == str(config.rerank_depth)
    assert kept.data.params["dataset.digest"] == small.digest()
    assert kept.data.params["dataset.passages"] == str(len(small.corpus))
    assert kept.data.params["queries.fit"] == str(len(run.plan.fit))
    measured = json.loads((run.folder / "reliability.json").read_text())
    ours = measured["confidence"][OURS]
    assert kept.data.metrics["brier"] == pytest.approx(ours["brier"])
    assert kept.data.metrics["smece_low"] == pytest.approx(ours["smece_interval"][0])
    assert kept.data.metrics["smece_high"] == pytest.approx(ours["smece_interval"][1])


def test_the_run_holds_figures_and_tables(tracked: Any) -> None:
    """Pictures, the page and the weights of every feature are artefacts."""
    client, kept = tracked
    names = {a.path for a in client.list_artifacts(kept.info.run_id)}
    assert {"reliability.png", "risk_coverage.png", "feature_weights.json"} <= names
    assert {"histogram.png", "features.png"} <= names
    path = client.download_artifacts(kept.info.run_id, "feature_weights.json")
    table = json.loads(Path(path).read_text())
    inputs = {row[table["columns"].index("input")] for row in table["data"]}
    assert set(RANKING_FEATURES) <= inputs


def test_the_model_is_registered(run: Run, tracked: Any) -> None:
    """The registered version points at the run and its model, whose folder passes every hash."""
    client, kept = tracked
    version = client.get_model_version(run.outcome.run.model_name, run.outcome.run.model_version)
    assert version.run_id == kept.info.run_id
    (logged,) = logged_models(client, kept.info.run_id)
    assert (logged.name, logged.artifact_location) == (FOLDER, version.source)
    place = Path(version.source.removeprefix("file://"))
    assert (place / "MLmodel").is_file()
    assert {"manifest.json", "calibrators.json", "index", "report.html"} <= {
        path.name for path in (place / INNER).iterdir()
    }
    assert verify_folder(place / INNER) == verify_folder(run.folder)


def test_a_path_is_no_labelled_set(tmp_path: Path) -> None:
    """It says how to read one."""
    with pytest.raises(InputError, match=r"LabelledSet\.read"):
        calibrate(str(tmp_path), tmp_path / "model")  # type: ignore[arg-type]
