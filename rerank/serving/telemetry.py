"""The server's telemetry: metrics, structured logs, and the drift alarm."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import product
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

from calibration.drift import Drift, Sketch, alarm
from rerank.config import LEVELS
from rerank.data.checks import query_hash
from rerank.types import MODES, Assessment, Floats

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TENTHS = tuple(i / 10 for i in range(1, 11))
LOGGERS = {"rerank": logging.INFO, "uvicorn": logging.WARNING, "asyncio": logging.WARNING}
LOGGERS |= {"opentelemetry": logging.WARNING}
MAX_LINES = 100  # distinct lines that are remembered


class Metrics:
    """Counters, gauges and histograms for Prometheus, `rerank_...`, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        PlatformCollector(registry=r)
        counter = partial(Counter, namespace="rerank", registry=r)
        gauge = partial(Gauge, namespace="rerank", registry=r)
        histogram = partial(Histogram, namespace="rerank", registry=r)
        self.requests = counter("requests", "Requests answered", ["route", "status"])
        about = "From the first byte of a request to the last of its answer"
        self.seconds = histogram("request_seconds", about, ["route"], buckets=SECONDS)
        about = (
            "By stage. Of a request: queue (until it is begun), total (until it is answered). Of "
            "a round of requests: encode (the bi-encoder), score (the cross-encoder)"
        )
        self.stages = histogram("stage_seconds", about, ["stage"], buckets=SECONDS)
        sizes = (1, 2, 4, 8, 16, 32, 64)
        self.batch_size = histogram("batch_size", "Requests worked on in one round", buckets=sizes)
        self.in_progress = gauge("requests_in_progress", "Requests not answered yet")
        about = "Time that the requests in progress take, by the measured rate"
        self.backlog = gauge("backlog_seconds", about)
        self.refused = counter("requests_refused", "Requests refused, by reason", ["reason"])
        about = "Calibrated probability that the first passage is right"
        self.confidence = histogram("confidence", about, ["mode"], buckets=TENTHS)
        about = "Assessments by mode and level of confidence"
        self.assessments = counter("assessments", about, ["mode", "level"])
        about = "1 where the last whole window of searches differs from those that were fitted on"
        self.drift = gauge("drift_alarm", about)
        self.drift_p = gauge("drift_p_value", "Of the last whole window")
        about = "1 where a model behind an address is another than at the fit"
        self.shifted = gauge("remote_shifted", about)
        about = "Answers of the first stage alone, because the reranker failed"
        self.first_stage = counter("first_stage_answers", about)
        self.drift_windows = counter("drift_windows", "Windows compared, by outcome", ["alarm"])
        self.swaps = counter("model_swaps", "New models, by outcome", ["outcome"])
        self.model = gauge("model_info", "The model that answers", ["model"])
        self.loaded = gauge("model_loaded_timestamp_seconds", "When it was loaded")
        self.cache = counter("cache", "Searches looked up in the cache, by outcome", ["outcome"])
        about = "Assessed questions, by what became of them"
        self.journal = counter("journal_entries", about, ["outcome"])
        self.journal_failures = counter(
            "journal_failures", "Tries to write the journal that failed"
        )
        self.journal_waiting = gauge(
            "journal_waiting", "Entries of the journal that are not written yet"
        )
        self.show_drift(None)
        yes_and_no = [(self.swaps, "swapped", "refused"), (self.cache, "hit", "miss")]
        for metric, *outcomes in (*yes_and_no, (self.drift_windows, "yes", "no")):
            for outcome in outcomes:  # so that a first count shows as a rise
                metric.labels(outcome)
        for mode, level in product(MODES, LEVELS):
            self.assessments.labels(mode, level)

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Count the seconds of one stage."""
        self.stages.labels(stage).observe(seconds)

    def count_assessment(self, assessment: Assessment) -> None:
        """Count one assessment."""
        self.confidence.labels(assessment.mode).observe(assessment.confidence)
        self.assessments.labels(assessment.mode, assessment.level).inc()
        self.first_stage.inc(assessment.first_stage)

    def count_journal(self, outcome: str, count: int) -> None:
        """Count journal entries by outcome; for `failed`, the failed attempts to write them."""
        failed = outcome == "failed"
        (self.journal_failures if failed else self.journal.labels(outcome)).inc(count)

    def show_drift(self, drift: Drift | None) -> None:
        """Show the result of a complete window; None where nothing is known yet: no alarm."""
        self.drift.set(drift.fired if drift else 0)
        self.drift_p.set(drift.p_value if drift else 1)
        if drift:
            self.drift_windows.labels("yes" if drift.fired else "no").inc()


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


class OnceAMinute(logging.Filter):
    """Lets a library's lines of one beginning pass once a minute; our own events always."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if record.name == logger.name:
            return True
        key, now = (record.name, record.getMessage()[:30]), self._clock()
        if now - self._passed.get(key, -math.inf) < 60:
            return False
        if len(self._passed) >= MAX_LINES:
            self._passed.clear()
        self._passed[key] = now
        return True


def log_to_stderr() -> None:
    """Send our events, and the warnings of the HTTP server and its loop, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(OnceAMinute())
    for name, level in LOGGERS.items():
        chosen = logging.getLogger(name)
        chosen.handlers = [handler]
        chosen.setLevel(level)
        chosen.propagate = False


class DriftWindow:
    """Compares the features of the latest answers with those that the model was fitted on.

    They are compared once `size` of them are collected; then the next window begins. Each has a
    false alarm with probability at most `level`. Not thread-safe.
    """

    def __init__(self, sketch: Sketch, *, size: int, level: float) -> None:
        self._sketch, self._size, self._level = sketch, size, level
        self._rows: list[tuple[Floats, str]] = []  # the features, and the hash of the question

    def add(self, assessment: Assessment) -> Drift | None:
        """Add an answer; return the result if the window is now complete, else None."""
        if not len(assessment.ranking):
            return None
        first = (
            assessment.asked_before or assessment
        )  # the sketch is of the first one of two models
        self._rows.append((first.features, query_hash(assessment.ranking.query.text)))
        if len(self._rows) < self._size:
            return None
        (features, questions), self._rows = zip(*self._rows, strict=True), []
        return alarm(self._sketch, np.stack(features), level=self._level, groups=questions)
