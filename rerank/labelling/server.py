"""Labelling over HTTP: people judge passages on a page, as in a terminal by `rerank label`."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from rerank.labelling.judgements import LabelConfig, OnTask
from rerank.retrieval.corpus import place_of
from rerank.serving.parts import Host, Part
from rerank.serving.refusals import Refusal
from rerank.serving.requests import KnownFields, StrictRoute

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.labelling.session import LabelTask, Session

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


@dataclass(eq=False)
class LabelSessions:
    """The labels folder and one session per annotator; a lock lets one act at a time."""

    folder: Path
    config: LabelConfig
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sessions: dict[str, Session] = field(default_factory=dict)

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
            kept = Session(model, self.folder, self.config, annotator)
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
    """The routes of labelling, and its page; without sessions they answer 404."""
    labels: LabelSessions | None = host.given
    if labels is None:
        router = APIRouter()

        @router.api_route("/v1/label", methods=["GET", "POST"], include_in_schema=False)
        async def refuse() -> None:
            raise Refusal(404, NO_LABELS, "labels")

        return Part([router], PAGES, linked=False)
    router = APIRouter(tags=["labels"], route_class=StrictRoute)

    @router.get("/v1/label")
    async def asked(
        annotator: str = Query(min_length=1, max_length=LONGEST_NAME),
    ) -> dict[str, Any]:
        """Return the annotator's current task."""
        return await asyncio.to_thread(labels.asked, annotator, host.holder.current.model)

    @router.post("/v1/label")
    async def act(given: LabelRequest) -> dict[str, Any]:
        """Record an action on the task that was shown; return the next task."""
        return await asyncio.to_thread(labels.act, given, host.holder.current.model)

    return Part([router], PAGES)


def _current(session: Session, given: LabelRequest) -> LabelTask:
    """The current task, if it is the one that an annotator's action is about."""
    if all(question.query_id != given.query_id for question in session.questions()):
        raise Refusal(404, UNKNOWN.format(what="question"), "labels")
    task = session.task()
    if task is None or task.question.query_id != given.query_id:
        raise Refusal(409, ELSEWHERE, "labels")
    if given.doc_id and all(given.doc_id not in shown.doc_ids for shown in task.pool.shown):
        raise Refusal(404, UNKNOWN.format(what="passage"), "labels")
    if task.name != (given.query_id, given.doc_id):
        raise Refusal(409, ELSEWHERE, "labels")
    return task


def _task_response(session: Session) -> dict[str, Any]:
    from rerank.labelling.labels import EVERY, agreement_sentence, agreements

    task, questions = session.task(), session.questions()
    so_far = session.so_far() if sum(q.done for q in questions) >= EVERY else []
    found = agreements(questions, session.annotator).items()
    people = sorted(found, key=lambda pair: -pair[1].n)[:AGREEMENTS]
    fields: dict[str, Any] | None = None
    if task:
        question, (query_id, doc_id) = task.question, task.name
        fields = {"query_id": query_id, "doc_id": doc_id, "question": question.text}
        if not question.proposed:
            passage = task.left[0].passage
            fields |= {"place": task.place, "of": len(task.pool.shown), "text": passage.text}
            fields |= asdict(place_of(passage))
            fields |= {"judge": task.judge, "verdict": task.verdict} if task.judge else {}
        fields["proposed"] = question.proposed
    return {
        "labelled": sum(q.person(session.annotator).done for q in questions),
        "questions": len(questions),
        "so_far": [*so_far, *(agreement_sentence(*one) for one in people)],
        "task": fields,
    }
