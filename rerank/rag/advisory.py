"""What to do with an answer: its level, and whether a person must check it before use.

An answer below the advisory threshold is recorded and flagged: never used silently, nor dropped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from rerank.config import ACTIONS, Thresholds
from rerank.errors import InputError
from rerank.types import Assessment

logger = logging.getLogger(__name__)
LOW_CONFIDENCE_EVENT = "RAG_ADVISORY_LOW_CONFIDENCE"
LEGAL = Thresholds(high=0.85)
EventSink = Callable[[Mapping[str, Any]], None]  # takes one event


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
