"""What is kept of searches, for how long, and when it is forgotten."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from assessments import make_assessment
from http_checks import metric
from server import serving

from rerank.serving import worker
from rerank.serving.worker import AnswerCache
from rerank.types import Passage, Query

Run = Any  # the session's run, see conftest
ASKED = Query("median")


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_sure_answers_are_kept_longer() -> None:
    """As long as the seconds times the confidence; 0 seconds keep nothing."""
    clock = Clock()
    cache = AnswerCache(100, clock=clock)
    sure, unsure = make_assessment(confidence=0.9), make_assessment(confidence=0.2)
    cache.add(ASKED, "m", sure)
    cache.add(Query("mean"), "m", unsure)
    clock.now = 19.0
    assert cache.get(Query("mean"), "m") is unsure
    clock.now = 21.0
    assert cache.get(Query("mean"), "m") is None
    assert cache.get(ASKED, "m") is sure
    clock.now = 91.0
    assert cache.get(ASKED, "m") is None
    off = AnswerCache(0)
    off.add(ASKED, "m", sure)
    assert off.get(ASKED, "m") is None


def test_another_version_forgets_all() -> None:
    """Also where the one before comes back."""
    cache = AnswerCache(100)
    cache.add(ASKED, "m", make_assessment(confidence=0.9))
    assert cache.get(ASKED, "n") is None
    assert cache.get(ASKED, "m") is None


def test_a_late_answer_of_the_old_model_forgets_nothing() -> None:
    """A request may end after the swap; its answer is not kept."""
    cache, kept = AnswerCache(100), make_assessment(confidence=0.9)
    assert cache.get(ASKED, "new") is None
    cache.add(ASKED, "new", kept)
    cache.add(Query("mean"), "old", make_assessment(confidence=0.9))
    assert cache.get(ASKED, "new") is kept
    assert cache.get(Query("mean"), "new") is None


def test_other_questions_are_others() -> None:
    """Text and metadata name a search; lists of callers are not kept."""
    cache = AnswerCache(100)
    found = make_assessment(confidence=0.9)
    cache.add(Query("median", metadata={"lang": "en"}), "m", found)
    assert cache.get(Query("median", "id", {"lang": "en"}), "m") is found
    for other in (ASKED, Query("median", metadata={"lang": "de"}), Query("Median")):
        assert cache.get(other, "m") is None
    brought = Query("median", passages=(Passage("0", "", "text"),))
    cache.add(brought, "m", found)
    assert cache.get(brought, "m") is None


def test_the_next_to_be_forgotten_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the surest stay."""
    monkeypatch.setattr(worker, "MAX_ASSESSMENTS", 2)
    cache = AnswerCache(100, clock=Clock())
    for text, confidence in (("a", 0.9), ("b", 0.3), ("c", 0.5)):
        cache.add(Query(text), "m", make_assessment(confidence=confidence))
    assert [cache.get(Query(text), "m") is not None for text in "abc"] == [True, False, True]


def test_a_server_answers_from_it_to_the_bit(run: Run) -> None:
    """The second answer is the first, but for its id; and it is counted."""
    with (
        serving(run.folder, cache_seconds=3600.0) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
    ):
        first, second = (
            client.post("/v1/search", json={"query": "median of an array"}).json() for _ in "ab"
        )
        assert first.pop("id") != second.pop("id")
        assert first == second
        assert metric(client, "rerank_cache_total", outcome="hit") == 1
        assert metric(client, "rerank_cache_total", outcome="miss") == 1
