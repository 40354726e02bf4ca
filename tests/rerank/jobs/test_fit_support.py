"""The threshold of the support check, fitted by a real model on a labelled set and on claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call, refused

from rerank.assessment.model import CalibratedReranker
from rerank.data.labelled_set import LabelledSet
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.fit_support import claims_of, fit_support_threshold
from rerank.rag.answer.attribution import lexical_support, undecided
from rerank.rag.answer.model_answers import cross_encoder_judge
from rerank.workspace import Workspace


@pytest.fixture(scope="module")
def model(run: Any) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))


def test_the_fitted_threshold_makes_the_fewest_errors(
    model: CalibratedReranker, small: LabelledSet
) -> None:
    """Of those that words leave undecided, no other threshold has a lower mean error rate."""
    claims = claims_of(model, small, "train")
    for first, second in zip(claims[::2], claims[1::2], strict=True):
        assert first.text == second.text
        assert (first.supported, second.supported) == (True, False)
    found, count = fit_support_threshold(model, small, "train")
    assert count == len(claims)
    judge, lexicon = cross_encoder_judge(model), model.pipeline.index
    assert judge is not None
    open_ = [c for c in claims if undecided(lexical_support(c.text, c.evidence, lexicon))]
    p = np.array([judge(c.text, c.evidence) for c in open_])
    right = np.array([c.supported for c in open_])

    def errors(threshold: float) -> float:
        return float((p[right] < threshold).mean() + (p[~right] >= threshold).mean())

    assert errors(found) == pytest.approx(min(errors(t / 100) for t in range(1, 100)))


def test_on_the_command_line(
    run: Any,
    model: CalibratedReranker,
    small: LabelledSet,
    small_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A set and the same claims in a file give one number, which `answer` takes."""
    start = ("fit-support", run.folder)
    assert call(*start, small_folder, "--work", run.work, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    path = tmp_path / "claims.jsonl"
    rows = [
        {"claim": claim.text, "text": claim.evidence, "supported": claim.supported}
        for claim in claims_of(model, small, "train")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert call(*start, path, "--work", run.work) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{told['support']:.2f}: ")
    assert call("answer", *printed.split("rerank answer ")[1].split()) == 0


def test_bad_claims_are_one_sentence(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All bad lines with their numbers; too few that are undecided."""
    path, good = tmp_path / "claims.jsonl", {"claim": "a", "text": "b", "supported": True}
    bad = ({**good, "supported": "yes"}, {"text": "b", "supported": True}, {**good, "text": " "})
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, *bad)))
    assert call("fit-support", run.folder, path) == 2
    told = capsys.readouterr().err
    assert "3 bad lines" in told
    assert ":2: 'supported' should be true or false" in told
    assert ":3: 'claim'" in told
    assert ":4: 'text' is empty" in told
    path.write_text(json.dumps(good) + "\n")
    assert "expected 30 labels" in refused(capsys, "fit-support", run.folder, path)
