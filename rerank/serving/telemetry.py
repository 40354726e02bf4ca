"""The server's telemetry: metrics, structured logs, and the drift alarm.

It knows nothing of HTTP.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from calibration.monitoring.drift import Drift, Sketch, alarm
from rerank.config import LEVELS
from rerank.data.canonical import query_hash
from rerank.types import MODES, Assessment, Floats

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TENTHS = tuple(i / 10 for i in range(1, 11))
LOGGERS = {"rerank": logging.INFO, "uvicorn": logging.WARNING, "asyncio": logging.WARNING}
MAX_LINES = 100  # distinct lines that are remembered


class Metrics:
    """Counters, gauges and histograms for Prometheus, all with the prefix `rerank_`.

    Each instance has its own registry, so that two servers in one process do not mix.
    """

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        PlatformCollector(registry=r)
        self.requests = Counter(
            "rerank_requests", "Requests answered", ["route", "status"], registry=r
        )
        self.seconds = Histogram(
            "rerank_request_seconds",
            "From the first byte of a request to the last of its answer",
            ["route"],
            buckets=SECONDS,
            registry=r,
        )
        self.stages = Histogram(
            "rerank_stage_seconds",
            "By stage. Of a request: queue (until it is begun), total (until it is answered). Of "
            "a round of requests: encode (the bi-encoder), score (the cross-encoder)",
            ["stage"],
            buckets=SECONDS,
            registry=r,
        )
        self.batch_size = Histogram(
            "rerank_batch_size",
            "Requests worked on in one round",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=r,
        )
        self.in_progress = Gauge(
            "rerank_requests_in_progress", "Requests not answered yet", registry=r
        )
        self.backlog = Gauge(
            "rerank_backlog_seconds",
            "Time that the requests in progress take, by the measured rate",
            registry=r,
        )
        self.refused = Counter(
            "rerank_requests_refused", "Requests refused, by reason", ["reason"], registry=r
        )
        self.repeated = Counter(
            "rerank_log_lines_left_out",
            "Repeated lines of a library that were not logged again",
            ["library"],
            registry=r,
        )
        self.confidence = Histogram(
            "rerank_confidence",
            "Calibrated probability that the first passage is right",
            ["mode"],
            buckets=TENTHS,
            registry=r,
        )
        self.assessments = Counter(
            "rerank_assessments",
            "Assessments by mode and level of confidence",
            ["mode", "level"],
            registry=r,
        )
        self.drift = Gauge(
            "rerank_drift_alarm",
            "1 where the last whole window of searches differs from those that were fitted on",
            registry=r,
        )
        self.drift_p = Gauge("rerank_drift_p_value", "Of the last whole window", registry=r)
        self.drift_windows = Counter(
            "rerank_drift_windows", "Windows compared, by outcome", ["alarm"], registry=r
        )
        self.swaps = Counter(
            "rerank_model_swaps", "New models found, by outcome", ["outcome"], registry=r
        )
        self.model = Gauge("rerank_model_info", "The model that answers", ["model"], registry=r)
        self.loaded = Gauge(
            "rerank_model_loaded_timestamp_seconds", "When it was loaded", registry=r
        )
        self.cache = Counter(
            "rerank_cache", "Searches looked up in the cache, by outcome", ["outcome"], registry=r
        )
        self.journal = Counter(
            "rerank_journal_entries",
            "Assessed questions, by what became of them",
            ["outcome"],
            registry=r,
        )
        self.journal_failures = Counter(
            "rerank_journal_failures", "Tries to write the journal that failed", registry=r
        )
        self.journal_waiting = Gauge(
            "rerank_journal_waiting", "Entries of the journal that are not written yet", registry=r
        )
        self.reset_drift()
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Create the series of known labels, so that a first count shows as a rise."""
        for outcome in ("swapped", "refused"):
            self.swaps.labels(outcome)
        for outcome in ("hit", "miss"):
            self.cache.labels(outcome)
        for library in LOGGERS:
            if library != "rerank":
                self.repeated.labels(library)
        for fired in ("yes", "no"):
            self.drift_windows.labels(fired)
        for mode in MODES:
            for level in LEVELS:
                self.assessments.labels(mode, level)

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Count the seconds of one stage."""
        self.stages.labels(stage).observe(seconds)

    def count_assessment(self, assessment: Assessment) -> None:
        """Count one assessment."""
        self.confidence.labels(assessment.mode).observe(assessment.confidence)
        self.assessments.labels(assessment.mode, assessment.level).inc()

    def count_cache(self, outcome: str) -> None:
        """Count a cache lookup of a search."""
        self.cache.labels(outcome).inc()

    def count_journal(self, outcome: str, count: int) -> None:
        """Count journal entries by outcome; for `failed`, the failed attempts to write them."""
        if outcome == "failed":
            self.journal_failures.inc(count)
        else:
            self.journal.labels(outcome).inc(count)

    def set_drift(self, drift: Drift) -> None:
        """Show the result of a complete window."""
        self.drift.set(drift.fired)
        self.drift_p.set(drift.p_value)
        self.drift_windows.labels("yes" if drift.fired else "no").inc()

    def reset_drift(self) -> None:
        """Show no alarm, because nothing is known yet, such as for a new model."""
        self.drift.set(False)
        self.drift_p.set(1)


logger = logging.getLogger("rerank.serving")


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, severity, event, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; an exception gives type and stack only, as its message may quote a request."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "severity": record.levelname.lower(),
            "event": record.getMessage().strip(),
        }
        fields |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)
            fields["error"] = type(error).__name__
            fields["at"] = [f"{f.filename}:{f.lineno} {f.name}" for f in frames[-8:]]
        return json.dumps(fields, default=str)


def event(name: str, *, severity: int = logging.INFO, exc_info: Any = None, **fields: Any) -> None:
    """Log one event with its fields."""
    logger.log(severity, name, extra={"fields": fields}, exc_info=exc_info)


class RepeatFilter(logging.Filter):
    """Logs the same line of a library once per `seconds`, with the number of repeats left out.

    Lines are the same if logger and first 30 characters agree; the rest may differ, such as a
    socket's number. Lines left out are counted. Our own events always pass: each is different.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._metrics = metrics
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # last logged at; left out since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        library = record.name.partition(".")[0]
        if library == logger.name.partition(".")[0]:
            return True
        key, now = (record.name, record.getMessage()[:30]), self._clock()
        passed, left_out = self._seen.get(key, (-math.inf, 0))
        if now - passed < self._seconds:
            self._seen[key] = passed, left_out + 1
            self._metrics.repeated.labels(library).inc()
            return False
        if len(self._seen) >= MAX_LINES:
            self._seen.clear()
        self._seen[key] = now, 0
        if left_out:
            record.fields = {"left_out": left_out}
        return True


