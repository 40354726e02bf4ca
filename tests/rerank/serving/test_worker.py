"""The queue and its thread: batches, turns that come too late, and a shutdown that answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from http_checks import metric
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.errors import InputError
from rerank.serving.model_source import ModelHolder
from rerank.serving.schemas import Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics
from rerank.serving.worker import MOST_PASSAGES, Worker
from rerank.types import Passage, Query

Asked = tuple[Query, str | None]
WAIT = 60  # seconds that no test needs


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


def assess_waiting(holder: ModelHolder, asked: Sequence[Asked], **settings: Any) -> list[Any]:
    """What a worker answers that starts when all of these wait in its queue."""

    async def main() -> list[Any]:
        worker = Worker(holder, Settings(**settings))
        tasks = [asyncio.create_task(worker.assess(*one)) for one in asked]
        await asyncio.sleep(0)  # each is in the queue now
        worker.start()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(worker.finish)
        return found

    return asyncio.run(main())


def batches(holder: ModelHolder) -> list[float]:
    """How many batches there were, and how many requests were in them."""
    names = ("rerank_batch_size_count", "rerank_batch_size_sum")
    return [holder.metrics.registry.get_sample_value(name) or 0.0 for name in names]


def test_requests_that_wait_are_ranked_together(
    holder: ModelHolder, model: CalibratedReranker, queries: list[str]
) -> None:
    """They share batches of the size that is set, and get what they would have got alone."""
    answers = assess_waiting(holder, [(Query(q), None) for q in queries[:5]], batch=2)
    assert batches(holder) == [3, 5]
    confidences = [found.confidence for found, _ in answers]
    assert confidences == [model.search(q).confidence for q in queries[:5]]
    assert all(served is holder.current for _, served in answers)


def test_many_passages_wait_for_a_batch_of_their_own(holder: ModelHolder) -> None:
    """A request is begun alone where it would make the batch too large, however large it is."""
    brought = tuple(Passage(str(i), "", f"word {i}") for i in range(MOST_PASSAGES // 2 + 1))
    large = Query("word", passages=brought)
    assert len(assess_waiting(holder, [(large, None), (large, None)])) == 2
    assert batches(holder) == [2, 2]


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
    assert batches(holder) == [1, 4]
    assert isinstance(empty, InputError)
    assert isinstance(foreign, Refusal)
    assert (foreign.status, "another" in foreign.sentence) == (409, True)
    assert found[0].confidence == model.search("median").confidence
    assert known[0].confidence == model.rerank("median", brought).confidence


def test_a_turn_that_does_not_come_is_503(holder: ModelHolder) -> None:
    """With when to come again; what was given up is not ranked later."""

    async def main() -> Worker:
        worker = Worker(holder, Settings(timeout=0.01))
        with pytest.raises(Refusal, match=r"turn did not come within 0\.01 seconds") as refused:
            await worker.assess(Query("median"))
        assert refused.value.status == 503
        assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
        worker.start()
        await asyncio.to_thread(worker.finish)
        return worker

    assert not asyncio.run(main()).alive
    assert batches(holder) == [0, 0]


def test_an_answer_that_is_not_ready_is_504(holder: ModelHolder) -> None:
    """What was begun and takes too long is refused; the worker then ends as usual."""
    ready = threading.Event()

    async def main() -> None:
        worker = Worker(holder, Settings(timeout=5.0))
        worker.start()
        holder.current.model.pipeline.observe = lambda *_: bool(ready.wait(WAIT))
        with pytest.raises(Refusal, match="not ready within 5 seconds") as refused:
            await worker.assess(Query("median"))
        assert refused.value.status == 504
        ready.set()
        await asyncio.to_thread(worker.finish)

    asyncio.run(main())
    assert batches(holder) == [1, 1]


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
