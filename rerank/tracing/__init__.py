"""Traces and metrics of a server for OpenTelemetry: `serve --otlp`."""

from __future__ import annotations

from rerank.errors import optional
from rerank.serving.parts import Host, Part


def part(host: Host) -> Part:
    """What `--otlp` adds to a server: a layer around all routes, that ends when it does."""
    url = host.settings.otlp.rstrip("/")
    if not url:
        return Part()
    with optional():
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        from rerank.tracing.spans import traced
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=f"{url}/v1/metrics"))
    return traced(host, OTLPSpanExporter(endpoint=f"{url}/v1/traces"), reader)
