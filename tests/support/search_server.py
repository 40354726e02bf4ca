"""An HTTP server that speaks the part of OpenSearch's and Elasticsearch's API that searches use.

Written from their documentation: `_mapping`; `_search` with `multi_match`, `terms` or `ids` in a
filter, OpenSearch's `knn` query, Elasticsearch's `knn` option; errors as they send them. It ranks
by shared words and by cosines, and stands in for no server's scores.
"""

from __future__ import annotations

import contextlib
import json
import operator
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

INDEX = "passages"
TEXTS = ("title", "text")
_ALL: Mapping[str, Any] = {"bool": {"filter": []}}


@dataclass
class SearchServer:
    """A server of the rows, its address, and what it was sent. `held` keeps searches waiting.

    `partial` is what its answers say besides, as of shards that failed.
    """

    rows: Sequence[Mapping[str, Any]]
    password: str = ""  # of the header Authorization; "" for none
    url: str = ""
    held: threading.Event | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    options: set[str] = field(default_factory=set)  # the parts of the URLs after "?"
    partial: Mapping[str, Any] = field(default_factory=dict)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and JSON."""
        path, _, options = path.partition("?")
        index, _, what = path.lstrip("/").partition("/")
        if index != INDEX:
            return 404, {"error": {"type": "index_not_found_exception"}, "status": 404}
        if what == "_mapping":
            return 200, {INDEX: {"mappings": {"properties": self._properties()}}}
        if what != "_search":
            return 400, {"error": {"type": "illegal_argument_exception"}, "status": 400}
        self.bodies.append(body)
        self.options.add(options)
        scores = self._scores(body)
        best = sorted(np.flatnonzero(scores > 0), key=lambda i: -scores[i])[: body["size"]]
        hits = [
            {
                "_index": INDEX,
                "_id": f"own-{i}",
                "_score": float(scores[i]),
                "_source": {k: v for k, v in self.rows[i].items() if k in body["_source"]},
            }
            for i in best
        ]
        whole = {"timed_out": False, "_shards": {"total": 3, "successful": 3, "failed": 0}}
        return 200, {"took": 1, **whole, **self.partial, "hits": {"hits": hits}}

    def _properties(self) -> dict[str, Any]:
        width = len(self.rows[0]["vector"])
        vector = {"type": "knn_vector", "dimension": width, "dims": width}
        texts = {name: {"type": "text"} for name in TEXTS}
        others = {"id": "keyword", "place": "keyword", "year": "integer", "live": "boolean"}
        return {
            **texts,
            **{name: {"type": kind} for name, kind in others.items()},
            "vector": vector,
        }

    def _allowed(self, given: Mapping[str, Any]) -> Any:
        """Whether each row fits a `bool` of `terms` and `range`."""
        compare = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
        allowed = np.ones(len(self.rows), dtype=bool)
        for condition in given["bool"]["filter"]:
            ((kind, named),) = condition.items()
            ((name, wanted),) = named.items()
            for i, row in enumerate(self.rows):
                value = row.get(name)
                fits = value in wanted if kind == "terms" else value is not None
                if fits and kind == "range":
                    fits = all(compare[bound](value, limit) for bound, limit in wanted.items())
                allowed[i] &= fits
        return allowed

    def _scores(self, body: Mapping[str, Any]) -> Any:
        query = body.get("query", {})
        if "bool" in query:
            (must,) = query["bool"]["must"]
            allowed = self._allowed(query["bool"]["filter"])
            return self._scores({**body, "query": must}) * allowed
        knn = body.get("knn") or next(iter(query.get("knn", {}).values()), None)
        if knn is not None:
            asked = np.array(knn.get("vector") or knn["query_vector"])
            cosines = np.array([np.dot(row["vector"], asked) for row in self.rows])
            scores = (1 + cosines) / 2
            scores[~self._allowed(knn.get("filter", _ALL))] = 0
            scores[np.argsort(-scores)[knn["k"] :]] = 0
            return scores
        if "multi_match" in query:
            words = set(_words(query["multi_match"]["query"]))
            names = [name.partition("^")[0] for name in query["multi_match"]["fields"]]
            return np.array(
                [
                    sum(w in words for name in names for w in _words(str(row[name])))
                    for row in self.rows
                ],
                dtype=float,
            )
        wanted = query["constant_score"]["filter"]
        if "ids" in wanted:
            found = [f"own-{i}" in wanted["ids"]["values"] for i in range(len(self.rows))]
        else:
            ((name, values),) = wanted["terms"].items()
            found = [row[name] in values for row in self.rows]
        return np.array(found, dtype=float)


@contextmanager
def searching(rows: Sequence[Mapping[str, Any]], *, password: str = "") -> Iterator[SearchServer]:
    """The server, in threads of its own, until the block ends."""
    server = SearchServer(rows, password)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if server.held is not None:
                server.held.wait(600)
            if server.password and self.headers.get("authorization") != server.password:
                status, answer = 401, {"error": "unauthorized", "status": 401}
            else:
                status, answer = server.answer(self.path, json.loads(body or b"{}"))
            sent = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client has given up
                self.wfile.write(sent)

        do_GET = do_POST  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
