"""The queue and the thread that ranks: the requests that wait are ranked in one call.

The event loop never computes. No request waits for others to come: a batch is what has come while
the last one was ranked, and its answers are those of single calls, to the bit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rerank.serving.model_source import ModelHolder, ServedModel, release_memory
from rerank.serving.schemas import Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import DriftWindow, event
from rerank.types import Assessment, Query

MOST_PASSAGES = 256  # that callers brought, in one batch of more than one request

Answer = tuple[Assessment, ServedModel]


@dataclass(slots=True)
class Job:
    """A query in the queue; its logits, where it has some, are those of `reranker`.

    `begun` and `given_up` are set once, by one thread each.
    """

    query: Query
    reranker: str | None
    future: asyncio.Future[Answer]
    came: float = field(default_factory=time.perf_counter)
    begun: bool = False
    given_up: bool = False

    @property
    def passages(self) -> int:
        """Count of the passages that came with it."""
        return len(self.query.passages or ())

    def settle(self, answer: Answer | Exception) -> None:
        """Hand over the answer; in the event loop's thread."""
        if self.future.done():
            return
        if isinstance(answer, Exception):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class Worker:
    """A queue and the thread that empties it, from `start` to `finish`."""

    def __init__(self, holder: ModelHolder, settings: Settings) -> None:
        self._holder = holder
        self._settings = settings
        self._metrics = holder.metrics
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._window: tuple[str, DriftWindow] | None = None
        self._pace = 0.1  # seconds a request, lately
        self._thread = threading.Thread(target=self._work, name="ranking", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def finish(self) -> None:
        """Answer what is in the queue, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    def retry_after(self, requests: int) -> int:
        """Whole seconds, 1 to 60, in which about that many requests are answered."""
        return min(60, max(1, math.ceil(self._pace * requests)))

    async def assess(self, query: Query, reranker: str | None = None) -> Answer:
        """The assessment, and the model that made it; `reranker` gave the logits of the query.

        Raises:
            Refusal: 503 where its turn did not come in time, 504 where it was not ready in time,
                409 where the logits are of another reranker.
            InputError: the model refuses the query.
        """
        job = Job(query, reranker, asyncio.get_running_loop().create_future())
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()
        try:
            return await asyncio.wait_for(job.future, self._settings.timeout)
        except TimeoutError:
            job.given_up = True
            late = f"within {self._settings.timeout:g} seconds"
            if job.begun:
                raise Refusal(504, f"the answer was not ready {late}", reason="late") from None
            raise Refusal(
                503,
                f"the server is busy: the request's turn did not come {late}",
                reason="busy",
                headers={"Retry-After": str(self.retry_after(len(self._waiting)))},
            ) from None
        except asyncio.CancelledError:
            job.given_up = True
            raise

    def _work(self) -> None:
        last = self._holder.current.version
        while jobs := self._next():
            version = self._rank(jobs)
            del jobs  # while it waits it holds no model, nor any text
            if version != last:  # nothing refers to the model before any more
                release_memory()
                last = version

    def _rank(self, jobs: Sequence[Job]) -> str:
        """Answer the jobs; the version of the model that did."""
        start = time.perf_counter()
        served = self._holder.current
        for job in jobs:
            job.begun = True
            self._metrics.observe_stage("queue", start - job.came)
        answers = assess_jobs(served, jobs)
        taken = time.perf_counter() - start
        self._metrics.observe_stage("total", taken)
        self._metrics.batch_size.observe(len(jobs))
        self._pace += 0.2 * (taken / len(jobs) - self._pace)
        try:
            self._count(served, jobs, answers)
        except Exception as error:  # a metric that fails must not end the answers
            event("metrics failed", severity=logging.ERROR, exc_info=error)
        for job, found in zip(jobs, answers, strict=True):
            done = found if isinstance(found, Exception) else (found, served)
            job.future.get_loop().call_soon_threadsafe(job.settle, done)
        return served.version

    def _next(self) -> list[Job]:
        """The jobs of the next batch, at least one; none where all is answered at the end."""
        with self._changed:
            while True:
                while self._waiting and self._waiting[0].given_up:
                    self._waiting.popleft()
                if self._waiting:
                    break
                if self._closing:
                    return []
                self._changed.wait()
            jobs = [self._waiting.popleft()]
            passages = jobs[0].passages
            while self._waiting and len(jobs) < self._settings.batch:
                passages += self._waiting[0].passages
                if passages > MOST_PASSAGES:
                    break
                job = self._waiting.popleft()
                if not job.given_up:
                    jobs.append(job)
            return jobs

    def _count(
        self, served: ServedModel, jobs: Sequence[Job], answers: Sequence[Assessment | Exception]
    ) -> None:
        """Count the assessments, and add the searches to the drift window of their model."""
        if self._window is None or self._window[0] != served.version:
            size, level = self._settings.drift_window, self._settings.drift_level
            self._window = served.version, DriftWindow(served.sketch, size=size, level=level)
            self._metrics.reset_drift()
        for job, found in zip(jobs, answers, strict=True):
            if isinstance(found, Exception):
                continue
            self._metrics.count_assessment(job.query.mode, found)
            drift = self._window[1].add(found) if job.query.mode == "search" else None
            if drift is not None:
                self._metrics.set_drift(drift)
                event("drift window", alarm=drift.fired, sentence=drift.sentence)


def assess_jobs(served: ServedModel, jobs: Sequence[Job]) -> list[Assessment | Exception]:
    """What the model answers to each; a job that fails gets its exception, and it alone."""
    refused = {i: refusal for i, job in enumerate(jobs) if (refusal := _mismatch(served, job))}
    asked = [i for i in range(len(jobs)) if i not in refused]
    answers = served.model.assess_each([jobs[i].query for i in asked])
    found: dict[int, Assessment | Exception] = {**refused, **dict(zip(asked, answers, strict=True))}
    return [found[i] for i in range(len(jobs))]


def _mismatch(served: ServedModel, job: Job) -> Refusal | None:
    """The refusal of logits that come from another reranker than the model's."""
    if job.query.logits is None or job.reranker == served.reranker:
        return None
    return Refusal(
        409,
        f"the scores come from the reranker {str(job.reranker)[:80]!a}, and this model is "
        f"calibrated for {served.reranker!r} (fingerprints.reranker at /v1/model)",
        reason="reranker",
    )
