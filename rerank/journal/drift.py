"""Have the questions changed? The features of a journal's newest answers beside those fitted on.

It knows nothing of models: the sketch of what was fitted on is passed in.
"""

from __future__ import annotations

import time

import numpy as np
from sqlalchemy import func, select

from calibration.monitoring.drift import Drift, Sketch, alarm
from rerank.journal.schema import JOURNAL
from rerank.journal.store import DAY, JournalStore
from rerank.types import Mode

_C = JOURNAL.c
BYTES = 8  # of a feature


def journal_drift(
    store: JournalStore,
    sketch: Sketch,
    *,
    model: str,
    mode: Mode,
    days: float,
    newest: int,
    level: float,
) -> Drift | None:
    """Compare answers of a model in one mode with the sketch of what it was fitted on.

    These are the `newest` of the last `days`. Nothing is asked again, and no text is needed: the
    journal holds the features. The answers to one question count as rephrasings of it.
    Without any change, the chance of an alarm is at most `level` at one look.

    Returns:
        None if the journal holds the features of no such answer.

    Raises:
        JournalError: the database cannot be used.
        ValueError: a level outside (0, 1).
    """
    chosen = (
        select(_C.features, _C.question_hash)
        .where(_C.time >= time.time() - days * DAY, _C.model == model, _C.mode == mode)
        .where(func.length(_C.features) == BYTES * len(sketch.names))
        .order_by(_C.entry_id.desc())
        .limit(newest)
    )
    rows = store.rows(chosen)
    if not rows:
        return None
    features = np.stack([np.frombuffer(row["features"], "<f8") for row in rows])
    return alarm(sketch, features, level=level, groups=[row["question_hash"] for row in rows])
