"""The ranking thread: rounds, requests that cannot be in time, and a shutdown that answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from http_checks import HEAD, assert_refused, body, connect, metric
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.steps import Speed
from rerank.errors import InputError
from rerank.serving.model_source import ModelHolder
from rerank.serving.refusals import Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics
from rerank.serving.worker import Worker
from rerank.types import Passage, Query

Asked = tuple[Query, str | None]
WAIT = 3600  # seconds that no test needs
PATIENT = 3600.0  # seconds: no machine is so slow that a request is refused or late


@pytest.fixture(scope="module")
def loaded(run: Any) -> ModelHolder:
    """The session's model, loaded once."""
    return ModelHolder(lambda: run.folder, Metrics())


@pytest.fixture
def holder(loaded: ModelHolder) -> ModelHolder:
    """The same, with metrics that have counted nothing."""
    loaded.metrics = Metrics()
    loaded.current.model.pipeline.observe = loaded.metrics.observe_stage
    return loaded


@pytest.fixture
def swift(holder: ModelHolder, monkeypatch: pytest.MonkeyPatch) -> ModelHolder:
    """The same, said to be so fast that no estimate refuses a request or cuts it into pieces."""
    monkeypatch.setattr(holder, "current", replace(holder.current, speed=Speed(1e-9, 1e-9)))
    return holder


def assess_waiting(holder: ModelHolder, asked: Sequence[Asked], **settings: Any) -> list[Any]:
    """What a worker answers that starts when all of these wait in its queue."""

    async def main() -> list[Any]:
        worker = Worker(holder, Settings(timeout=PATIENT, **settings))
        tasks = [asyncio.create_task(worker.assess(*one)) for one in asked]
        await asyncio.sleep(0)  # each is in the queue now
        worker.start()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(worker.finish)
        return found

    return asyncio.run(main())


def rounds(holder: ModelHolder) -> list[float]:
    """How many rounds there were, and how many pieces of work were in them."""
    names = ("rerank_batch_size_count", "rerank_batch_size_sum")
    return [holder.metrics.registry.get_sample_value(name) or 0.0 for name in names]


def test_requests_that_wait_share_rounds(
    swift: ModelHolder, model: CalibratedReranker, queries: list[str]
) -> None:
    """Of the size that is set; a search has two pieces, and gets what it would have got alone."""
    answers = assess_waiting(swift, [(Query(q), None) for q in queries[:5]], batch=2)
    assert rounds(swift) == [5, 10]
    confidences = [found.confidence for found, _ in answers]
    assert confidences == [model.search(q).confidence for q in queries[:5]]
    assert all(served is swift.current for _, served in answers)


def test_a_long_request_lets_others_come_between(
    holder: ModelHolder, model: CalibratedReranker, texts: list[str]
) -> None:
    """The one that came last is answered first, and each as it would be alone."""
    long = tuple(Passage(str(i), "", text) for i, text in enumerate(texts[:200]))
    asked = [Query("median", passages=long), Query("median"), Query("mean", passages=long[:2])]
    order: list[int] = []

    async def main() -> list[Any]:
        worker = Worker(holder, Settings(timeout=PATIENT))

        async def one(i: int) -> Any:
            found = await worker.assess(asked[i])
            order.append(i)
            return found

        tasks = [asyncio.create_task(one(i)) for i in range(3)]
        await asyncio.sleep(0)
        worker.start()
        answers = await asyncio.gather(*tasks)
        await asyncio.to_thread(worker.finish)
        return answers

    answers = asyncio.run(main())
    assert order[-1] == 0
    assert rounds(holder)[1] > 6
    expected = [a.confidence for a in model.assess(asked)]
    assert [found.confidence for found, _ in answers] == expected


