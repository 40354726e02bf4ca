"""The confidence of an answer, in a world whose truth is known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from calibration.arrays import log_odds
from calibration.fitting import fit_logistic
from calibration.maps import LogisticMap
from rerank.errors import InputError
from rerank.rag.answer.quality import AnswerConfidence, fit_answer_confidence


def test_bad_answers_lower_the_confidence_as_far_as_they_should() -> None:
    """Log-odds of the truth: those of the retrieval + 2 (coverage - 0.5); n = 4,000."""
    rng = np.random.default_rng(0)
    retrieval, coverage = rng.uniform(0.05, 0.95, 4000), rng.uniform(0, 1, 4000)
    truth = expit(logit(retrieval) + 2 * (coverage - 0.5))
    right = (rng.random(4000) < truth).astype(int)
    fitted = fit_answer_confidence(retrieval.tolist(), coverage.tolist(), right.tolist())
    found = fitted.confidence(0.7, 0.0)
    assert found == pytest.approx(expit(logit(0.7) - 1), abs=0.05)
    again = AnswerConfidence.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted


def test_a_map_of_five_inputs_is_read() -> None:
    """As earlier versions wrote it: three inputs were 1 in every answer; no prediction changes."""
    rng = np.random.default_rng(0)
    p, coverage = rng.uniform(0.05, 0.95, 200), rng.uniform(0, 1, 200)
    right = (rng.random(200) < p * coverage).astype(int)
    columns = np.column_stack([log_odds(p), np.ones((200, 3)), coverage])
    earlier = fit_logistic(columns, right)
    read = AnswerConfidence.from_dict(earlier.to_dict())
    anew = fit_answer_confidence(p.tolist(), coverage.tolist(), right.tolist())
    for made in (read, anew):
        assert [made.confidence(*row) for row in zip(p, coverage, strict=True)] == pytest.approx(
            earlier.predict(columns), abs=1e-12
        )
    moved = replace(earlier, coef=(1.0, 0.5, 0.0, 0.0, 1.0), mean=(0.0, 0.5, 1.0, 1.0, 0.0))
    shifted = AnswerConfidence.from_dict(moved.to_dict())
    assert shifted.confidence(p[0], coverage[0]) == pytest.approx(moved.predict(columns[:1])[0])


def test_what_is_refused() -> None:
    """Few labels, one outcome, numbers that are no shares, another map."""
    fine = [1.0] * 40
    with pytest.raises(InputError, match="30 labelled answers"):
        fit_answer_confidence([0.5] * 5, fine[:5], [0, 1, 0, 1, 0])
    with pytest.raises(InputError, match="of which 40 are right"):
        fit_answer_confidence([0.5] * 40, fine, [1] * 40)
    with pytest.raises(InputError, match="got 40, 3 and 40"):
        fit_answer_confidence([0.5] * 40, fine[:3], [0, 1] * 20)
    with pytest.raises(InputError, match="from 0 to 1"):
        fit_answer_confidence([0.5] * 40, [2.0] * 40, [0, 1] * 20)
    with pytest.raises(InputError, match="of 2 inputs"):
        AnswerConfidence.from_dict(LogisticMap((1.0,), 0.0, (0.0,), (1.0,)).to_dict())
    with pytest.raises(InputError, match="can be read"):
        AnswerConfidence.from_dict({"kind": "none"})
