"""Sends spans to a collector by OTLP over HTTP, with OpenTelemetry's packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.views.job_traces import JobSpan

_NANO: Final = 1e9
_PATH: Final = "/v1/traces"


class OtlpExporter:
    """Sends spans from a thread, in batches; spans that the collector refuses are dropped.

    OpenTelemetry's environment variables set headers, certificates and time limits, such as
    ``OTEL_EXPORTER_OTLP_HEADERS``.

    Args:
        endpoint: address of the collector, with or without the path for traces.
        version: of the program.
    """

    def __init__(self, endpoint: str, *, version: str) -> None:
        address = endpoint.rstrip("/").removesuffix(_PATH) + _PATH
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=address))
        self._resource = Resource.create({"service.name": "leasehold", "service.version": version})
        self._scope = InstrumentationScope("leasehold", version)

    def export(self, spans: Sequence[JobSpan]) -> None:
        """Queue spans to be sent; returns at once."""
        for span in spans:
            self._processor.on_end(self._readable(span))

    def close(self) -> None:
        """Send the spans that are queued, and stop the thread."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]  # the package has no type here

    def _readable(self, span: JobSpan) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            events=[
                Event(event.name, dict(event.attributes), int(event.at_s * _NANO))
                for event in span.events
            ],
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=int(span.start_s * _NANO),
            end_time=int(span.end_s * _NANO),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
