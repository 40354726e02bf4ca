"""The ranking thread. It works in rounds: one piece of work from each of the next few requests.

The pieces of a round go through a model together, in one call; between two pieces of a request,
others run. Calls to an external search system wait in their own threads. Answers are bit-identical
to those of single calls; those of searches may be kept for a while.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prometheus_client import Counter

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.steps import Piece, Stage, Steps, expected_seconds, run_piece, steps
from rerank.data.checks import to_json
from rerank.errors import FilterError, InputError, RetrieverError
from rerank.inference.remote.client import patience
from rerank.serving.admission import Busy, Schedule, ScheduledRequest, TooLarge
from rerank.serving.model_source import ModelHolder, ServedModel, release_memory
from rerank.serving.refusals import Refusal, not_ready
from rerank.serving.settings import Settings
from rerank.serving.telemetry import DriftWindow, event
from rerank.types import INSTRUCTION, Assessment, Query

Answer = tuple[Assessment, ServedModel]
IN_TIME = 0.85  # share of the time-out for the queue; under load, reading and sending take the rest
SWITCH = 0.0005  # seconds; at Python's 0.005, each round of the event loop waits that long to go on
WITH_ANSWER = 0.5  # share of the time-out for a reranker, if the first stage answers after it
SEARCHES = 32  # concurrent calls to an external search system
MAX_ASSESSMENTS = 1000  # kept in the cache; beyond that, the one that expires next goes


@dataclass(slots=True, eq=False)
class Job(ScheduledRequest):
    """A query in progress; the event loop sets `given_up`, the ranking thread what is below it."""

    query: Query
    served: ServedModel
    steps: Steps
    future: asyncio.Future[Answer]
    arrived: float
    given_up: bool = False
    piece: Piece | None = None  # the next one to work on; None before the job starts
    search: Future[dict[Any, Any]] | None = None  # the piece's call to an external search system
    ended: bool = False  # whether it is answered, or has failed

    @property
    def waits(self) -> bool:
        """Whether the external search system has not answered yet."""
        return self.search is not None and not self.search.done()

    def settle(self, answer: Answer | BaseException) -> None:
        """Set the answer, in the thread of the event loop."""
        failed = isinstance(answer, BaseException)
        end: Any = self.future.set_exception if failed else self.future.set_result
        loop = self.future.get_loop()
        loop.call_soon_threadsafe(lambda: None if self.future.done() else end(answer))


class Worker:
    """The requests in progress and the thread that answers them; `_changed` guards `schedule`."""

    def __init__(self, holder: ModelHolder, settings: Settings) -> None:
        self._holder, self._settings, self._metrics = holder, settings, holder.metrics
        self.schedule = Schedule[Job](settings.timeout)
        self._cache = AnswerCache(settings.cache_seconds, lookups=self._metrics.cache)
        self._changed, self._closing = threading.Condition(), False
        self._window: tuple[str, DriftWindow | None] | None = None
        config = holder.current.model.pipeline.config
        tokens = config.rerank_depth * config.max_length
        self._scoring_seconds = tokens * holder.current.speed.score  # of a search, expected
        self._thread = threading.Thread(target=self._work, name="ranking", daemon=True)
        self.alive = self._thread.is_alive
        answers = holder.current.model.pipeline.first_stage_on_error
        longest = settings.timeout * (WITH_ANSWER if answers else 1.0)
        self._searches = ThreadPoolExecutor(
            SEARCHES, "searching", initializer=lambda: patience.set(longest)
        )

    @property
    def reads_instructions(self) -> bool:
        """Whether the current model was calibrated with instructions of queries."""
        return self._holder.current.model.segment_by == INSTRUCTION

    def start(self) -> None:
        """Start the thread; from now on Python changes threads ten times as often."""
        sys.setswitchinterval(SWITCH)
        self._thread.start()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def finish(self) -> None:
        """Answer the requests in progress, then stop."""
        self._closing = True
        self._wake()
        self._thread.join()
        self._searches.shutdown(wait=False, cancel_futures=True)

    def retry_after(self) -> int:
        """Whole seconds, 1 to 60, until the requests in progress are answered."""
        with self._changed:
            return self.schedule.retry_after

    async def assess(self, query: Query, reranker: str | None = None) -> Answer:
        """The assessment and its model; `reranker` names the model that gave the query's logits.

        Cancelling this call gives up the request.

        Raises:
            Refusal: 413 or 429, at once, if it would not be in time; 503 or 504 if it was not; 409
                if the logits are from another reranker.
            InputError: the model refuses the query.
            RetrieverError: the search system behind the model fails.
        """
        served, timeout = self._holder.current, self._settings.timeout
        # what the answer depends on beside the query
        state = f"{served.version} {served.model.shifted}"
        kept = self._cache.get(query, state)
        if kept is not None:
            return kept, served
        if query.logits is not None and served.reranker and reranker != served.reranker:
            why = (
                f"the scores come from the reranker {str(reranker)[:80]!a}, and this model is "
                f"calibrated for {served.reranker!r} (fingerprints.reranker at /v1/model)"
            )
            raise Refusal(409, why, "reranker")
        job = self._accepted(query, served)
        try:
            found, served = await asyncio.wait_for(job.future, timeout)
        except TimeoutError:
            if job.piece is not None:
                raise not_ready(timeout) from None
            with self._changed:
                late = self._late(job)
            raise late from None
        else:
            if not found.first_stage:
                self._cache.add(query, state, found)
            return found, served
        finally:
            job.given_up = True

    def _accepted(self, query: Query, served: ServedModel) -> Job:
        """The job of a query, if it is accepted; else the Refusal says why not."""
        now, schedule = time.monotonic(), self.schedule
        model, speed, seconds = served.model, served.speed, self._scoring_seconds
        work = sum(expected_seconds(query, model.pipeline, speed, scoring_seconds=seconds))
        pieces = steps(model, query, speed, max_seconds=schedule.piece, scoring_seconds=seconds)
        future = asyncio.get_running_loop().create_future()
        deadline = now + IN_TIME * self._settings.timeout
        job = Job(deadline, work, query, served, pieces, future, now)
        with self._changed:
            try:
                schedule.add(job, now)
            except TooLarge as large:
                raise self._too_large(large.seconds) from None
            except Busy as busy:
                takes = f"would take about {busy.seconds:.2g} seconds"
                raise self._busy(429, f"{takes}, and {schedule.allowed:g} are allowed") from None
            self._metrics.backlog.set(schedule.backlog)
            self._changed.notify()
        return job

    def _late(self, job: Job) -> Refusal:
        """Why a job is dropped: it is too large, as is known by now, or the server is busy."""
        alone = self.schedule.alone(job)
        if alone > self.schedule.allowed:
            return self._too_large(alone)
        return self._busy(503, f"would not be ready within {self._settings.timeout:g} seconds")

    def _too_large(self, seconds: float) -> Refusal:
        why = (
            f"the request would take about {seconds:.2g} seconds, and one request may take "
            f"{self.schedule.allowed:g}; send fewer or shorter documents"
        )
        return Refusal(413, why, "cost")

    def _busy(self, status: int, answer: str) -> Refusal:
        seconds = self.schedule.retry_after
        why = f"the server is busy: the answer {answer}; try again in {seconds} seconds"
        return Refusal(status, why, "busy", {"Retry-After": str(seconds)})

    def _work(self) -> None:
        models: set[str] = set()
        while jobs := self._next():
            self._rank(jobs)
            del jobs  # so that no model and no text is kept in memory while waiting
            before, models = models, {self._holder.current.version}
            with self._changed:
                models |= {job.served.version for job in self.schedule.requests}
            if before - models:  # an old model is no longer in use
                release_memory()

    def _next(self) -> list[Job]:
        """The jobs of the next round, in order; empty at the end, when all are answered."""
        schedule = self.schedule
        with self._changed:
            while True:
                schedule.requests = [job for job in schedule.requests if not job.given_up]
                for job in schedule.drop_late(time.monotonic()):
                    job.settle(self._late(job))
                self._metrics.backlog.set(schedule.backlog)
                ready = (job for job in schedule.in_turn() if not job.waits)
                if jobs := list(islice(ready, self._settings.batch)):
                    return jobs
                if self._closing and not schedule.requests:
                    return []
                self._changed.wait()

    def _rank(self, jobs: Sequence[Job]) -> None:
        """Work one round: a piece of each job, in order, until the round is full."""
        start = time.monotonic()
        max_work, work = 2 * self.schedule.piece, 0.0
        together: dict[tuple[CalibratedReranker, Stage], list[Job]] = {}
        for job in jobs:
            if job.piece is None:
                self._metrics.observe_stage("queue", start - job.arrived)
                self._advance(job, None)
            elif job.search is not None:  # it is over
                search, job.search = job.search, None
                if error := search.exception():
                    self._end(job, error)
                else:
                    self._advance(job, search.result())
            if job.ended or job.search is not None or job.piece is None:
                continue
            together.setdefault((job.piece.model, job.piece.stage), []).append(job)
            work += job.piece.seconds
            if work >= max_work:
                break
        worked = sum(self._run(part) for part in together.values())
        self._metrics.batch_size.observe(sum(map(len, together.values())))
        with self._changed:
            end = time.monotonic()
            self.schedule.worked(worked, end - start, end)

    def _run(self, jobs: Sequence[Job]) -> float:
        """Run pieces of one model and stage in one call, or alone if it fails; expected seconds."""
        pieces = [job.piece for job in jobs if job.piece is not None]
        model, stage = pieces[0].model, pieces[0].stage
        items = list(dict.fromkeys(item for piece in pieces for item in piece.items))
        try:
            found = run_piece(model, stage, items)
        except Exception as error:
            if len(jobs) > 1:
                return sum(self._run([job]) for job in jobs)
            self._end(jobs[0], error)
            return 0.0
        for job, piece in zip(jobs, pieces, strict=True):
            self._advance(job, {item: found[item] for item in piece.items})
        different = len(items) / sum(len(piece.items) for piece in pieces)
        return different * sum(piece.seconds for piece in pieces)

    def _advance(self, job: Job, found: dict[Any, Any] | None) -> None:
        """Send a job the results of its piece; an external search then begins in a thread."""
        before = job.piece
        try:
            job.piece = job.steps.send(found)
        except Exception as error:
            self._end(job, error.value if isinstance(error, StopIteration) else error)
            return
        job.left = job.piece.seconds + job.piece.left
        begins = before and before.stage != "score" and job.piece.stage == "score"
        if begins and job.query.mode == "search" and job.piece.model is job.served.model:
            self._scoring_seconds += 0.1 * (job.left - self._scoring_seconds)
        if job.piece.stage == "search":
            piece = job.piece
            job.search = self._searches.submit(run_piece, piece.model, "search", piece.items)
            job.search.add_done_callback(lambda _: self._wake())

    def _end(self, job: Job, assessment: Assessment | BaseException) -> None:
        job.ended = True
        with self._changed:
            self.schedule.requests.remove(job)
        self._metrics.observe_stage("total", time.monotonic() - job.arrived)
        if isinstance(assessment, BaseException):
            job.settle(_server_error(job, assessment))
            return
        try:
            self._count(job, assessment)
        except Exception as error:  # a failing metric must not stop the answers
            event("metrics failed", severity=logging.ERROR, exc_info=error)
        job.settle((assessment, job.served))

    def _count(self, job: Job, assessment: Assessment) -> None:
        """Count the assessment; if it is of the main mode, add it to its model's drift window."""
        served, sketch = job.served, job.served.sketch
        if self._window is None or self._window[0] != served.version:  # a new one for each model
            size, level = self._settings.drift_window, self._settings.drift_level
            window = DriftWindow(sketch, size=size, level=level) if sketch else None
            self._window = served.version, window
            self._metrics.show_drift(None)
        self._metrics.count_assessment(assessment)
        window = self._window[1]
        other = assessment.first_stage or (
            served.model.mode_of(job.query) != served.model.maps.main_mode
        )
        if window is None or other:
            return
        drift = window.add(assessment)
        if drift is not None:
            self._metrics.show_drift(drift)
            event("drift window", alarm=drift.fired, sentence=drift.sentence)


def _server_error(job: Job, error: BaseException) -> BaseException:
    """The error with which a job ends; what is refused after its check is our fault."""
    if job.piece is None or not isinstance(error, InputError) or isinstance(error, FilterError):
        return error
    ours = (RetrieverError if job.piece.stage == "search" else RuntimeError)(str(error))
    ours.__cause__ = error
    return ours


class AnswerCache:
    """Keeps a search's assessment by one model version for `seconds` times its confidence.

    `lookups` counts `hit` and `miss`. Only the event loop uses it.
    """

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
