"""What must hold between the probabilities of one answer, as a prediction or an assessment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rerank.types import Assessment

ROUNDING = 1e-12


def check_coherent(answer: Assessment | Mapping[str, Any]) -> None:
    """Check one answer: of a prediction, `ranking` must hold every passage.

    The top relevance is the confidence, to the last bit; relevance never rises; sufficiency at k
    is at least every relevance within k and at most their sum.
    """
    told = answer.to_dict() if isinstance(answer, Assessment) else answer
    relevance = np.array([passage["relevance"] for passage in told["ranking"]])
    sufficiency = np.array(told["sufficiency_at"])
    check_family(told["confidence"], relevance, sufficiency)


def check_family(confidence: float, relevance: np.ndarray, sufficiency: np.ndarray) -> None:
    """As `check_coherent`, of relevance (n,) and sufficiency (10,)."""
    assert np.isfinite(relevance).all()
    if not len(relevance):
        assert confidence == 0
        assert not sufficiency.any()
        return
    assert relevance[0] == confidence == sufficiency[0]
    assert (np.diff(relevance) <= 0).all()
    assert 0 <= relevance[-1] <= confidence <= sufficiency[-1] <= 1
    assert (np.diff(sufficiency) >= 0).all()
    depth = len(sufficiency)
    most = np.cumsum(relevance[:depth])
    most = np.append(most, np.full(depth - len(most), most[-1]))
    assert (sufficiency <= most + ROUNDING).all()
