"""Spans and metrics by OpenTelemetry's SDK, imported only if needed (docs/operations.md).

Spans are made of entries when these end, under the ids already sent over the wire: the path of a call is the
same with and without an exporter (docs/decisions/0061).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from random import getrandbits
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from hearthnet import __version__
from hearthnet.core import ids
from hearthnet.core.errors import MINE, HearthNetError
from hearthnet.telemetry import names
from hearthnet.telemetry.conventions import Conventional
from hearthnet.telemetry.settings import TelemetrySettings
from hearthnet.telemetry.span import Detail, Side, SpanRecord

FLUSH_SECONDS: Final = 1.0
"""Maximum wait for unsent data at the end of a process: a node ends within 5 s, with or without a collector.
"""
_MOST_METHODS: Final = 256
_KINDS: Final = {"caller": SpanKind.CLIENT, "provider": SpanKind.SERVER}
_DETAILED: Final = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_PLAIN: Final = Detail()
_NO_FAULT: Final = frozenset({"", "cancelled"})
Gauges = Mapping[Side, Callable[[], int]]


class _FixedIds(IdGenerator):
    """The ids of the next span: those that its call had on the wire."""

    def __init__(self) -> None:
        self.trace = 0
        self.span = 0

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


class Exporter:
    """Turns the entries of one process into spans and metrics, which threads of the SDK send."""

    def __init__(
        self,
        wanted: TelemetrySettings,
        service: str,
        node: str,
        instance: str,
        in_flight: Gauges,
        dropped: Gauges,
    ) -> None:
        """Set up the SDK; `in_flight` and `dropped` are called from its thread for each export."""
        self._ids = _FixedIds()
        resource = _resource(service, node, instance)
        self._traces = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        if wanted.traces:
            where = f"{wanted.endpoint.rstrip('/')}/v1/traces" if wanted.endpoint else None
            self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=where)))
        readers = []
        if wanted.metrics:
            where = f"{wanted.endpoint.rstrip('/')}/v1/metrics" if wanted.endpoint else None
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=where)))
        self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer(names.SCOPE, __version__) if wanted.traces else None
        self._methods: set[str] = set()
        meter = self._metrics.get_meter(names.SCOPE, __version__)
        seconds = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=names.SECONDS)
        self._seconds = {
            "caller": seconds(names.CALLER_SECONDS),
            "provider": seconds(names.PROVIDER_SECONDS),
        }
        self._calls = meter.create_counter(names.CALLS, "{call}")
        self._paths = meter.create_counter(names.PATHS, "{call}")
        self._frames = meter.create_counter(names.STREAM_FRAMES, "{frame}")
        self._conventional = Conventional(meter)
        self._tools: set[str] = set()
        self._shown = meter.create_counter(names.TOOLS_SHOWN, "{run}")
        self._called = meter.create_counter(names.TOOLS_CALLED, "{call}")
        self._unused = meter.create_counter(names.TOOLS_UNUSED, "{run}")
        meter.create_observable_up_down_counter(names.IN_FLIGHT, [_observing(in_flight)], "{call}")
        meter.create_observable_counter(names.DROPPED, [_observing(dropped)], "{frame}")

    def sampled(self, trace: str) -> bool:
        """Return whether a trace that begins here is exported, by OTEL_TRACES_SAMPLER."""
        decision = self._traces.sampler.should_sample(None, int(trace, 16), "").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def on_end(self, entry: SpanRecord) -> None:
        """Count the entry, and make its spans if its trace is exported."""
        if entry.side != "run":
            self._count(entry)
        if entry.detail is not None:
            took = entry.took_ns if entry.side == "run" else entry.handler_took_ns
            self._conventional.count(entry.detail, _detailed(entry, entry.detail), took / 1e9)
        if self._tracer is not None and entry.sampled:
            self._span(self._tracer, entry)

    def on_selection(self, called: dict[str, int], unused: list[str]) -> None:
        """Count the tools that a run's model called and those that it was shown in vain."""
        for name in (*called, *unused):
            tool = {names.TOOL: _bounded(name, self._tools)}
            self._shown.add(1, tool)
            if name in called:
                self._called.add(called[name], tool)
            else:
                self._unused.add(1, tool)

    def close(self) -> None:
        """Send unsent data for at most a second, even if the collector is unreachable."""
        thread = threading.Thread(target=self._shutdown, name="telemetry", daemon=True)
        thread.start()
        thread.join(FLUSH_SECONDS)

    def _shutdown(self) -> None:
        self._traces.shutdown()
        self._metrics.shutdown()

    def _count(self, entry: SpanRecord) -> None:
        attributes = self._common(entry)
        self._seconds[entry.side].record(entry.took_ns / 1e9, attributes)
        attributes[names.SIDE] = entry.side
        self._calls.add(1, attributes)
        if entry.frames:
            self._frames.add(entry.frames, attributes)
        if entry.path:
            self._paths.add(1, attributes | {names.PATH: entry.path})

    def _common(self, entry: SpanRecord) -> dict[str, Any]:
        attributes = {
            names.SYSTEM: names.NAMESPACE,
            names.METHOD: _bounded(entry.capability, self._methods),
            names.STATUS: entry.code or names.WORKED,
        }
        if entry.code:
            attributes[names.ERROR] = entry.code
        return attributes

    def _span(self, tracer: Tracer, entry: SpanRecord) -> None:
        ids = self._ids
        ids.trace, ids.span = int(entry.trace, 16), int(entry.span, 16)
        above = set_span_in_context(_remote(entry.trace, entry.parent)) if entry.parent else None
        detail = (entry.detail or _PLAIN) if entry.side == "run" else _PLAIN
        span = tracer.start_span(
            detail.name or entry.capability,
            above,
            _KINDS.get(entry.side) or _DETAILED[detail.kind],
            self._attributes(entry),
            links=[_link(one) for one in detail.links],
            start_time=entry.epoch_ns + entry.began_ns,
        )
        _end(span, entry, entry.began_ns + entry.took_ns, failed=_is_fault(entry))
        if entry.handler_began_ns:
            self._handler_span(tracer, entry)

    def _handler_span(self, tracer: Tracer, entry: SpanRecord) -> None:
        """Make the span of a provider's method."""
        entry.handler = entry.handler or f"{getrandbits(64) or 1:016x}"
        self._ids.span = int(entry.handler, 16)
        detail = entry.detail or _PLAIN
        span = tracer.start_span(
            detail.name or f"{entry.capability} handler",
            set_span_in_context(_remote(entry.trace, entry.span)),
            _DETAILED[detail.kind],
            _detailed(entry, detail) if entry.detail is not None else None,
            start_time=entry.epoch_ns + entry.handler_began_ns,
        )
        failed = entry.detail is not None and entry.code not in _NO_FAULT
        _end(span, entry, entry.handler_began_ns + entry.handler_took_ns, failed=failed)

    def _attributes(self, entry: SpanRecord) -> dict[str, Any]:
        if entry.side == "run":
            return ({names.RUN: entry.run} if entry.run else {}) | _detailed(entry, entry.detail or _PLAIN)
        peer = names.PROVIDER if entry.side == "caller" else names.CALLER
        more = {
            peer: _short(entry.peer) if entry.peer else "",
            names.CALL: entry.call,
            names.RUN: entry.run,
            names.PATH: entry.path,
            names.ATTEMPTS: entry.attempts,
            names.FRAMES: entry.frames,
            names.BYTES_IN: entry.bytes_in,
            names.BYTES_OUT: entry.bytes_out,
        }
        return self._common(entry) | {name: value for name, value in more.items() if value}


