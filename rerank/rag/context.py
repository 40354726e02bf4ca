"""Whether the selected passages contain an answer, and the note to put before them.

It decides from calibrated sufficiency alone. It knows nothing of language models.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from rerank.assessment.decisions import verdict
from rerank.config import whole_percent
from rerank.data.equal_passages import distinct
from rerank.rag.adaptive import depth
from rerank.rag.settings import AnswerConfig, ContextGate
from rerank.types import Assessment

logger = logging.getLogger(__name__)
UNASSESSED = "UNASSESSED"  # the verdict of a gate that failed


@dataclass(frozen=True, slots=True)
class ContextVerdict:
    """Whether the first `k` passages are enough to answer from."""

    verdict: str  # SUFFICIENT, PARTIAL, INSUFFICIENT, or UNASSESSED if the gate failed
    confidence: float | None  # P(one of the first k passages is right); None if unassessed
    reason: str  # one sentence
    usable_count: int  # of the first k, the different ones whose relevance reaches the floor
    k: int

    def note(self) -> str:
        """Text to put before the context; empty if the context is sufficient."""
        if self.verdict == "SUFFICIENT":
            return ""
        sure = whole_percent(self.confidence or 0.0)
        if self.verdict == "PARTIAL":
            return f"[CONTEXT NOTE: Partial match ({sure} confidence). {self.reason}]"
        if self.verdict == UNASSESSED:
            return f"[CONTEXT WARNING: {self.reason} Confidence: unknown.]"
        return f"[CONTEXT WARNING: {self.reason} Confidence: {sure}.]"


def assess_context(
    assessment: Assessment,
    gate: ContextGate = ContextGate(),
    /,
) -> ContextVerdict:
    """The verdict on the first passages of an assessment; PARTIAL at most if it is not calibrated.

    No assessment makes it raise: if it fails, the failure is logged, the verdict is UNASSESSED, and
    the passages can still be used.
    """
    return _verdict(assessment, gate.k, gate.floor, gate.sufficient, gate.partial)


def assess_first(
    assessment: Assessment, count: int, config: AnswerConfig = AnswerConfig()
) -> ContextVerdict:
    """The verdict on the first `count` different passages, which are handed on.

    Without any passage it is INSUFFICIENT, with confidence 0.
    """
    if not count:
        return ContextVerdict("INSUFFICIENT", 0.0, "No passage fits the question.", 0, 0)
    k = depth(assessment, count)
    first = _verdict(assessment, k, config.min_score, config.sufficient, config.partial)
    return replace(first, k=count)


def _verdict(
    assessment: Assessment, k: int, floor: float, sufficient: float, partial: float
) -> ContextVerdict:
    """The verdict on the first `k` passages; UNASSESSED if the assessment is broken."""
    try:
        different, _ = distinct(assessment.first(k))
        confidence = float(assessment.sufficiency_at[k - 1])
        if not 0 <= confidence <= 1:
            raise ValueError(f"sufficiency should be a probability, got {confidence}")
        usable = int((assessment.relevance[different] >= floor).sum())
    except Exception:
        logger.exception("the context gate failed; the passages pass on unassessed")
        return ContextVerdict(UNASSESSED, None, "The context could not be assessed.", 0, k)
    band = verdict(confidence, sufficient, partial)
    if not assessment.calibrated and band == "SUFFICIENT":
        band = "PARTIAL"
    reason = _reason(band, usable, len(different), floor)
    if not assessment.calibrated:
        reason = f"{reason} This confidence is not calibrated."
    return ContextVerdict(band, confidence, reason, usable, k)


def _reason(band: str, usable: int, count: int, floor: float) -> str:
    if not count:
        return "No passage was found."
    ending = {
        "SUFFICIENT": "the answer is likely to be among them",
        "PARTIAL": "the answer may be missing or incomplete",
        "INSUFFICIENT": "the answer is probably not among them",
    }[band]
    passages = "1 passage" if count == 1 else f"{count} passages"
    reach = "reaches" if usable == 1 else "reach"
    return f"{usable} of {passages} {reach} a relevance of {floor:g}; {ending}."
