"""What the server counts, for Prometheus: in a registry of its own, so that two do not mix."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from rerank.types import Assessment

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TENTHS = tuple(i / 10 for i in range(1, 11))
LEVELS = ("HIGH", "MEDIUM", "LOW", "VERY_LOW")
DOORS = ("search", "rerank", "assess")


class Metrics:
    """Counters, gauges and histograms, each under `rerank_`."""

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
            "By stage. queue: of a request, until it is begun. encode, read (the cross-encoder) "
            "and answer (all of it): of a batch",
            ["stage"],
            buckets=SECONDS,
            registry=r,
        )
        self.batch = Histogram(
            "rerank_batch_requests",
            "Requests ranked in one call",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=r,
        )
        self.in_hand = Gauge("rerank_requests_in_hand", "Requests not answered yet", registry=r)
        self.refused = Counter(
            "rerank_refused", "Requests refused, by reason", ["reason"], registry=r
        )
        self.confidence = Histogram(
            "rerank_confidence",
            "Calibrated probability that the first passage is right",
            ["door"],
            buckets=TENTHS,
            registry=r,
        )
        self.levels = Counter(
            "rerank_levels", "Assessments by level of confidence", ["door", "level"], registry=r
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
            "rerank_model_swaps", "New models met, by outcome", ["outcome"], registry=r
        )
        self.model = Gauge("rerank_model_info", "The model that answers", ["model"], registry=r)
        self.loaded = Gauge(
            "rerank_model_loaded_timestamp_seconds", "When it was loaded", registry=r
        )
        self.drift_p.set(1.0)
        for outcome in ("swapped", "refused"):
            self.swaps.labels(outcome)
        for alarm in ("yes", "no"):
            self.drift_windows.labels(alarm)
        for door in DOORS:
            for level in LEVELS:
                self.levels.labels(door, level)

    def assessed(self, door: str, found: Assessment) -> None:
        """Count one assessment."""
        self.confidence.labels(door).observe(found.confidence)
        self.levels.labels(door, found.level).inc()
