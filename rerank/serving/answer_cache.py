"""Assessments of searches that were asked before: sure ones are kept longer than unsure ones.

A model answers a search always alike, so an assessment is kept with the version of its model, and
all are forgotten when another model answers. Only the event loop uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rerank.data.text import to_json
from rerank.types import Assessment, Query

MOST = 1000  # assessments; then the one that would be forgotten next makes room


class AnswerCache:
    """Keeps an assessment for `seconds` times its confidence; 0 keeps none.

    `count` is told of each search that is looked up: `hit` or `miss`.
    """

    def __init__(
        self,
        seconds: float,
        *,
        count: Callable[[str], None] = lambda outcome: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._count = count
        self._clock = clock
        self._version = ""
        self._kept: dict[str, tuple[float, Assessment]] = {}  # until when

    def get(self, query: Query, version: str) -> Assessment | None:
        """The assessment by the model of this version; None where there is none any more."""
        key = self._key(query, version)
        if key is None:
            return None
        until, found = self._kept.get(key, (0.0, None))
        if found is not None and self._clock() >= until:
            del self._kept[key]
            found = None
        self._count("miss" if found is None else "hit")
        return found

    def add(self, query: Query, version: str, found: Assessment) -> None:
        """Keep an assessment by the model of this version."""
        key, life = self._key(query, version), self._seconds * found.confidence
        if key is None or life <= 0:
            return
        if key not in self._kept and len(self._kept) >= MOST:
            del self._kept[min(self._kept, key=lambda k: self._kept[k][0])]
        self._kept[key] = self._clock() + life, found

    def _key(self, query: Query, version: str) -> str | None:
        """What names a search; None where nothing is kept. Another version forgets all."""
        if not self._seconds or query.mode != "search":
            return None
        if version != self._version:
            self._version = version
            self._kept.clear()
        return to_json([query.text, query.metadata])
