"""Whether the selected passages contain an answer, and the note to put before them.

It decides from calibrated sufficiency alone. It knows nothing of language models.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from rerank.data.equal_passages import distinct
from rerank.rag.adaptive import depth
from rerank.rag.settings import ContextGate
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
        if self.verdict == "PARTIAL":
            return (
                f"[CONTEXT NOTE: Partial match ({self.confidence:.0%} confidence). {self.reason}]"
            )
        if self.verdict == UNASSESSED:
            return f"[CONTEXT WARNING: {self.reason} Confidence: unknown.]"
        return f"[CONTEXT WARNING: {self.reason} Confidence: {self.confidence:.0%}.]"


def assess_context(
    assessment: Assessment,
    gate: ContextGate = ContextGate(),
    /,
) -> ContextVerdict:
    """The verdict on the first passages of an assessment; PARTIAL at most if it is not calibrated.

    No assessment makes it raise: if it fails, the failure is logged, the verdict is UNASSESSED, and
    the passages can still be used.
    """
    try:
        return _assess(assessment, gate)
    except Exception:
        logger.exception("the context gate failed; the passages pass on unassessed")
        return ContextVerdict(UNASSESSED, None, "The context could not be assessed.", 0, gate.k)


def assess_first(
    assessment: Assessment, count: int, gate: ContextGate = ContextGate()
) -> ContextVerdict:
    """The verdict on the first `count` different passages, which are handed on; `gate.k` is unused.

    Without any passage it is INSUFFICIENT, with confidence 0.
    """
    if count:
        found = assess_context(assessment, replace(gate, k=depth(assessment, count)))
        return replace(found, k=count)
    return ContextVerdict("INSUFFICIENT", 0.0, "No passage fits the question.", 0, 0)


def _assess(assessment: Assessment, gate: ContextGate) -> ContextVerdict:
    different, _ = distinct(assessment.first(gate.k))
    confidence = float(assessment.sufficiency_at[gate.k - 1])
    if not 0 <= confidence <= 1:
        raise ValueError(f"sufficiency should be a probability, got {confidence}")
    usable = int((assessment.relevance[different] >= gate.floor).sum())
    bands = (("SUFFICIENT", gate.sufficient), ("PARTIAL", gate.partial))
    found = next((name for name, start in bands if confidence >= start), "INSUFFICIENT")
    if not assessment.calibrated and found == "SUFFICIENT":
        found = "PARTIAL"
    reason = _reason(found, usable, len(different), gate.floor)
    if not assessment.calibrated:
        reason = f"{reason} This confidence is not calibrated."
    return ContextVerdict(found, confidence, reason, usable, gate.k)


def _reason(found: str, usable: int, count: int, floor: float) -> str:
    if not count:
        return "No passage was found."
    ending = {
        "SUFFICIENT": "the answer is likely to be among them",
        "PARTIAL": "the answer may be missing or incomplete",
        "INSUFFICIENT": "the answer is probably not among them",
    }[found]
    passages = "1 passage" if count == 1 else f"{count} passages"
    reach = "reaches" if usable == 1 else "reach"
    return f"{usable} of {passages} {reach} a relevance of {floor:g}; {ending}."
