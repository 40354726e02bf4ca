"""A client of `rerank serve`, with the library's own types as answers; it loads no model.

>>> client = rerank.Client("http://localhost:8000")         # doctest: +SKIP
>>> answer = client.search("median ignoring NaNs")          # doctest: +SKIP
>>> answer.top.doc_id, answer.confidence, answer.accepted   # doctest: +SKIP

`AsyncClient` has the same methods, to be awaited.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from rerank.config import Thresholds
from rerank.data.checks import is_url
from rerank.data.records import passage_row
from rerank.errors import InputError, RetrieverError, one_line, optional
from rerank.filters import Where
from rerank.inference.remote.client import (
    PLAIN,
    LargeAnswerError,
    bounded,
    bounded_async,
    seconds_of,
)
from rerank.types import (
    AnyPassage,
    Assessment,
    Candidates,
    FirstStage,
    Floats,
    Mode,
    Passage,
    Query,
    Ranking,
    as_passages,
)

with optional():
    import httpx

KEY = "RERANK_API_KEY"  # environment: the key, where none is passed
TRIES = 3  # of a request that a busy server refuses, or that finds no server
BUSY = (429, 503)
LONGEST_WAIT = 30.0  # seconds between two tries, whatever the server asks for
# what reading an answer of another form raises
OTHER_FORM = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
Answer = TypeVar("Answer")
Json = dict[str, Any]
Given = Mapping[str, Any] | None


class _Call(NamedTuple, Generic[Answer]):
    path: str
    body: Mapping[str, Any]
    read: Callable[[Json], Answer]


def _search(text: str, metadata: Given, where: Given, top_n: int) -> _Call[Assessment]:
    query = Query(text, metadata=metadata or {}, where=Where.read(where))

    def read(answer: Json) -> Assessment:
        rows = answer["ranking"]
        texts = [(r.get("title") or "", r.get("text") or "") for r in rows]
        passages = [
            Passage(r["doc_id"], *both, r.get("metadata") or {})
            for r, both in zip(rows, texts, strict=True)
        ]
        return _assessment(query, answer, passages, rows, "search")

    return _Call("/v1/search", {**_body(query), "top_n": top_n}, read)


def _rerank(text: str, passages: Sequence[AnyPassage], metadata: Given) -> _Call[Assessment]:
    brought = as_passages(passages)
    query = Query(text, metadata=metadata or {}, passages=brought)

    def read(answer: Json) -> Assessment:
        rows = [{"row": r["index"], "relevance": r["relevance_score"]} for r in answer["results"]]
        return _assessment(query, answer, [brought[r["row"]] for r in rows], rows, "rerank")

    documents = [passage_row(passage) for passage in brought]
    return _Call("/v1/rerank", {**_body(query), "documents": documents}, read)


def _answer(text: str, metadata: Given, where: Given) -> _Call[Json]:
    query = Query(text, metadata=metadata or {}, where=Where.read(where))
    return _Call("/v1/answer", _body(query), dict)


def _feedback(answer_id: str, right: bool, comment: str) -> _Call[None]:
    body = {"id": answer_id, "right": right, "comment": comment}
    return _Call("/v1/feedback", body, lambda _: None)


def _body(query: Query) -> Json:
    body: Json = {"query": query.text, "metadata": dict(query.metadata)}
    return body | ({"filter": query.where.to_dict()} if query.where else {})


def _content(call: _Call[Any]) -> bytes:
    """The body as JSON."""
    try:
        return json.dumps(call.body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        expected = "expected texts, finite numbers, lists and dictionaries, of metadata too"
        raise InputError(f"the request is no JSON: {one_line(error)}; {expected}") from None


class Client:
    """A client of the server at `url`; safe to use from many threads, and a context manager.

    `key` is one of its keys, by default RERANK_API_KEY of the environment. `timeout` is in seconds.
    A busy server is asked again a few times, when it says. Every method raises an InputError if the
    server refuses the request, with its sentence, and a RetrieverError if it does not answer, stays
    busy, or answers something else.

    Raises:
        MissingExtraError: httpx is not installed.
        InputError: `url` is no address, or `key` cannot be sent.
    """

    def __init__(self, url: str, *, key: str = "", timeout: float = 60.0) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url,
            timeout=timeout,
            headers=_headers(url, key),
            event_hooks={"response": [bounded]},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def search(
        self, text: str, *, metadata: Given = None, where: Given = None, top_n: int = 10
    ) -> Assessment:
        """As `CalibratedReranker.search`, with the first `top_n` passages and no features. The
        `query_id` of its query is the id of the answer, for `feedback`.
        """
        return self._send(_search(text, metadata, where, top_n))

    def rerank(
        self, text: str, passages: Sequence[AnyPassage], *, metadata: Given = None
    ) -> Assessment:
        """As `CalibratedReranker.rerank`, likewise; its passages have no logits."""
        return self._send(_rerank(text, passages, metadata))

    def answer(self, text: str, *, metadata: Given = None, where: Given = None) -> Json:
        """An answer from the sources alone, or the refusal: the JSON of `rerank answer --json`."""
        return self._send(_answer(text, metadata, where))

    def feedback(self, answer_id: str, right: bool, comment: str = "") -> None:
        """Record in the server's journal whether an answer was right."""
        self._send(_feedback(answer_id, right, comment))

    def _send(self, call: _Call[Answer]) -> Answer:
        content = _content(call)
        for left in reversed(range(TRIES)):
            try:
                came: _Came = self._http.post(call.path, content=content)
            except _FAILED as error:
                came = error
            if not left or (wait := _wait(came)) is None:
                break
            time.sleep(wait)
        return _read(self.url, call, came)


