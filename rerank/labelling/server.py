"""Labelling over HTTP: people judge passages on a page, as in a terminal by `rerank label`."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from rerank.advice.places import place_of
from rerank.labelling.state import LabelConfig, OnTask
from rerank.serving.parts import Host, Part
from rerank.serving.refusals import Refusal
from rerank.serving.requests import KnownFields, StrictRoute

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.labelling.session import LabelTask, Session
    from rerank.serving.model_source import ModelHolder

PAGES = {"/label": "rerank.labelling/label.html", "/static/label.js": "rerank.labelling/label.js"}
LONGEST_NAME = 100
SESSIONS = 64  # annotators whose sessions are kept; another one's is opened anew from the folder
NO_LABELS = (
    "this server takes no labels; `rerank label MODEL --out FOLDER --page` starts one that does"
)
AGREEMENTS = 3  # with other people that a person is shown: those on the most passages
UNKNOWN = "these labels have no such {what}; `GET /v1/label` says what is asked now"
ELSEWHERE = "this was judged in another window; here is what is asked now"

Action = Literal[OnTask, "undo"]


class LabelSessions:
    """The labels folder and one session per annotator; a lock lets one act at a time."""

    def __init__(self, folder: Path, config: LabelConfig) -> None:
        self._folder, self._config = folder, config
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def asked(self, annotator: str, model: CalibratedReranker) -> dict[str, Any]:
        """The annotator's current task, and the progress of the labels."""
        with self._lock:
            return _task_response(self._session(annotator, model))

    def act(self, given: LabelRequest, model: CalibratedReranker) -> dict[str, Any]:
        """Apply an annotator's action to the current task; return the next task.

        Raises:
            Refusal: the question or the passage is unknown, another task is current by now, or the
                action does not fit it.
            InputError: as `asked`; or the new text of a question is not valid.
        """
        with self._lock:
            session = self._session(given.annotator, model)
            if given.do == "undo":
                session.undo()
            else:
                task = _current(session, given)
                if given.do != "skip" and (given.do == "accept") is not task.question.proposed:
                    what = f"{given.do!r} does not fit what is asked now"
                    raise Refusal(422, what, "labels")
                session.act(task, given.do, given.text)
            session.write()
            return _task_response(session)

    def _session(self, annotator: str, model: CalibratedReranker) -> Session:
        from rerank.labelling.session import Session

        kept = self._sessions.pop(annotator, None)
        if kept is None or kept.model is not model:
            kept = Session(model, self._folder, self._config, annotator=annotator)
        self._sessions[annotator] = kept
        if len(self._sessions) > SESSIONS:
            del self._sessions[next(iter(self._sessions))]  # the one not used for longest
        return kept


class LabelRequest(KnownFields):
    """An annotator's action on the current question or passage."""

    model_config: ClassVar[Any] = {"extra": "forbid"}
    annotator: str = Field(min_length=1, max_length=LONGEST_NAME, description="who says it")
    do: Action = Field(description="the judgement, or what is done instead")
    query_id: str = Field("", description="of the question that was shown")
    doc_id: str = Field("", description="of the passage that was shown; none of a proposal")
    text: str | None = Field(None, description="other words of a proposed question")


def part(host: Host) -> Part:
    """The routes of labelling, and its page; it is linked if the server was given sessions."""
    labels: LabelSessions | None = host.given
    return Part([label_routes(labels, host.holder)], PAGES, linked=labels is not None)


def label_routes(labels: LabelSessions | None, holder: ModelHolder) -> APIRouter:
    """The labelling routes; without `labels` they answer 404, whatever is asked."""
    if labels is None:
        router = APIRouter()

        @router.api_route("/v1/label", methods=["GET", "POST"], include_in_schema=False)
        async def refuse() -> None:
            raise Refusal(404, NO_LABELS, "labels")

        return router
    router = APIRouter(tags=["labels"], route_class=StrictRoute)

    @router.get("/v1/label")
    async def asked(
        annotator: str = Query(min_length=1, max_length=LONGEST_NAME),
    ) -> dict[str, Any]:
        """Return the annotator's current task."""
        return await asyncio.to_thread(labels.asked, annotator, holder.current.model)

    @router.post("/v1/label")
    async def act(given: LabelRequest) -> dict[str, Any]:
        """Record an action on the task that was shown; return the next task."""
        return await asyncio.to_thread(labels.act, given, holder.current.model)

    return router


def _current(session: Session, given: LabelRequest) -> LabelTask:
    """The current task, if it is the one that an annotator's action is about."""
    if all(question.query_id != given.query_id for question in session.questions()):
        raise Refusal(404, UNKNOWN.format(what="question"), "labels")
    task = session.task()
    if task is None or task.question.query_id != given.query_id:
        raise Refusal(409, ELSEWHERE, "labels")
    if given.doc_id and all(given.doc_id not in shown.doc_ids for shown in task.pool.shown):
        raise Refusal(404, UNKNOWN.format(what="passage"), "labels")
    if _name(task) != (given.query_id, given.doc_id):
        raise Refusal(409, ELSEWHERE, "labels")
    return task


def _name(task: LabelTask) -> tuple[str, str]:
    """The ids of a task's question and passage; the second is "" for a proposed question."""
    doc_id = "" if task.question.proposed else task.left[0].doc_ids[0]
    return task.question.query_id, doc_id


def _task_response(session: Session) -> dict[str, Any]:
    from rerank.labelling.progress import EVERY, agreement_sentence, agreements

    task, questions = session.task(), session.questions()
    so_far = session.so_far() if sum(q.done for q in questions) >= EVERY else []
    found = agreements(questions, session.annotator).items()
    people = sorted(found, key=lambda pair: -pair[1].n)[:AGREEMENTS]
    return {
        "labelled": sum(q.person(session.annotator).done for q in questions),
        "questions": len(questions),
        "so_far": [*so_far, *(agreement_sentence(*one) for one in people)],
        "task": _task_fields(task) if task else None,
    }


def _task_fields(task: LabelTask) -> dict[str, Any]:
    (query_id, doc_id), proposed = _name(task), task.question.proposed
    fields: dict[str, Any] = {"query_id": query_id, "doc_id": doc_id}
    fields["question"] = task.question.text
    if not proposed:
        passage = task.left[0].passage
        fields |= {"place": task.place, "of": len(task.pool.shown), "text": passage.text}
        fields |= asdict(place_of(passage))
        fields |= {"judge": task.judge, "verdict": task.verdict} if task.judge else {}
    return {**fields, "proposed": proposed}
