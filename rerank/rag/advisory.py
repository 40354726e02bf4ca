"""Levels of confidence with what to do at each, and decisions for automatic consumers.

An answer below the advisory threshold is recorded and returned with a flag: it is never used
silently, and never dropped. It knows nothing of models or files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from rerank.config import check_options, share
from rerank.errors import InputError, nearest
from rerank.types import Assessment

logger = logging.getLogger(__name__)
LOW_CONFIDENCE_EVENT = "RAG_ADVISORY_LOW_CONFIDENCE"
ACTIONS = {  # what to do at each level, surest first
    "HIGH_CONFIDENCE": "use directly and cite",
    "MEDIUM_CONFIDENCE": "use with caution, verify",
    "LOW_CONFIDENCE": "advisory only, verification required",
    "VERY_LOW_CONFIDENCE": "do not use, flag for review",
}
LOWEST = "VERY_LOW_CONFIDENCE"
EventSink = Callable[[Mapping[str, Any]], None]  # takes one event


@dataclass(frozen=True, slots=True)
class AdvisoryPolicy:
    """The thresholds of the levels, and the one below which an answer is flagged."""

    high: float = share(0.9, "confidence from here is HIGH_CONFIDENCE")
    medium: float = share(0.7, "confidence from here is MEDIUM_CONFIDENCE")
    low: float = share(0.5, "confidence from here is LOW_CONFIDENCE")
    threshold: float = share(0.7, "below this an answer is advisory only")

    def __post_init__(self) -> None:
        """Refuse bands that are out of order or out of range."""
        check_options(self)
        if not self.low <= self.medium <= self.high:
            raise InputError(
                f"expected `low` <= `medium` <= `high`, got {self.low}, {self.medium}, {self.high}"
            )

    def level(self, confidence: float, *, calibrated: bool = True) -> str:
        """The level of a confidence; a level begins at its threshold.

        Without calibration it is LOW_CONFIDENCE at most.
        """
        starts = (self.high, self.medium, self.low, float("-inf"))
        levels = list(zip(ACTIONS, starts, strict=True))[0 if calibrated else 2 :]
        return next(name for name, start in levels if confidence >= start)


PRESETS = {"default": AdvisoryPolicy(), "legal": AdvisoryPolicy(high=0.85)}


def preset(name: str) -> AdvisoryPolicy:
    """The policy of that name.

    Raises:
        InputError: there is none.
    """
    if name not in PRESETS:
        raise InputError(
            f"no advisory preset {name!r}; expected one of {', '.join(PRESETS)}"
            f"{nearest(name, PRESETS)}"
        )
    return PRESETS[name]


@dataclass(frozen=True, slots=True)
class Decision:
    """An assessment with its level and what to do with it."""

    assessment: Assessment
    confidence: float
    level: str
    action: str
    flagged: bool  # below the threshold, or not calibrated: a person must check it before use
    calibrated: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The decision without the assessment, as plain JSON values."""
        return {
            "confidence": self.confidence,
            "level": self.level,
            "action": self.action,
            "flagged": self.flagged,
            "calibrated": self.calibrated,
        }


def decide(
    assessment: Assessment,
    policy: AdvisoryPolicy = PRESETS["default"],
    *,
    confidence: float | None = None,
    summary: str = "",
    record: EventSink | None = None,
) -> Decision:
    """What to do with the answer; below the advisory threshold an event is recorded too.

    An answer of a model that is not calibrated is always flagged. `confidence` in [0, 1] is that of
    a generated answer, fitted on labels, if there is one; it replaces that of the retrieval.
    `record` receives the event; by default it is logged as a warning, in JSON. `summary` says in
    the event what the answer is about; by default it is the id of the top passage. If `record`
    fails, that is logged, and the decision is still returned.

    Raises:
        InputError: the confidence is not a probability.
    """
    sure = assessment.confidence if confidence is None else confidence
    if not isinstance(sure, Real) or not 0 <= sure <= 1:
        raise InputError(
            f"`confidence` should be a number from 0 to 1, got {sure!r:.100}; leave it out to "
            "decide by the confidence of the retrieval"
        )
    sure = float(sure)
    calibrated = assessment.calibrated or confidence is not None
    level = policy.level(sure, calibrated=calibrated)
    flagged = sure < policy.threshold or not calibrated
    decision = Decision(assessment, sure, level, ACTIONS[level], flagged, calibrated)
    if decision.flagged:
        top = assessment.top
        event = {
            "event": LOW_CONFIDENCE_EVENT,
            "confidence": sure,
            "threshold": policy.threshold,
            "summary": summary or (f"top passage {top.doc_id}" if top else "no passage"),
        }
        try:
            (record or _log)(event)
        except Exception:
            logger.exception("an advisory event was not recorded: %r", event)
    return decision


def _log(event: Mapping[str, Any]) -> None:
    logger.warning("%s", json.dumps(event))