class AsyncClient:
    """As `Client`, for `await`; an asynchronous context manager."""

    def __init__(self, url: str, *, key: str = "", timeout: float = 60.0) -> None:
        self.url = url
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=timeout,
            headers=_headers(url, key),
            event_hooks={"response": [bounded_async]},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def search(
        self, text: str, *, metadata: Given = None, where: Given = None, top_n: int = 10
    ) -> Assessment:
        """As `Client.search`."""
        return await self._send(_search(text, metadata, where, top_n))

    async def rerank(
        self, text: str, passages: Sequence[AnyPassage], *, metadata: Given = None
    ) -> Assessment:
        """As `Client.rerank`."""
        return await self._send(_rerank(text, passages, metadata))

    async def answer(self, text: str, *, metadata: Given = None, where: Given = None) -> Json:
        """As `Client.answer`."""
        return await self._send(_answer(text, metadata, where))

    async def feedback(self, answer_id: str, right: bool, comment: str = "") -> None:
        """As `Client.feedback`."""
        await self._send(_feedback(answer_id, right, comment))

    async def _send(self, call: _Call[Answer]) -> Answer:
        content = _content(call)
        for left in reversed(range(TRIES)):
            try:
                came: _Came = await self._http.post(call.path, content=content)
            except _FAILED as error:
                came = error
            if not left or (wait := _wait(came)) is None:
                break
            await asyncio.sleep(wait)
        return _read(self.url, call, came)


_FAILED = (httpx.HTTPError, LargeAnswerError)
_Came = httpx.Response | httpx.HTTPError | LargeAnswerError


def _headers(url: str, key: str) -> dict[str, str]:
    if not is_url(url):
        raise InputError(f"expected an address such as http://localhost:8000, got {url!r:.100}")
    key = key or os.environ.get(KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise InputError("the key has a character that no header can hold; expected one of ASCII")
    sent = {"Authorization": f"Bearer {key}"} if key else {}
    return {"Content-Type": "application/json", **PLAIN, **sent}


def _wait(came: _Came) -> float | None:
    """Seconds until the next try; None if it would change nothing."""
    if isinstance(came, _FAILED):
        return 0.5 if isinstance(came, httpx.ConnectError) else None
    if came.status_code not in BUSY:
        return None
    asked = seconds_of(came.headers.get("Retry-After"))
    return 0.5 if asked is None else min(asked, LONGEST_WAIT)


def _read(url: str, call: _Call[Answer], came: _Came) -> Answer:
    if isinstance(came, _FAILED):
        raise RetrieverError(f"{url} does not answer: {one_line(came)}")
    try:
        answer = came.json()
        if came.is_success:
            return call.read(answer)
        why = str(answer["message"])
    except OTHER_FORM as error:
        status = f"{url} answers {came.status_code}"
        raise RetrieverError(f"{status}, and not as `rerank serve` does: {error!r:.200}") from None
    refused = 400 <= came.status_code < 500 and came.status_code not in BUSY
    raise (InputError if refused else RetrieverError)(f"{url}: {why}")


def _assessment(
    query: Query,
    answer: Mapping[str, Any],
    passages: Sequence[Passage],
    rows: Sequence[Mapping[str, Any]],
    mode: Mode,
) -> Assessment:
    """The assessment of an answer; what the server does not send is NaN."""

    def column(name: str) -> Floats:
        values = [row.get(name) for row in rows]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    n, relevance, logits = len(rows), column("relevance"), column("logit")
    places = np.array([row.get("row", i) for i, row in enumerate(rows)], dtype=np.int64)
    unknown = np.zeros(n, dtype=np.int64)
    stage = FirstStage(places, column("bm25"), column("dense"), unknown, unknown, np.zeros(n))
    asked = Query(query.text, answer["id"], query.metadata, query.passages, where=query.where)
    candidates = Candidates(asked, tuple(passages), stage, np.zeros((n, 0)))
    cut = np.zeros(n, dtype=np.bool_)
    ranking = Ranking(candidates, logits, ~np.isnan(logits), cut, np.zeros((n, 0)), relevance)
    return Assessment(
        ranking=ranking,
        relevance=relevance,
        confidence=answer["confidence"],
        sufficiency_at=tuple(answer["sufficiency_at"]),
        sufficiency_k=answer["sufficiency_k"],
        thresholds=Thresholds(**answer["thresholds"]),
        certified=answer["certified"],
        reasons=tuple(answer["reasons"]),
        features=np.zeros(0),
        mode=mode,
        context_certified=answer["context_certified"],
        calibrated=answer["calibrated"],
    )
