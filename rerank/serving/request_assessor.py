"""How every route gets the assessment of its request. It knows nothing of routes and answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from fastapi import Request

from rerank.protocols import GivenAnswer
from rerank.serving.middleware import while_connected
from rerank.serving.model_source import ServedModel
from rerank.serving.requests import QueryRequest
from rerank.serving.settings import Settings
from rerank.serving.worker import Worker
from rerank.types import Assessment


@dataclass(slots=True)
class AssessedRequest:
    """The assessment of a request, and the model that made it."""

    assessment: Assessment
    served: ServedModel
    request_id: str
    deadline: float  # when the request must be answered, by the clock of the event loop
    began: int  # when its assessment did, and when it ended: nanoseconds of Unix time
    ended: int
    answer: GivenAnswer | None = None  # if this is what was asked for, and is judged

    @property
    def names(self) -> dict[str, str]:
        """The model's version and the request's id, which every response has."""
        return {"model": self.served.version, "request_id": self.request_id}


class RequestAssessor:
    """Assesses the query of a request, for every route; it adds to the request's log.

    The result is also in `request.state.assessed`, for the journal.
    """

    def __init__(self, worker: Worker, settings: Settings) -> None:
        self._worker = worker
        self._settings = settings

    async def __call__(
        self, request: Request, body: QueryRequest, reranker: str | None = None
    ) -> AssessedRequest:
        """`reranker` is the fingerprint of the cross-encoder that gave the request's logits.

        Raises:
            Refusal: as `Worker.assess`; or 408 if the client disconnects.
            InputError, RetrieverError: as `Worker.assess`.
        """
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        query = body.to_query(self._settings)
        log = request.state.log
        log.update(mode=query.mode, documents=len(query.passages or ()))
        if self._settings.log_text:
            log["text"] = query.text
        began, work = time.time_ns(), self._worker.assess(query, reranker)
        assessment, served = await while_connected(request.receive, work)
        log.update(confidence=assessment.confidence, level=assessment.level, model=served.version)
        times = deadline, began, time.time_ns()
        done = AssessedRequest(assessment, served, request.state.request_id, *times)
        request.state.assessed = done
        return done
