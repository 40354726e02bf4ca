"""What labels cannot teach is refused, or certified by nothing, with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.thresholds import Certificate, certify
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.fitting.fit import fit
from rerank.fitting.label_checks import (
    check_both_outcomes,
    check_corpus,
    require_both_kinds,
)
from rerank.fitting.rankings import PlannedRankings
from rerank.jobs.calibrate import calibrate

GIVEN = certify(np.ones(100), np.linspace(1, 0, 100))


def test_answered_questions_alone_certify_nothing() -> None:
    """Nor do unanswerable ones alone; with both kinds the certificate stays as it is."""
    assert require_both_kinds(GIVEN, [True, False]) == GIVEN
    for answered, word in ((True, "All 100 labelled queries"), (False, "None of the 100")):
        found = require_both_kinds(GIVEN, [answered] * 100)
        assert found.threshold is None
        assert not found.promises(1.0)
        assert found.sentence.startswith(f"Warning: nothing is certified. {word}")
        assert Certificate(**json.loads(json.dumps(found.to_dict()))) == found


def test_a_reason_and_a_threshold_exclude_each_other() -> None:
    """A certificate that promises cannot say why it does not."""
    with pytest.raises(ValueError, match="refused should say why"):
        replace(GIVEN, refused="because")


def test_fitting_on_answered_questions_promises_nothing(
    searched: PlannedRankings, config: Config
) -> None:
    """The confidence is fitted, and the certificate says that these labels cannot carry it."""
    answered = searched.where(np.array([bool(grades) for grades in searched.to_fit.grades]))
    found = fit(answered, config)
    assert found.maps.certificate.refused.startswith(f"All {len(answered.to_fit)} labelled")


@pytest.mark.parametrize(("right", "word"), [(1, "right for all"), (0, "wrong for all")])
def test_one_outcome_is_refused(right: int, word: str) -> None:
    """A confidence is learned from both."""
    with pytest.raises(InputError, match=f"made: the top passage is {word} of the 40 queries"):
        check_both_outcomes(np.full(40, right), "made")
    check_both_outcomes(np.arange(40) % 2, "made")


def test_one_passage_is_refused(small: LabelledSet) -> None:
    """Every query would get the same one."""
    (first, *_) = small.corpus
    with pytest.raises(InputError, match="its corpus has 1 passage"):
        check_corpus(replace(small, corpus={first: small.corpus[first]}))
    check_corpus(small)


def test_labels_that_are_all_wrong_leave_no_model(
    small: LabelledSet, config: Config, tmp_path: Path, work: Path
) -> None:
    """Nothing is written where nothing can be learned, and so nothing is registered."""
    out = tmp_path / "model"
    with pytest.raises(InputError, match="the top passage is wrong for all"):
        calibrate(replace(small, qrels={}), out, config, work=work)
    assert not out.exists()
