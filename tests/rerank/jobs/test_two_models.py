"""Two measured models written as one folder, and what loads, searches, rescores and serves it."""

from __future__ import annotations

import json
import pickle
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from pieces import driven
from server import serving

import rerank
from calibration.selection import NEVER
from rerank.assessment.model import CalibratedReranker
from rerank.cli import main
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import RetrieverError
from rerank.jobs import cascade as job
from rerank.jobs.calibrate import calibrate
from rerank.jobs.update import export

pytestmark = pytest.mark.usefixtures("untracked")


@pytest.fixture(scope="module")
def made(run: Any, small: LabelledSet, small_folder: Path, work: Path) -> SimpleNamespace:
    """The session's model, one with the smaller bundled reranker, and a folder of both.

    The second stage's gains are made up, so that the band holds about the middle half.
    """
    second = work / "models" / "second"
    config = Config.from_dict(rerank.load(run.folder).manifest["config"])
    calibrate(small, second, replace(config, reranker="minilm-reranker-small"), work=work)
    models, out = [rerank.load(run.folder), rerank.load(second)], work / "models" / "two"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "expected_gains", middle_half)
        first, then = models
        _, cascade = job.evaluate_cascade(first, then, small, share=0.6, out=out, work=work)
    asked = [small.queries[i] for i in small.splits["test"]]
    return SimpleNamespace(
        models=models, out=out, cascade=cascade, asked=asked, folder=small_folder
    )


def middle_half(first: Any, second: Any) -> dict[str, float]:
    confidence = first.confidences["calibrated"]
    low, high = np.quantile(confidence, [0.25, 0.75])
    gains = np.where((confidence >= low) & (confidence <= high), 0.1, -0.1)
    return dict(zip(first.query_ids, gains.tolist(), strict=True))


@pytest.fixture
def two(made: SimpleNamespace) -> CalibratedReranker:
    """The folder of both, loaded."""
    return rerank.load(made.out)


def test_whichever_model_answers_its_numbers_are_its_own(
    made: SimpleNamespace, two: CalibratedReranker
) -> None:
    """To the bit; the first one's confidence decides by the band, and the answer says so."""
    low, high = made.cascade.band
    answers = two.assess(made.asked)
    first, second = (model.assess(made.asked) for model in made.models)
    by = [one.answered_by for one in answers]
    assert by == ["second" if low <= one.confidence <= high else "first" for one in first]
    assert set(by) == {"first", "second"}
    for found, one, other in zip(answers, first, second, strict=True):
        whose = other if found.answered_by == "second" else one
        assert found.confidence == whose.confidence
        assert found.relevance.tolist() == whose.relevance.tolist()
        assert found.ranking.doc_ids == whose.ranking.doc_ids
        assert found.to_dict()["answered_by"] == found.answered_by
        features = (found.asked_before or found).features
        assert features.tolist() == one.features.tolist()
        assert ("second model was asked" in found.reasons[0]) == (found.answered_by == "second")


def test_steps_give_what_one_call_gives(made: SimpleNamespace, two: CalibratedReranker) -> None:
    """Each piece is worked on by the model that it names."""
    for query in made.asked[:8]:
        found, pieces = driven(two, query)
        assert found.to_dict() == two.assess([query])[0].to_dict()
        asked = {id(piece.model) for piece in pieces}
        assert len(asked) == (2 if found.answered_by == "second" else 1)


def test_one_certificate_is_of_both(made: SimpleNamespace, two: CalibratedReranker) -> None:
    """That of the band, by queries that it was not chosen on; other modes have none."""
    assert two.second is not None
    certificate = made.cascade.certificate
    for model in two.stages:
        assert model.maps["search"].certificate == certificate
        assert model.maps["search"].context_certificate is None or (
            model.maps["search"].context_certificate.refused
        )
        assert model.maps["search"].stopping_threshold is None
        assert model.maps["rerank"].certificate.refused
    assert certificate.queries < len(made.asked)
    assert two.fitted_on == made.models[0].fitted_on | made.models[1].fitted_on
    measured = json.loads((made.out / "reliability.json").read_text())["cascade"]
    assert tuple(measured["band"].values()) == made.cascade.band
    assert two.version not in [model.version for model in made.models]


def test_it_is_loaded_again_in_another_process(two: CalibratedReranker) -> None:
    """A pickle of it is its folder."""
    again = pickle.loads(pickle.dumps(two))
    assert again.second.band == two.second.band  # type: ignore[union-attr]


def test_a_changed_second_model_is_refused(made: SimpleNamespace, tmp_path: Path) -> None:
    """The folder names every file of both by its hash."""
    folder = shutil.copytree(made.out, tmp_path / "changed")
    kept = folder / "second" / "calibrators.json"
    kept.write_text(kept.read_text().replace("1", "2", 1))
    with pytest.raises(rerank.InputError, match="changed"):
        rerank.load(folder)


def test_exported_models_stay_self_contained(made: SimpleNamespace, tmp_path: Path) -> None:
    """Each brings its networks, and the folder of both holds them."""
    first, then = (
        rerank.load(export(model, tmp_path / f"exported{i}")) for i, model in enumerate(made.models)
    )
    out = tmp_path / "two"
    job.write_joined(first, then, made.cascade, out, "search", overwrite=False)
    assert list(out.glob("second/networks/**/*.onnx"))
    made_again, asked = (
        rerank.load(out).assess(made.asked),
        rerank.load(made.out).assess(made.asked),
    )
    assert [one.to_dict() for one in made_again] == [one.to_dict() for one in asked]