def log_to_stderr(metrics: Metrics) -> None:
    """Send our events, and the warnings of the HTTP server and its loop, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(RepeatFilter(metrics))
    for name, level in LOGGERS.items():
        chosen = logging.getLogger(name)
        chosen.handlers = [handler]
        chosen.setLevel(level)
        chosen.propagate = False


class DriftWindow:
    """Compares the features of the latest answers with those that the model was fitted on.

    They are compared once `size` of them are collected; then the next window begins. Windows do
    not overlap, so each has a false alarm with probability at most `level`. The answers to one
    question count as rephrasings of it. Not thread-safe.
    """

    def __init__(self, sketch: Sketch, *, size: int, level: float) -> None:
        self._sketch = sketch
        self._size = size
        self._level = level
        self._rows: list[Floats] = []
        self._questions: list[str] = []  # their hashes

    def add(self, assessment: Assessment) -> Drift | None:
        """Add an answer; return the result if the window is now complete, else None."""
        if not len(assessment.ranking):
            return None
        self._rows.append(assessment.features)
        self._questions.append(query_hash(assessment.ranking.query.text))
        if len(self._rows) < self._size:
            return None
        rows, self._rows = self._rows, []
        questions, self._questions = self._questions, []
        return alarm(self._sketch, np.stack(rows), level=self._level, groups=questions)
