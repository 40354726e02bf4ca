"""Structured logs: one JSON object a line. No text of a request, unless a caller logs it."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

logger = logging.getLogger("rerank.serving")


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, severity, event, and the fields that came with it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line. Of an exception it holds type and places; its message may quote a request."""
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


def log_to_stderr() -> None:
    """Send our events, and the warnings of the HTTP server, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("rerank", logging.INFO), ("uvicorn", logging.WARNING)):
        chosen = logging.getLogger(name)
        chosen.handlers = [handler]
        chosen.setLevel(level)
        chosen.propagate = False
