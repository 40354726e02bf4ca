"""From requests to one thread that ranks: those that wait are ranked in one call.

The event loop never computes. Nobody waits for company: a batch is whoever has come while the last
one was ranked, and answers are those of single calls, to the bit.
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
from typing import Literal

from rerank.errors import InputError
from rerank.serving.model_source import Champion, Served, give_back
from rerank.serving.schemas import Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import DriftWindow, event
from rerank.types import Assessment, Query

Route = Literal["search", "rerank", "assess"]
MOST_PASSAGES = 256  # that callers brought, in one batch of more than one request

Answer = tuple[Assessment, Served]


@dataclass(frozen=True, slots=True)
class Question:
    """A query as it came over a route; its logits are those of `reranker`."""

    route: Route
    query: Query
    reranker: str | None = None

    @property
    def documents(self) -> int:
        """Count of the passages that came with it."""
        return len(self.query.passages or ())


@dataclass(slots=True)
class Job:
    """A question in hand. `begun` and `given_up` are set once, by one thread each."""

    question: Question
    future: asyncio.Future[Answer]
    came: float = field(default_factory=time.perf_counter)
    begun: bool = False
    given_up: bool = False

    def settle(self, answer: Answer | Exception) -> None:
        """Hand over the answer; in the event loop's thread."""
        if self.future.done():
            return
        if isinstance(answer, Exception):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class Batcher:
    """A queue and the thread that empties it, from `start` to `finish`."""

    def __init__(self, champion: Champion, settings: Settings) -> None:
        self._champion = champion
        self._settings = settings
        self._metrics = champion.metrics
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
        """Work off what is there, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    def wait(self, requests: int) -> int:
        """Whole seconds, 1 to 60, in which about that many requests are worked off."""
        return min(60, max(1, math.ceil(self._pace * requests)))

    async def ask(self, question: Question) -> Answer:
        """The assessment, and the model that made it.

        Raises:
            Refusal: 503 where its turn did not come in time, 504 where it was not ready in time,
                or what the model refuses.
        """
        job = Job(question, asyncio.get_running_loop().create_future())
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
                headers={"Retry-After": str(self.wait(len(self._waiting)))},
            ) from None
        except asyncio.CancelledError:
            job.given_up = True
            raise
        except InputError as error:
            raise Refusal(422, str(error), reason="input") from None

    def _work(self) -> None:
        last = self._champion.current.version
        while jobs := self._next():
            version = self._rank(jobs)
            del jobs  # while it waits it holds no model, nor any text
            if version != last:  # by now nothing is told any more of the model before
                give_back()
                last = version

    def _rank(self, jobs: Sequence[Job]) -> str:
        """Answer the jobs; the version of the model that did."""
        start = time.perf_counter()
        served = self._champion.current
        for job in jobs:
            job.begun = True
            self._metrics.stages.labels("queue").observe(start - job.came)
        answers = answer(served, [job.question for job in jobs])
        taken = time.perf_counter() - start
        self._metrics.stages.labels("answer").observe(taken)
        self._metrics.batch.observe(len(jobs))
        self._pace += 0.2 * (taken / len(jobs) - self._pace)
        try:
            self._watch(served, jobs, answers)
        except Exception as error:  # a metric that fails must not end the answers
            event("drift could not be looked for", severity=logging.ERROR, exc_info=error)
        for job, found in zip(jobs, answers, strict=True):
            done = found if isinstance(found, Exception) else (found, served)
            job.future.get_loop().call_soon_threadsafe(job.settle, done)
        return served.version

    def _next(self) -> list[Job]:
        """The jobs of the next batch, at least one; none where all is worked off at the end."""
        with self._changed:
            while True:
                while self._waiting and self._waiting[0].given_up:
                    self._waiting.popleft()
                if self._waiting:
                    break
                if self._closing:
                    return []
                self._changed.wait()
            jobs, passages = [self._waiting.popleft()], 0
            passages = jobs[0].question.documents
            while self._waiting and len(jobs) < self._settings.batch:
                passages += self._waiting[0].question.documents
                if passages > MOST_PASSAGES:
                    break
                job = self._waiting.popleft()
                if not job.given_up:
                    jobs.append(job)
            return jobs

    def _watch(
        self, served: Served, jobs: Sequence[Job], answers: Sequence[Assessment | Exception]
    ) -> None:
        if self._window is None or self._window[0] != served.version:
            size, level = self._settings.drift_window, self._settings.drift_level
            self._window = served.version, DriftWindow(served.sketch, size=size, level=level)
            self._metrics.drift.set(False)  # of this model nothing is known yet
            self._metrics.drift_p.set(1)
        for job, found in zip(jobs, answers, strict=True):
            if isinstance(found, Exception):
                continue
            self._metrics.assessed(job.question.route, found)
            drift = self._window[1].add(found) if job.question.route == "search" else None
            if drift is not None:
                self._metrics.drift.set(drift.fired)
                self._metrics.drift_p.set(drift.p_value)
                self._metrics.drift_windows.labels("yes" if drift.fired else "no").inc()
                event("drift window", alarm=drift.fired, said=drift.sentence)


def answer(served: Served, questions: Sequence[Question]) -> list[Assessment | Exception]:
    """What the model says to each; an exception where one has no answer, and to that one alone."""
    wrong = {i: error for i, q in enumerate(questions) if (error := _mismatch(served, q))}
    right = [i for i in range(len(questions)) if i not in wrong]
    answered = served.model.assess_each([questions[i].query for i in right])
    found = dict(zip(right, answered, strict=True))
    return [wrong[i] if i in wrong else found[i] for i in range(len(questions))]


def _mismatch(served: Served, question: Question) -> Refusal | None:
    if question.query.logits is None or question.reranker == served.reranker:
        return None
    return Refusal(
        409,
        f"the scores come from the reranker {str(question.reranker)[:80]!r}, and this model is "
        f"calibrated for {served.reranker!r} (fingerprints.reranker at /v1/model)",
        reason="reranker",
    )
