"""What labels cannot promise is certified by nothing, with the reason."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from calibration.thresholds import Certificate, certify
from rerank.config import Config
from rerank.fitting.certificates import require_both_kinds
from rerank.fitting.fit import fit
from rerank.fitting.scored_plan import ScoredPlan

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
    searched: ScoredPlan, config: Config
) -> None:
    """The confidence is fitted, and the certificate says that these labels cannot carry it."""
    answered = searched.where(np.array([bool(grades) for grades in searched.to_fit.grades]))
    found = fit(answered, config)
    assert found.maps.certificate.refused.startswith(f"All {len(answered.to_fit)} labelled")
