"""What a server may take and how long it may take for it: one frozen value, checked when made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rerank.data.records import LONGEST_PASSAGE, LONGEST_QUERY, MOST_PASSAGES
from rerank.errors import InputError

LEAST = {  # the smallest value that makes sense
    "port": 0,
    "queue": 1,
    "batch": 1,
    "max_body": 1024,
    "max_documents": 1,
    "max_document": 1,
    "max_query": 1,
    "max_depth": 3,
    "max_values": 10,
    "drift_window": 10,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to listen, and the bounds of every request."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    queue: int = 128  # requests in progress at once; the next one is answered 429
    batch: int = 16  # requests that wait and are then ranked in one call
    timeout: float = 30.0  # seconds for an answer, from the whole request on
    patience: float = 10.0  # seconds in which a client must have sent its request
    max_body: int = 4 * 1024 * 1024  # bytes
    max_documents: int = MOST_PASSAGES  # a request
    max_document: int = LONGEST_PASSAGE  # characters of a document
    max_query: int = LONGEST_QUERY  # characters of a query
    max_depth: int = 16  # of nested JSON
    max_values: int = 50_000  # in the JSON of a request
    poll: float = 5.0  # seconds between two looks at the model; 0: look only at SIGHUP
    drift_window: int = 200  # searches that the drift alarm compares at a time
    drift_level: float = 0.001  # chance of a false alarm of one window
    log_text: bool = False  # whether logs may hold queries

    def __post_init__(self) -> None:
        """Refuse bounds that no server can keep."""
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} should be {least} or more, got {getattr(self, name)}")
        for name in ("timeout", "patience"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} should be above 0 seconds, got {getattr(self, name)}")
        if not 0 <= self.poll < math.inf:
            raise InputError(f"poll should be 0 seconds or more, got {self.poll}")
        if not 0 < self.drift_level < 1:
            raise InputError(f"drift_level should be between 0 and 1, got {self.drift_level}")
        if self.port > 65535:
            raise InputError(f"port should be 65535 at most, got {self.port}")
