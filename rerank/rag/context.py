"""Whether the selected passages contain an answer, by their sufficiency; the note before them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from rerank.advice.adaptive import depth
from rerank.advice.settings import DEEPEST, FLOOR
from rerank.config import Thresholds, hundredths
from rerank.data.duplicates import distinct
from rerank.errors import InputError
from rerank.types import Assessment

logger = logging.getLogger(__name__)
UNASSESSED = "UNASSESSED"  # the verdict of a gate that failed
ENDINGS = {
    "SUFFICIENT": "the answer is likely to be among them",
    "PARTIAL": "the answer may be missing or incomplete",
    "INSUFFICIENT": "the answer is probably not among them",
}


@dataclass(frozen=True, slots=True)
class ContextVerdict:
    """Whether the first `k` passages are enough to answer from."""

    verdict: str  # SUFFICIENT, PARTIAL, INSUFFICIENT, or UNASSESSED if the gate failed
    sufficiency: float | None  # P(one of the first k passages is right); None if unassessed
    reason: str  # one sentence
    usable_count: int  # of the first k, the different ones whose relevance reaches the floor
    k: int

    def note(self) -> str:
        """Text to put before the context; empty if the context is sufficient."""
        if self.verdict == "SUFFICIENT":
            return ""
        sure = f"{hundredths(self.sufficiency or 0.0)}%"
        if self.verdict == "PARTIAL":
            return f"[CONTEXT NOTE: Partial match ({sure} confidence). {self.reason}]"
        if self.verdict == UNASSESSED:
            return f"[CONTEXT WARNING: {self.reason} Confidence: unknown.]"
        return f"[CONTEXT WARNING: {self.reason} Confidence: {sure}.]"


def gate(
    assessment: Assessment,
    k: int | None = None,
    *,
    floor: float = FLOOR,
    thresholds: Thresholds | None = None,
) -> ContextVerdict:
    """The verdict on the first `k` passages; PARTIAL at most if the model is not calibrated.

    `k` and the thresholds are those of the model by default. `floor` is the relevance from which a
    passage is usable. No assessment makes it raise: if it fails, the verdict is UNASSESSED.

    Raises:
        InputError: `k` outside 1 to 10, or a floor outside [0, 1].
    """
    k = assessment.sufficiency_k if k is None else k
    if not (1 <= k <= DEEPEST and 0 <= floor <= 1):
        expected = f"`k` from 1 to {DEEPEST} and `floor` from 0 to 1"
        raise InputError(f"expected {expected}, got {k!r} and {floor!r}")
    assessment = assessment.by(thresholds)
    try:
        different, _ = distinct(assessment.first(k))
        sufficiency = float(assessment.sufficiency_at[k - 1])
        if not 0 <= sufficiency <= 1:
            raise ValueError(f"sufficiency should be a probability, got {sufficiency}")
        usable = int((assessment.relevance[different] >= floor).sum())
    except Exception:
        logger.exception("the context gate failed; the passages pass on unassessed")
        return ContextVerdict(UNASSESSED, None, "The context could not be assessed.", 0, k)
    verdict = assessment.thresholds.verdict(sufficiency, calibrated=assessment.calibrated)
    passages = "1 passage" if len(different) == 1 else f"{len(different)} passages"
    reach = "reaches" if usable == 1 else "reach"
    reason = f"{usable} of {passages} {reach} a relevance of {floor:g}; {ENDINGS[verdict]}."
    reason = reason if len(different) else "No passage was found."
    reason += "" if assessment.calibrated else " This confidence is not calibrated."
    return ContextVerdict(verdict, sufficiency, reason, usable, k)


def gate_handed_on(assessment: Assessment, count: int, *, floor: float = FLOOR) -> ContextVerdict:
    """The verdict on the first `count` different passages, which are handed on."""
    if not count:
        return ContextVerdict("INSUFFICIENT", 0.0, "No passage fits the question.", 0, 0)
    return replace(gate(assessment, depth(assessment, count), floor=floor), k=count)
