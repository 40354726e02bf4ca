"""Traces and metrics of a server over OTLP: a span for each request, and for each of its steps.

Attributes are OpenInference's for retrieval and rerank, OpenTelemetry's `gen_ai` for generation,
and ours for what was decided. Texts are sent only where the logs may hold them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from rerank.errors import optional
from rerank.serving.parts import AssessedRequest, Host, Part
from rerank.types import Assessment

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAME = "calibrated-rerank"
SHOWN = 10  # passages of a span
LAST = 3  # seconds at the end for what is not sent yet
FAILED = 500  # HTTP status from which the server is to blame
DECIDED = ("confidence", "sufficiency", "level", "verdict", "accepted", "calibrated", "certified")
TOTALS = ("_total", "_count", "_sum", "_bucket")  # samples of counters and histograms

Values = dict[str, Any]


def part(host: Host) -> Part:
    """What `--otlp` adds to a server: a layer around all routes, that ends when it does."""
    url = host.settings.otlp.rstrip("/")
    if not url:
        return Part()
    with optional():
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=f"{url}/v1/metrics"))
    return traced(host, OTLPSpanExporter(endpoint=f"{url}/v1/traces"), reader)


def traced(host: Host, exporter: SpanExporter, reader: MetricReader) -> Part:
    """The layer that sends its spans to `exporter`, and the server's metrics through `reader`."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": NAME})
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans.add_span_processor(BatchSpanProcessor(exporter))
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    send_metrics(host.holder.metrics.registry, meters)

    def finish() -> None:  # side by side and not for long: the collector may be away
        ending = Thread(target=spans.shutdown, daemon=True)
        ending.start()
        meters.shutdown(timeout_millis=1000 * LAST)
        ending.join(LAST)

    layer = {"tracer": spans.get_tracer(NAME), "with_text": host.settings.log_text}
    return Part(middleware=[(Spans, layer)], finish=finish)


@dataclass
class Spans:
    """The layer: spans of each request that was assessed, below the span that the caller names."""

    app: ASGIApp
    tracer: Tracer
    with_text: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.time_ns(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            done = scope["state"].get("assessed")
            if done:
                self._write(scope, done, begin, status)

    def _write(self, scope: Scope, done: AssessedRequest, begin: int, status: int) -> None:
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        headers = {n.decode("latin-1"): value.decode("latin-1") for n, value in scope["headers"]}
        route, end = getattr(scope.get("route"), "path", scope["path"]), time.time_ns()
        whole = self.tracer.start_span(
            f"{scope['method']} {route}",
            context=extract(headers),
            kind=SpanKind.SERVER,
            start_time=begin,
            attributes={
                "http.request.method": scope["method"],
                "http.route": route,
                "http.response.status_code": status,
                "rerank.request_id": done.request_id,
            },
        )
        if status >= FAILED:
            whole.set_status(StatusCode.ERROR)
        assessment = done.assessment
        decided: Values = {f"rerank.{name}": getattr(assessment, name) for name in DECIDED}
        decided |= {"openinference.span.kind": "GUARDRAIL", "rerank.model": done.served.version}
        search = assessment.mode == "search"
        steps = [
            ("search" if search else "rerank", done.began, done.ended, self._found(assessment)),
            ("gate", done.ended, done.ended, decided),
        ]
        if made := getattr(done.answer, "model_calls", 0):
            asked = {"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat"}
            steps.append(("generation", done.ended, end, {**asked, "rerank.model_calls": made}))
        context = set_span_in_context(whole)
        for name, start, stop, attributes in steps:
            step = self.tracer.start_span(name, context, start_time=start, attributes=attributes)
            step.end(stop)
        whole.end(end)

    def _found(self, assessment: Assessment) -> Values:
        """OpenInference's attributes of a retriever, or of a reranker."""
        kind, documents, asked = "RERANKER", "reranker.output_documents", "reranker.query"
        if assessment.mode == "search":
            kind, documents, asked = "RETRIEVER", "retrieval.documents", "input.value"
        found: Values = {"openinference.span.kind": kind}
        if self.with_text:
            found[asked] = assessment.ranking.query.text
        for i, passage in enumerate(assessment.first(SHOWN)):
            found[f"{documents}.{i}.document.id"] = passage.doc_id
            found[f"{documents}.{i}.document.score"] = passage.relevance
            if self.with_text:
                found[f"{documents}.{i}.document.content"] = passage.text
        return found


def send_metrics(registry: CollectorRegistry, meters: MeterProvider) -> None:
    """Observe every sample of Prometheus's registry; a histogram's are its counts by bucket."""
    from opentelemetry.metrics import Observation

    meter = meters.get_meter(NAME)

    def samples(name: str, _: CallbackOptions) -> Iterable[Observation]:
        """The present values of a sample, one for each combination of labels."""
        for sample in (one for family in registry.collect() for one in family.samples):
            if sample.name == name:
                yield Observation(sample.value, sample.labels)

    for family in registry.collect():
        names = {"": "gauge"} if family.type == "gauge" else dict.fromkeys(TOTALS, "counter")
        for ending, kind in names.items():
            name = family.name + ending
            getattr(meter, f"create_observable_{kind}")(name, [partial(samples, name)])
