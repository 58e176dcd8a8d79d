"""Takes spans and metrics by OTLP over HTTP on loopback, as a collector does, and keeps them for a test."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.helpers.loopback import Loopback


class Span(NamedTuple):
    """One span, ids in hexadecimal; `kind` is 1 for internal, 2 server, 3 client; `failed` is its status."""

    service: str
    name: str
    kind: int
    trace: str
    span: str
    parent: str
    seconds: float
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: tuple[tuple[str, str], ...] = ()
    """Trace and span of each."""


class Point(NamedTuple):
    """One value of a metric; of a histogram how many there were."""

    service: str
    name: str
    value: int
    attributes: dict[str, Any]


@dataclass
class Collector(Loopback):
    """A context manager. `silent`: it accepts connections and never answers."""

    silent: bool = False
    spans: list[Span] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    """Of each group of metrics."""
    raw: list[bytes] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._released = threading.Event()
        return super().__enter__()

    def __exit__(self, *end: Any) -> None:
        self._released.set()
        super().__exit__(*end)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Takes what is exported."""
        return _Handler

    @property
    def url(self) -> str:
        """What stands in a node's settings."""
        return f"http://127.0.0.1:{self.port}"

    def take(self, path: str, body: bytes) -> None:
        """One request of an exporter."""
        if self.silent:
            self._released.wait()
        self.raw.append(body)
        if path == "/v1/traces":
            self._take_spans(body)
        elif path == "/v1/metrics":
            self._take_metrics(body)

    def _take_spans(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [
                    Span(
                        service=about["service.name"],
                        name=span.name,
                        kind=span.kind,
                        trace=span.trace_id.hex(),
                        span=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                        failed=span.status.code == 2,
                        attributes=_attributes(span.attributes),
                        resource=about,
                        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    )
                    for span in scope.spans
                ]

    def _take_metrics(self, body: bytes) -> None:
        for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            about = _attributes(group.resource.attributes)
            self.resources.append(about)
            service = about["service.name"]
            for metric in (metric for scope in group.scope_metrics for metric in scope.metrics):
                for one in metric.histogram.data_points:
                    self.points.append(Point(service, metric.name, one.count, _attributes(one.attributes)))
                for other in metric.sum.data_points:
                    self.points.append(
                        Point(service, metric.name, other.as_int, _attributes(other.attributes))
                    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    which = pair.value.WhichOneof("value")
    return getattr(pair.value, which) if which else None


class _Handler(BaseHTTPRequestHandler):
    owner: Collector

    def log_message(self, format: str, *args: Any) -> None:
        """Tests show what matters themselves."""

    def do_POST(self) -> None:
        """Takes it and says so."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.owner.headers.append(self.headers.get("X-Test", ""))
        self.owner.take(self.path, body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()
