"""A cache of search assessments of one model version; only the event loop uses it."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import Counter

from rerank.data.checks import to_json
from rerank.types import Assessment, Query

MAX_ASSESSMENTS = 1000  # beyond that, the one that expires next is dropped


class AnswerCache:
    """Keeps an assessment for `seconds` times its confidence; `lookups` counts `hit` and `miss`."""

    def __init__(
        self,
        seconds: float,
        *,
        lookups: Counter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds, self._lookups, self._clock = seconds, lookups, clock
        self._version = ""
        self._kept: dict[str, tuple[float, Assessment]] = {}  # with the time when it expires

    def get(self, query: Query, version: str) -> Assessment | None:
        """The kept assessment by the model of this version, or None."""
        if version != self._version:
            self._version, self._kept = version, {}
        key = self._key(query)
        if key is None:
            return None
        until, found = self._kept.get(key, (0.0, None))
        if found is not None and self._clock() >= until:
            del self._kept[key]
            found = None
        if self._lookups is not None:
            self._lookups.labels("miss" if found is None else "hit").inc()
        return found

    def add(self, query: Query, version: str, assessment: Assessment) -> None:
        """Keep an assessment, unless a model of another version answers by now."""
        key, life = self._key(query), self._seconds * assessment.confidence
        if key is None or life <= 0 or version != (self._version or version):
            return
        self._version = version
        if key not in self._kept and len(self._kept) >= MAX_ASSESSMENTS:
            del self._kept[min(self._kept, key=lambda k: self._kept[k][0])]
        self._kept[key] = self._clock() + life, assessment

    def _key(self, query: Query) -> str | None:
        """The key of a search; None if it is not cached."""
        if not self._seconds or query.mode != "search":
            return None
        return to_json([query.text, query.metadata, query.where and query.where.to_dict()])
