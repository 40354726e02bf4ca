"""The confidence of an answer, in a world whose truth is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit, logit

from rerank.errors import InputError
from rerank.rag.answer.quality import AnswerConfidence, AnswerQuality, fit_answer_confidence


def test_bad_answers_lower_the_confidence_as_far_as_they_should() -> None:
    """Log-odds of the truth: those of the retrieval + 2 (coverage - 0.5); n = 4,000."""
    rng = np.random.default_rng(0)
    retrieval, coverage = rng.uniform(0.05, 0.95, 4000), rng.uniform(0, 1, 4000)
    truth = expit(logit(retrieval) + 2 * (coverage - 0.5))
    right = (rng.random(4000) < truth).astype(int)
    qualities = [AnswerQuality(attribution_coverage=c) for c in coverage.tolist()]
    fitted = fit_answer_confidence(retrieval.tolist(), qualities, right.tolist())
    found = fitted.confidence(0.7, AnswerQuality(attribution_coverage=0.0))
    assert found == pytest.approx(expit(logit(0.7) - 1), abs=0.05)
    again = AnswerConfidence.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted


def test_what_is_refused() -> None:
    """Few labels, one outcome, numbers that are no shares, another map."""
    fine = [AnswerQuality()] * 40
    with pytest.raises(InputError, match="30 labelled answers"):
        fit_answer_confidence([0.5] * 5, fine[:5], [0, 1, 0, 1, 0])
    with pytest.raises(InputError, match="of which 40 are right"):
        fit_answer_confidence([0.5] * 40, fine, [1] * 40)
    with pytest.raises(InputError, match="got 40, 3 and 40"):
        fit_answer_confidence([0.5] * 40, fine[:3], [0, 1] * 20)
    with pytest.raises(InputError, match="from 0 to 1"):
        AnswerQuality(parses=2)
    with pytest.raises(InputError, match="can be read"):
        AnswerConfidence.from_dict({"kind": "none"})