def _bounded(name: str, known: set[str]) -> str:
    """Return the name while there are few, since callers choose it and each makes a series."""
    if name not in known:
        if len(known) >= _MOST_METHODS:
            return names.OTHER
        known.add(name)
    return name


def _detailed(entry: SpanRecord, detail: Detail) -> dict[str, Any]:
    """Return the attributes of a step's detail, and its error if they do not name it."""
    failed = {names.ERROR: entry.code} if entry.code not in _NO_FAULT else {}
    return failed | detail.attributes


def _end(span: Span, entry: SpanRecord, at_ns: int, *, failed: bool) -> None:
    if failed:
        span.set_status(Status(StatusCode.ERROR, entry.code))
    span.end(entry.epoch_ns + at_ns)


def _is_fault(entry: SpanRecord) -> bool:
    """Return whether the entry is an error of its own side.

    A provider is not at fault for a caller's error, and neither side for a cancellation.
    """
    serves = entry.side == "provider" or (entry.detail is not None and entry.detail.kind == "server")
    return entry.code not in _NO_FAULT and not (serves and entry.code in MINE)


def _link(traceparent: str) -> Link:
    context = _remote(traceparent[3:35], traceparent[36:52]).get_span_context()
    return Link(context)


def _remote(trace: str, span: str) -> NonRecordingSpan:
    """Return the span of another process as a parent; its trace is exported."""
    flags = TraceFlags(TraceFlags.SAMPLED)
    return NonRecordingSpan(SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=flags))


def _resource(service: str, node: str, instance: str) -> Resource:
    """Return the attributes of the process.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    """
    ours = {
        names.SERVICE_NAME: f"{names.NAMESPACE}-{service.replace(' ', '-')}",
        names.SERVICE_NAMESPACE: names.NAMESPACE,
        names.SERVICE_VERSION: __version__,
        names.SERVICE_INSTANCE: instance,
        names.NODE: _short(node),
    }
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def _observing(gauges: Gauges) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(ask(), {names.SIDE: side}) for side, ask in list(gauges.items())]

    return observe


@lru_cache(maxsize=1024)
def _short(node: str) -> str:
    try:
        return ids.short_id(node)
    except HearthNetError:
        return node
