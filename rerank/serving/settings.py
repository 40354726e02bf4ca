"""The settings of a server: its address and its limits. Frozen, and checked on creation."""

from __future__ import annotations

from dataclasses import dataclass

from rerank.config import check_options, option
from rerank.data.checks import is_url
from rerank.data.records import LONGEST_PASSAGE, LONGEST_QUERY, LONGEST_RECORD, MAX_PASSAGES
from rerank.errors import InputError

DAY = 86_400  # seconds


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to listen, and the bounds of every request."""

    host: str = option(
        "127.0.0.1", "address to listen on; any but 127.0.0.1 needs keys in RERANK_API_KEYS"
    )
    port: int = option(8000, "port to listen on; 0 takes a free one", ge=0, le=65535)
    queue: int = option(128, "most requests in progress; a further one gets status 429", ge=1)
    batch: int = option(16, "most requests processed in one round", ge=1)
    timeout: float = option(30.0, "seconds to answer a request", gt=0, le=DAY)
    read_timeout: float = option(10.0, "seconds for a client to send its request", gt=0, le=DAY)
    max_body: int = option(LONGEST_RECORD, "most bytes of a request", ge=1024)
    max_documents: int = option(MAX_PASSAGES, "most documents of a request", ge=1)
    max_document: int = option(LONGEST_PASSAGE, "most characters of a document", ge=1)
    max_query: int = option(LONGEST_QUERY, "most characters of a query", ge=1)
    max_depth: int = option(16, "deepest nesting of a request's JSON", ge=3)
    max_values: int = option(50_000, "most values in a request's JSON", ge=10)
    poll: float = option(
        5.0, "seconds between checks for a new MODEL; 0: only at SIGHUP", ge=0, le=DAY
    )
    probe: float = option(
        10.0,
        "minutes between checks that remote models are still those of the calibration; 0: only "
        "when a model is loaded",
        ge=0,
        le=1440,
    )
    drift_window: int = option(200, "searches in each window of the drift alarm", ge=10)
    drift_level: float = option(0.001, "chance of a false alarm per window", gt=0, lt=1)
    log_text: bool = option(False, "write queries to the logs")
    cache_seconds: float = option(
        0.0,
        "how long the answer to a search is kept, times its confidence; 0: not at all",
        ge=0,
        le=DAY,
    )
    allow_origin: str = option(
        "",
        "comma-separated origins whose web pages may call the API, such as https://app.example.org",
    )
    otlp: str = option(
        "", "address of an OpenTelemetry collector for traces and metrics: http://HOST:4318"
    )
    journal: str = option(
        "",
        "database that every assessed question is written to: sqlite:///PATH or "
        "postgresql://USER@HOST/DATABASE",
    )
    journal_without_text: bool = option(
        False, "write hashes of questions and answers to the journal, and no text"
    )
    journal_days: float = option(90.0, "days that the journal keeps; 0: no limit", ge=0)
    journal_rows: int = option(1_000_000, "questions that the journal keeps; 0: no limit", ge=0)

    def __post_init__(self) -> None:
        check_options(self)
        if self.otlp and not is_url(self.otlp):
            expected = "an address such as http://127.0.0.1:4318"
            raise InputError(f"`otlp` should be {expected}, got {self.otlp!r:.100}")
        for origin in self.origins:
            if not is_url(origin) or origin.count("/") != 2:
                expected = "origins, such as https://app.example.org, without a path"
                raise InputError(f"`allow_origin` should name {expected}, got {origin!r:.100}")

    @property
    def origins(self) -> list[str]:
        """The origins whose web pages may ask."""
        return [part.strip() for part in self.allow_origin.split(",") if part.strip()]