def test_a_failing_second_model_leaves_the_first_uncalibrated(
    made: SimpleNamespace, two: CalibratedReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error, or if the user chose that the first one's answer, marked."""
    assert two.second is not None
    dearer = two.second.model

    def fail(*_: object) -> Any:
        raise RetrieverError("away")

    monkeypatch.setattr(dearer.pipeline, "_score_together", fail)
    with pytest.raises(RetrieverError):
        two.assess(made.asked)
    dearer.pipeline.first_stage_on_error = True
    before = made.models[0].assess(made.asked)
    for found, one in zip(two.assess(made.asked), before, strict=True):
        asked = two.second.asks(one)
        assert (found.confidence, found.answered_by) == (one.confidence, "first")
        assert (found.calibrated, found.first_stage) == (not asked, asked)
        assert not (asked and (found.accepted or found.certified))


def test_rescored_and_served(
    made: SimpleNamespace, two: CalibratedReranker, questions: Path, tmp_path: Path
) -> None:
    """The same answers in a file of predictions, over HTTP and in the journal."""
    out = tmp_path / "predictions.jsonl"
    rerank.rescore(two, questions, out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    by = [line["answered_by"] for line in lines]
    assert set(by) == {"first", "second"}
    journal = tmp_path / "journal.db"
    with (
        serving(made.out, journal=f"sqlite:///{journal}") as started,
        httpx.Client(base_url=started.url, timeout=600) as http,
    ):
        for query, line in zip(made.asked, lines, strict=True):
            found = http.post("/v1/search", json={"query": query.text}).json()
            same = ("confidence", "answered_by", "reasons")
            assert [found[name] for name in same] == [line[name] for name in same]
            assert found["model"] == two.version
        about = http.get("/v1/model").json()["second"]
        assert about["band"] == list(made.cascade.band)
        assert http.get("/v1/reliability").json()["headline"] == made.cascade.sentences()
        explained = http.post("/v1/explain", json={"query": made.asked[by.index("second")].text})
        assert explained.json()["confidence"] == lines[by.index("second")]["confidence"]
    with closing(sqlite3.connect(journal)) as kept:
        rows = kept.execute("SELECT answered_by FROM rerank_journal ORDER BY entry_id").fetchall()
    assert [row[0] for row in rows] == [*by, "second"]


@pytest.mark.parametrize(
    "change",
    [
        lambda m, s, p: rerank.evaluate(m, s, work=p),
        lambda m, s, p: rerank.recalibrate(m, s, p / "out", work=p),
        lambda m, s, p: export(m, p / "out"),
        lambda m, s, p: job.evaluate_cascade(m, m, s, out=p / "out", work=p),
    ],
)
def test_two_models_are_changed_one_by_one(
    two: CalibratedReranker, small: LabelledSet, tmp_path: Path, change: Callable[..., object]
) -> None:
    """What would measure or change the first one alone is refused."""
    with pytest.raises(rerank.InputError, match="holds two models"):
        change(two, small, tmp_path)


def test_models_that_cannot_be_one_are_refused(made: SimpleNamespace, small: LabelledSet) -> None:
    """Before anything is measured: other thresholds, and a folder that is there."""
    first, second = made.models
    other = rerank.load(second.folder)
    config = replace(other.pipeline.config, sufficiency_k=other.pipeline.config.sufficiency_k + 1)
    other.pipeline.config = config
    with pytest.raises(rerank.InputError, match="sufficiency_k"):
        job.evaluate_cascade(first, other, small, out=made.out.parent / "none")
    unlabelled = rerank.load(second.folder)
    unlabelled.maps["search"] = replace(unlabelled.maps["search"], calibrated=False)
    with pytest.raises(rerank.InputError, match="not calibrated"):
        job.evaluate_cascade(first, unlabelled, small, out=made.out.parent / "none")
    changed = rerank.load(second.folder)
    changed.files = replace(changed.files, manifest={**changed.manifest, "digest": "another"})
    with pytest.raises(rerank.FolderError, match="was changed"):
        job.write_joined(
            first, changed, made.cascade, made.out.parent / "none", "search", overwrite=False
        )
    with pytest.raises(rerank.FolderError, match="overwrite"):
        job.evaluate_cascade(first, second, small, out=made.out)


def test_a_second_model_that_is_asked_for_nothing_is_not_joined(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    """No band has a gain."""
    never, out = replace(made.cascade, band=NEVER), tmp_path / "two"
    with pytest.raises(rerank.InputError, match="is asked for no query"):
        job.write_joined(*made.models, never, out, "search", overwrite=False)


def test_one_model_twice_is_refused_before_it_is_measured(
    made: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With --out, also a copy of its folder; exit code 2, and no folder is written."""
    monkeypatch.setattr(job, "evaluate", lambda *_, **__: pytest.fail("it was measured"))
    first, out = made.models[0].folder, tmp_path / "two"
    copy = shutil.copytree(first, tmp_path / "copy")
    for then in (first, copy):
        command = ["evaluate", first, made.folder, "--then", then, "--out", out]
        assert main(list(map(str, command))) == 2
        assert f"{then} is the first model again" in capsys.readouterr().err
    assert not out.exists()
