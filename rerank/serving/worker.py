"""The thread that ranks, a round at a time: one piece of work of each of the next few requests.

The pieces of a round go through the models in one call, so that requests share the cores, and a
request lets others come between its pieces. Which ones are next, and who is let in, `schedule`
decides. A request that was given up, by its client or by the clock, is not worked on any more. The
event loop never computes. Answers are those of single calls, to the bit.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rerank.assessment.steps import Piece, Stage, Steps, expected_tokens, run_piece, steps
from rerank.serving.answer_cache import AnswerCache
from rerank.serving.model_source import ModelHolder, ServedModel, release_memory
from rerank.serving.schedule import Busy, Schedule, Task, TooLarge
from rerank.serving.schemas import Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import DriftWindow, event
from rerank.types import Assessment, Query

Answer = tuple[Assessment, ServedModel]


@dataclass(slots=True, eq=False)
class Job(Task):
    """A query in progress, and the model that answers it.

    `given_up` is set by the event loop, `piece` by the ranking thread.
    """

    query: Query
    served: ServedModel
    steps: Steps
    future: asyncio.Future[Answer]
    came: float
    given_up: bool = False
    piece: Piece | None = None  # what is to be done next; None before the job is begun

    def settle(self, answer: Answer | Exception) -> None:
        """Hand over the answer; in the event loop's thread."""
        if self.future.done():
            return
        if isinstance(answer, Exception):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class Worker:
    """The requests in progress and the thread that answers them, from `start` to `finish`.

    `schedule` holds the requests; it is touched with `_changed` held only.
    """

    def __init__(self, holder: ModelHolder, settings: Settings) -> None:
        self._holder = holder
        self._settings = settings
        self._metrics = holder.metrics
        self.schedule = Schedule[Job](settings.timeout)
        self._cache = AnswerCache(settings.cache_seconds, count=self._metrics.count_cache)
        self._changed = threading.Condition()
        self._closing = False
        self._window: tuple[str, DriftWindow | None] | None = None
        config = holder.current.model.pipeline.config
        self._searched = config.rerank_depth * config.max_length  # tokens that a search scores
        self._thread = threading.Thread(target=self._work, name="ranking", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def finish(self) -> None:
        """Answer what is in progress, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    def retry_after(self) -> int:
        """Whole seconds, 1 to 60, in which what is in progress is answered."""
        with self._changed:
            return self.schedule.retry_after

    async def assess(self, query: Query, reranker: str | None = None) -> Answer:
        """The assessment, and the model that made it; `reranker` gave the logits of the query.

        Who cancels this gives the request up.

        Raises:
            Refusal: 413 or 429 where it would not be answered in time, at once; 503 where its turn
                did not come in time, or others would be late for it; 504 where it was not ready in
                time; 409 where the logits are of another reranker.
            InputError: the model refuses the query.
        """
        served = self._holder.current
        kept = self._cache.get(query, served.version)
        if kept is not None:
            return kept, served
        job = self._job(query, reranker)
        self._let_in(job)
        try:
            found, served = await asyncio.wait_for(job.future, self._settings.timeout)
        except TimeoutError:
            if job.piece is None:
                raise self._late() from None
            late = f"the answer was not ready within {self._settings.timeout:g} seconds"
            raise Refusal(504, late, reason="late") from None
        else:
            self._cache.add(query, served.version, found)
            return found, served
        finally:
            job.given_up = True

    def _job(self, query: Query, reranker: str | None) -> Job:
        """The job of a query, for the model that is served now."""
        served, now = self._holder.current, time.monotonic()
        if query.logits is not None and served.reranker and reranker != served.reranker:
            raise Refusal(
                409,
                f"the scores come from the reranker {str(reranker)[:80]!a}, and this model is "
                f"calibrated for {served.reranker!r} (fingerprints.reranker at /v1/model)",
                reason="reranker",
            )
        config, scoring = served.model.pipeline.config, self._searched
        tokens = sum(expected_tokens(query, config, searched=scoring))
        todo = steps(served.model, query, most=self.schedule.piece, scoring=scoring)
        future = asyncio.get_running_loop().create_future()
        return Job(now + self._settings.timeout, tokens, query, served, todo, future, now)

    def _let_in(self, job: Job) -> None:
        """Add the job to those in progress, or raise the Refusal that says why not."""
        with self._changed:
            try:
                self.schedule.add(job)
            except TooLarge as large:
                raise Refusal(
                    413,
                    f"the request would take about {large.seconds:.2g} seconds, and one request "
                    f"may take {self.schedule.allowed:g}; send fewer or shorter documents",
                    reason="cost",
                ) from None
            except Busy as busy:
                raise self._busy(
                    429,
                    f"the answer would take about {busy.seconds:.2g} seconds, and "
                    f"{self.schedule.allowed:g} are allowed",
                ) from None
            self._metrics.backlog.set(self.schedule.backlog)
            self._changed.notify()

    def _late(self) -> Refusal:
        return self._busy(
            503, f"the answer would not be ready within {self._settings.timeout:g} seconds"
        )

    def _busy(self, status: int, why: str) -> Refusal:
        seconds = self.schedule.retry_after
        return Refusal(
            status,
            f"the server is busy: {why}; try again in {seconds} seconds",
            reason="busy",
            headers={"Retry-After": str(seconds)},
        )

    def _work(self) -> None:
        models: set[str] = set()
        while jobs := self._next():
            self._rank(jobs)
            del jobs  # while it waits it holds no model, nor any text
            before, models = models, self._models()
            if before - models:  # nothing refers to a model before any more
                release_memory()

    def _models(self) -> set[str]:
        """The versions of the models that are at work, and of the one that is served."""
        with self._changed:
            used = {job.served.version for job in self.schedule.tasks}
        return used | {self._holder.current.version}

    def _next(self) -> list[Job]:
        """The jobs of the next round in their order; none where all is answered at the end."""
        schedule = self.schedule
        with self._changed:
            while True:
                schedule.tasks = [job for job in schedule.tasks if not job.given_up]
                for job in schedule.drop_late(time.monotonic()):
                    _settle(job, self._late())
                self._metrics.backlog.set(schedule.backlog)
                if schedule.tasks:
                    return list(islice(schedule.in_turn(), self._settings.batch))
                if self._closing:
                    return []
                self._changed.wait()

    def _rank(self, jobs: Sequence[Job]) -> None:
        """Do a round of work: a piece of each of the first jobs, until the round is full."""
        start = time.monotonic()
        most, tokens = 2 * self.schedule.piece, 0
        together: dict[tuple[str, Stage], list[Job]] = {}
        for job in jobs:
            if job.piece is None:
                self._metrics.observe_stage("queue", start - job.came)
                self._advance(job, None)
            if job.piece is None:  # it has failed
                continue
            together.setdefault((job.served.version, job.piece.stage), []).append(job)
            tokens += job.piece.tokens
            if tokens >= most:
                break
        worked = sum(self._run(part) for part in together.values())
        self._metrics.batch_size.observe(sum(map(len, together.values())))
        with self._changed:
            self.schedule.pace.add(worked, time.monotonic() - start)

    def _run(self, jobs: Sequence[Job]) -> float:
        """Do the pieces of jobs of one model and one stage in one call; the tokens that it took.

        Where that fails each is done alone, so that a job that fails fails alone.
        """
        pieces = [job.piece for job in jobs if job.piece is not None]
        model, stage = jobs[0].served.model, pieces[0].stage
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
        return different * sum(piece.tokens for piece in pieces)

    def _advance(self, job: Job, found: dict[Any, Any] | None) -> None:
        """Give a job what its piece asked for, and let it say what is to be done next."""
        before = job.piece
        try:
            job.piece = job.steps.send(found)
        except StopIteration as end:
            self._end(job, end.value)
            return
        except Exception as error:
            self._end(job, error)
            return
        job.left = job.piece.tokens + job.piece.left
        if before and before.stage != job.piece.stage and job.query.mode == "search":
            self._searched += round(0.1 * (job.left - self._searched))

    def _end(self, job: Job, found: Assessment | Exception) -> None:
        """Answer a job that is done, or failed."""
        with self._changed:
            self.schedule.tasks.remove(job)
        self._metrics.observe_stage("total", time.monotonic() - job.came)
        if isinstance(found, Exception):
            _settle(job, found)
            return
        try:
            self._count(job, found)
        except Exception as error:  # a metric that fails must not end the answers
            event("metrics failed", severity=logging.ERROR, exc_info=error)
        _settle(job, (found, job.served))

    def _count(self, job: Job, found: Assessment) -> None:
        """Count the assessment, and add one of the main mode to the drift window of its model."""
        served, maps = job.served, job.served.model.maps
        if self._window is None or self._window[0] != served.version:
            size, level = self._settings.drift_window, self._settings.drift_level
            table = maps[maps.main].features.ranking
            sketch = served.sketch
            made = DriftWindow(sketch, size=size, level=level, table=table) if sketch else None
            self._window = served.version, made
            self._metrics.reset_drift()
        self._metrics.count_assessment(job.query.mode, found)
        window = self._window[1] if job.query.mode == maps.main else None
        drift = window.add(found) if window else None
        if drift is not None:
            self._metrics.set_drift(drift)
            event("drift window", alarm=drift.fired, sentence=drift.sentence)


def _settle(job: Job, answer: Answer | Exception) -> None:
    job.future.get_loop().call_soon_threadsafe(job.settle, answer)
