"""What to do with passages and answers: is the context enough, must a person check the answer?

An answer below the advisory threshold is recorded and flagged: never used silently, nor dropped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from rerank.advice.adaptive import depth
from rerank.advice.settings import DEEPEST, FLOOR
from rerank.config import ACTIONS, Thresholds, hundredths
from rerank.data.duplicates import distinct
from rerank.errors import InputError
from rerank.types import Assessment

logger = logging.getLogger(__name__)
LOW_CONFIDENCE_EVENT = "RAG_ADVISORY_LOW_CONFIDENCE"
LEGAL = Thresholds(high=0.85)
EventSink = Callable[[Mapping[str, Any]], None]  # takes one event
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


@dataclass(frozen=True, slots=True)
class Decision:
    """An assessment with its level and what to do with it."""

    assessment: Assessment
    confidence: float
    level: str
    flagged: bool  # below the threshold, or not calibrated: a person must check it before use
    calibrated: bool = True

    @property
    def action(self) -> str:
        """What to do at this level."""
        return ACTIONS[self.level]

    @property
    def flag(self) -> str:
        """The level as a name of its own, such as HIGH_CONFIDENCE."""
        return f"{self.level}_CONFIDENCE"

    def to_dict(self) -> dict[str, Any]:
        """The decision without the assessment, as plain JSON values."""
        names = ("confidence", "level", "flag", "action", "flagged", "calibrated")
        return {name: getattr(self, name) for name in names}


def decide(
    assessment: Assessment,
    thresholds: Thresholds | None = None,
    *,
    confidence: float | None = None,
    summary: str = "",
    record: EventSink | None = None,
) -> Decision:
    """What to do with the answer, by the model's thresholds or by others; a flag is an event too.

    An answer of a model that is not calibrated is always flagged. `confidence` in [0, 1] is that of
    a generated answer, fitted on labels; it replaces that of the retrieval. `record` receives the
    event, by default as a warning in the log; if it fails, that is logged. `summary` says what the
    answer is about; by default it is the id of the top passage.

    Raises:
        InputError: the confidence is not a probability.
    """
    sure = assessment.confidence if confidence is None else confidence
    if not isinstance(sure, Real) or not 0 <= sure <= 1:
        raise InputError(
            f"`confidence` should be a number from 0 to 1, got {sure!r:.100}; leave it out to "
            "decide by the confidence of the retrieval"
        )
    sure, t = float(sure), thresholds or assessment.thresholds
    calibrated = assessment.calibrated or confidence is not None
    flagged = not t.accepts(sure, calibrated=calibrated)
    level, top = t.level(sure, calibrated=calibrated), assessment.top
    if flagged:
        event = {
            "event": LOW_CONFIDENCE_EVENT,
            "confidence": sure,
            "threshold": t.advisory,
            "summary": summary or (f"top passage {top.doc_id}" if top else "no passage"),
        }
        try:
            if record is None:
                logger.warning("%s", json.dumps(event))
            else:
                record(event)
        except Exception:
            logger.exception("an advisory event was not recorded: %r", event)
    return Decision(assessment, sure, level, flagged, calibrated)