def test_what_takes_too_long_is_refused_at_once(
    holder: ModelHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the estimate: 413 where it takes too long alone, 429 where it does beside the others."""
    long = Query("median", passages=tuple(Passage(str(i), "", "word " * 60) for i in range(100)))
    monkeypatch.setattr(holder, "current", replace(holder.current, speed=Speed(0.001, 0.001)))

    async def main() -> None:
        worker = Worker(holder, Settings(timeout=PATIENT))  # not started: all that comes waits
        worker.schedule.allowed = 5.0
        with pytest.raises(Refusal, match=r"about [6-9].* seconds, .* may take 5;") as refused:
            await worker.assess(long)
        assert (refused.value.status, refused.value.reason) == (413, "cost")
        worker.schedule.allowed = 10.0
        waiting = asyncio.create_task(worker.assess(long))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match=r"about 1.* seconds, and 10 are allowed") as refused:
            await worker.assess(long)
        assert refused.value.status == 429
        assert refused.value.headers["Retry-After"] == str(worker.retry_after())
        assert holder.metrics.registry.get_sample_value("rerank_backlog_seconds") > 5
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        worker.start()
        await asyncio.to_thread(worker.finish)

    asyncio.run(main())
    assert rounds(holder) == [0, 0]


def test_a_query_that_fails_fails_alone(holder: ModelHolder, model: CalibratedReranker) -> None:
    """In one batch: an empty query, scores of another reranker, and two that are answered."""
    brought = (Passage("0", "", "The middle value."),)
    logits = model.rerank("median", brought).ranking.logits
    scored = Query("median", passages=brought, logits=logits)
    found, empty, foreign, known = assess_waiting(
        holder,
        [
            (Query("median"), None),
            (Query(" "), None),
            (scored, "another"),
            (scored, holder.current.reranker),
        ],
    )
    assert isinstance(empty, InputError)
    assert isinstance(foreign, Refusal)
    assert (foreign.status, "another" in foreign.sentence) == (409, True)
    assert found[0].confidence == model.search("median").confidence
    assert known[0].confidence == model.rerank("median", brought).confidence


def test_a_failure_of_the_server_is_not_the_client_s(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused after the query was checked is a defect; it is logged, and not told."""

    def broken(*_: object) -> None:
        raise InputError("/internal/place: its network cannot be used")

    with serving(run.folder) as started:
        monkeypatch.setattr(started.holder.current.model.pipeline, "score_pairs", broken)
        answer = httpx.post(f"{started.url}/v1/search", json={"query": "median"}, timeout=WAIT)
        empty = httpx.post(f"{started.url}/v1/search", json={"query": " "}, timeout=WAIT)
    assert_refused(answer, 500, "the server failed; its log has more")
    assert "internal" not in answer.text
    assert_refused(empty, 422, "empty")


def test_a_turn_that_does_not_come_is_503(swift: ModelHolder) -> None:
    """With when to come again; what was given up is not ranked later."""

    async def main() -> Worker:
        worker = Worker(swift, Settings(timeout=0.01))
        with pytest.raises(Refusal, match=r"not be ready within 0\.01 seconds") as refused:
            await worker.assess(Query("median"))
        assert refused.value.status == 503
        assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
        worker.start()
        await asyncio.to_thread(worker.finish)
        return worker

    assert not asyncio.run(main()).alive()
    assert rounds(swift) == [0, 0]


def test_an_answer_that_is_not_ready_is_504(
    swift: ModelHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun and takes too long is refused; the worker then ends as usual."""
    begun, ready = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        begun.set()
        ready.wait(WAIT)

    async def main() -> None:
        worker = Worker(swift, Settings(timeout=PATIENT))
        swift.current.model.pipeline.observe = hold
        answer = asyncio.create_task(worker.assess(Query("median")))
        worker.start()
        await asyncio.to_thread(begun.wait)
        loop, now = asyncio.get_running_loop(), time.monotonic
        monkeypatch.setattr(loop, "time", lambda: now() + PATIENT)
        with pytest.raises(Refusal, match="not ready within 3600 seconds") as refused:
            await answer
        assert refused.value.status == 504
        ready.set()
        await asyncio.to_thread(worker.finish)

    asyncio.run(main())
    assert rounds(swift) == [1, 1]


def test_a_client_that_has_gone_is_not_worked_for(run: Any) -> None:
    """Its request ends with the piece that was being done when it went away."""
    begun, gone = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        begun.set()
        gone.wait(WAIT)

    with (
        serving(run.folder) as started,
        httpx.Client(base_url=started.url, timeout=WAIT) as client,
    ):
        started.holder.current.model.pipeline.observe = hold
        with connect(started.url, HEAD, body().ljust(50)):
            assert begun.wait(WAIT)
        while metric(client, "rerank_requests_in_progress"):
            pass
        assert metric(client, "rerank_requests_refused_total", reason="gone") == 1
        gone.set()
        started.stop()
        assert rounds(started.holder) == [1, 1]


def test_shutdown_answers_what_was_accepted(run: Any) -> None:
    """Requests that are ranked, or wait for it, when the server is told to stop are answered."""
    begun, stopping = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        begun.set()
        stopping.wait(WAIT)

    with (
        serving(run.folder, batch=2) as started,
        httpx.Client(base_url=started.url, timeout=WAIT) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        started.holder.current.model.pipeline.observe = hold
        sent = [pool.submit(client.post, "/v1/search", json={"query": f"{i}"}) for i in range(3)]
        assert begun.wait(WAIT)
        while metric(client, "rerank_requests_in_progress") < 3:
            pass
        stop = pool.submit(started.stop)
        while not started.server.should_exit:
            pass
        stopping.set()
        assert [s.result().status_code for s in sent] == [200] * 3
        stop.result()
