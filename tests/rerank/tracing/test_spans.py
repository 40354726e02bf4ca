"""What a collector gets from a server: a trace for each request, and the metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest
from llm_endpoint import endpoint as answering
from llm_endpoint import says
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from server import serving

from rerank.advice.settings import AnswerConfig, LanguageModelConfig
from rerank.assessment.model import CalibratedReranker
from rerank.errors import InputError
from rerank.serving.settings import Settings

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
QUERY = "median along an axis while ignoring NaNs"


class Collector(ThreadingHTTPServer):
    """Keeps what is sent to it, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.got: defaultdict[str, list[bytes]] = defaultdict(list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[Any]:
        """All spans, in the order of their begin."""
        sent = [ExportTraceServiceRequest.FromString(b) for b in self.got["/v1/traces"]]
        found = [
            s for r in sent for one in r.resource_spans for x in one.scope_spans for s in x.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def metrics(self) -> dict[str, Any]:
        """The last metrics by name."""
        last = ExportMetricsServiceRequest.FromString(self.got["/v1/metrics"][-1])
        (resource,) = last.resource_metrics
        return {m.name: m for scope in resource.scope_metrics for m in scope.metrics}


class Receiver(BaseHTTPRequestHandler):
    """One message to the collector."""

    def do_POST(self) -> None:
        """Keep it."""
        owner: Any = self.server
        owner.got[self.path].append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on this machine."""
    with Collector() as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def values(span: Any) -> dict[str, Any]:
    """The attributes of a span."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_search_is_a_trace_of_its_steps(run: Any, collector: Collector) -> None:
    """Below the caller's span, with OpenInference's attributes, what was decided, and no text."""
    with serving(run.folder, otlp=collector.url) as started:
        sent = {"query": QUERY}
        found = httpx.post(
            f"{started.url}/v1/search", json=sent, headers=CALLER, timeout=600
        ).json()
        httpx.get(f"{started.url}/healthz")
    whole, search, gate = collector.spans()
    assert [s.name for s in (whole, search, gate)] == ["POST /v1/search", "search", "gate"]
    assert {s.trace_id.hex() for s in (whole, search, gate)} == {TRACE}
    assert {search.parent_span_id, gate.parent_span_id} == {whole.span_id}
    assert whole.start_time_unix_nano <= search.start_time_unix_nano
    assert search.start_time_unix_nano < search.end_time_unix_nano == gate.start_time_unix_nano
    assert values(whole)["rerank.request_id"] == found["id"]
    told = values(search)
    assert told["openinference.span.kind"] == "RETRIEVER"
    first = found["ranking"][0]
    assert told["retrieval.documents.0.document.id"] == first["doc_id"]
    assert told["retrieval.documents.0.document.score"] == first["relevance"]
    assert not [name for name in told if name.endswith("content") or name == "input.value"]
    names = ("confidence", "sufficiency", "level", "verdict", "accepted", "calibrated", "model")
    decided = values(gate)
    assert {name: decided[f"rerank.{name}"] for name in names} == {n: found[n] for n in names}
    point = collector.metrics()["rerank_assessments_total"].sum.data_points
    assert sum(p.as_double for p in point) == 1


def test_a_rerank_with_texts(run: Any, texts: list[str], collector: Collector) -> None:
    """Texts are sent where the logs may hold them; a refused request has no spans."""
    with serving(run.folder, otlp=collector.url, log_text=True) as started:
        address = f"{started.url}/v1/rerank"
        httpx.post(address, json={"query": " ", "documents": texts[:3]}, timeout=600)
        httpx.post(address, json={"query": QUERY, "documents": texts[:3]}, timeout=600)
    told = values(collector.spans()[1])
    assert told["openinference.span.kind"] == "RERANKER"
    assert told["reranker.query"] == QUERY
    assert told["reranker.output_documents.0.document.content"] in texts[:3]
    assert len(collector.spans()) == 3


def test_an_answer_of_a_language_model_is_a_step(
    run: Any, collector: Collector, small: Any
) -> None:
    """A generation where a model was called; where the gate refuses, none is."""
    model = CalibratedReranker.load(run.folder)
    asked = [query.text for query in list(small.queries.values())[:12]]
    question = next(text for text in asked if model.search(text).verdict == "SUFFICIENT")
    top = model.search(question).top
    assert top
    with answering(*[says(f"{top.text.splitlines()[0].rstrip('.')} [S1].")] * 2) as endpoint:
        named = LanguageModelConfig(endpoint.url, "m", llm_retries=0)
        given = {"rag": AnswerConfig(language_model=named)}
        with serving(run.folder, given=given, otlp=collector.url) as started:
            for text in (question, "how to bake sourdough bread"):
                httpx.post(f"{started.url}/v1/answer", json={"query": text}, timeout=600)
    *answered, _, _, _ = spans = collector.spans()
    assert [s.name for s in answered] == ["POST /v1/answer", "search", "gate", "generation"]
    assert values(answered[3])["rerank.model_calls"] == 1
    assert answered[3].start_time_unix_nano < answered[3].end_time_unix_nano
    assert len(spans) == 7


def test_an_address_is_checked() -> None:
    """Before anything starts."""
    with pytest.raises(InputError, match="otlp"):
        Settings(otlp="localhost 4318")
