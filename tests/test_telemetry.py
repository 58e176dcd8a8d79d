"""Whether spans and metrics are exported, what becomes of an entry, and a collector that is away."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hearthnet import telemetry
from hearthnet.bus.session.tracing import Traces
from hearthnet.core.config import TelemetryConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor.run import run
from hearthnet.telemetry.exporter import FLUSH_SECONDS, Exporter
from hearthnet.telemetry.settings import TelemetrySettings, settings
from hearthnet.telemetry.span import Detail, SpanRecord
from tests.helpers.collector import Collector
from tests.helpers.stopwatch import Stopwatch

EXPORT_SECONDS = 10
"""The exporter's timeout unless OTEL_EXPORTER_OTLP_TIMEOUT says otherwise."""

AT = "OTEL_EXPORTER_OTLP_ENDPOINT"
URL = "http://127.0.0.1:4318"
NODE = "ed25519:" + "A" * 43
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def entry(
    side: str = "caller", *, code: str = "", capability: str = "rag.query@1.0", flags: str = "01"
) -> SpanRecord:
    """A step that ended."""
    above = f"00-{TRACE}-{'ab' * 8}-{flags}"
    made = SpanRecord(side, capability, above, "cd" * 8, "r1", time.time_ns() - 10_000, 10_000)  # type: ignore[arg-type]
    made.peer, made.call, made.code, made.took_ns, made.attempts = NODE, "c1", code, 2_000_000, 2
    return made


# --- settings


@pytest.mark.req("TRACE-4")
@pytest.mark.parametrize(
    ("endpoint", "environment", "wanted"),
    [
        ("", {}, None),
        ("", {"OTEL_SERVICE_NAME": "x"}, None),
        (URL, {}, TelemetrySettings(True, True, URL, "[telemetry] endpoint")),
        ("", {AT: URL}, TelemetrySettings(True, True, "", AT)),
        ("none", {AT: URL}, None),
        (URL, {"OTEL_SDK_DISABLED": "True"}, None),
        (URL, {"OTEL_METRICS_EXPORTER": "none"}, TelemetrySettings(True, False, URL, "[telemetry] endpoint")),
        ("", {AT: URL, "OTEL_TRACES_EXPORTER": "none"}, TelemetrySettings(False, True, "", AT)),
        ("", {AT: URL, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, None),
        ("", {"OTEL_TRACES_EXPORTER": "otlp"}, TelemetrySettings(True, False, "", "OTEL_TRACES_EXPORTER")),
        (
            "",
            {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": URL},
            TelemetrySettings(False, True, "", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        ),
        (
            "",
            {AT: URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            TelemetrySettings(True, True, "", AT),
        ),
    ],
)
def test_the_settings_come_before_the_environment(
    endpoint: str, environment: dict[str, str], wanted: TelemetrySettings | None
) -> None:
    assert settings(endpoint, environment) == wanted


@pytest.mark.req("TRACE-5")
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({AT: URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "speaks http/protobuf"),
        ({AT: URL, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, "otlp, or none"),
    ],
)
def test_what_cannot_be_had_is_said(environment: dict[str, str], words: str) -> None:
    with pytest.raises(HearthNetError, match=words) as caught:
        settings("", environment)
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRACE-5")
def test_an_extra_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hearthnet.telemetry.exporter")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    telemetry.check("none")
    telemetry.check("")
    with pytest.raises(HearthNetError, match=r"pip install 'hearthnet\[telemetry\]'.*none") as caught:
        telemetry.check(URL)
    assert caught.value.exit_status == 2


@pytest.mark.req("TRACE-5")
def test_a_node_that_cannot_export_what_its_settings_want_does_not_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "hearthnet.toml").write_text(f'[telemetry]\nendpoint = "{URL}"\n')
    monkeypatch.delitem(sys.modules, "hearthnet.telemetry.exporter")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(HearthNetError, match="not installed"):
        run(Home(home), specs=())
    assert not Home(home).state.exists()


@pytest.mark.req("TRACE-5")
@pytest.mark.parametrize("text", ["", "none", URL, "https://collector.example/otlp"])
def test_an_endpoint_is_a_url(text: str) -> None:
    assert TelemetryConfig(text).endpoint == text


@pytest.mark.req("TRACE-5")
@pytest.mark.parametrize(
    "text", ["localhost:4318", "grpc://a:4317", "http://me:secret@host", "http://", "http://a b"]
)
def test_another_endpoint_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_HEADERS") as caught:
        TelemetryConfig(text)
    assert "secret" not in str(caught.value)


# --- the exporter


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One that answers."""
    with Collector() as running:
        yield running


def exporter(url: str, dropped: int = 0, *, traces: bool = True, metrics: bool = True) -> Exporter:
    """That of a process with 3 calls on their way."""
    wanted = TelemetrySettings(traces, metrics, url, "a test")
    return Exporter(wanted, "rag", NODE, "abcdefgh", {"caller": lambda: 3}, {"provider": lambda: dropped})


@pytest.mark.req("TRACE-4")
def test_an_entry_becomes_a_span_under_its_own_ids(collector: Collector) -> None:
    made, served = exporter(collector.url), entry("provider")
    served.handler, served.handler_began_ns, served.handler_took_ns = "ef" * 8, 10_000, 1_000_000
    made.on_end(entry())
    made.on_end(served)
    made.on_end(entry("run", capability="ask"))
    made.close()
    asked, answered, handler, run = collector.spans
    assert {span.trace for span in collector.spans} == {TRACE}
    assert [(span.name, span.kind) for span in collector.spans] == [
        ("rag.query@1.0", 3),
        ("rag.query@1.0", 2),
        ("rag.query@1.0 handler", 1),
        ("ask", 1),
    ]
    assert (asked.span, asked.parent) == (answered.span, answered.parent) == ("cd" * 8, "ab" * 8)
    assert (handler.span, handler.parent) == ("ef" * 8, "cd" * 8)
    assert [round(span.seconds, 6) for span in (asked, handler)] == [0.002, 0.001]
    assert asked.attributes == {
        "rpc.system.name": "hearthnet",
        "rpc.method": "rag.query@1.0",
        "rpc.response.status_code": "ok",
        "server.address": "ed25519:AAAA-AAAA-AAAA-AAAA",
        "hearthnet.call": "c1",
        "hearthnet.run": "r1",
        "hearthnet.attempts": 2,
    }
    assert answered.attributes["client.address"] == "ed25519:AAAA-AAAA-AAAA-AAAA"
    assert run.attributes == {"hearthnet.run": "r1"}
    assert asked.resource["service.name"] == "hearthnet-rag"
    assert asked.resource["service.instance.id"] == "abcdefgh"


@pytest.mark.req("TRACE-4")
@pytest.mark.parametrize(
    ("side", "code", "failed"),
    [
        ("caller", "timeout", True),
        ("caller", "unauthorized", True),
        ("provider", "unauthorized", False),
        ("provider", "internal_error", True),
        ("caller", "cancelled", False),
    ],
)
def test_a_span_failed_where_its_side_is_to_blame(
    collector: Collector, side: str, code: str, failed: bool
) -> None:
    made = exporter(collector.url, metrics=False)
    made.on_end(entry(side, code=code))
    made.close()
    [span] = collector.spans
    assert span.failed is failed
    assert span.attributes["error.type"] == span.attributes["rpc.response.status_code"] == code


@pytest.mark.req("TRACE-4")
def test_calls_are_counted_and_timed(collector: Collector) -> None:
    made, stream = (
        exporter(collector.url, dropped=7, traces=False),
        entry("provider", capability="llm.chat@2.0"),
    )
    stream.frames, stream.path = 5, "text"
    for one in (entry(), entry(), entry(code="timeout"), stream, entry("run")):
        made.on_end(one)
    made.close()
    assert collector.spans == []
    found = {
        (
            point.name,
            point.attributes.get("rpc.method"),
            point.attributes.get("rpc.response.status_code"),
        ): point
        for point in collector.points
    }
    assert {key: point.value for key, point in found.items()} == {
        ("rpc.client.call.duration", "rag.query@1.0", "ok"): 2,
        ("rpc.client.call.duration", "rag.query@1.0", "timeout"): 1,
        ("rpc.server.call.duration", "llm.chat@2.0", "ok"): 1,
        ("hearthnet.calls", "rag.query@1.0", "ok"): 2,
        ("hearthnet.calls", "rag.query@1.0", "timeout"): 1,
        ("hearthnet.calls", "llm.chat@2.0", "ok"): 1,
        ("hearthnet.calls.by_path", "llm.chat@2.0", "ok"): 1,
        ("hearthnet.stream.frames", "llm.chat@2.0", "ok"): 5,
        ("hearthnet.calls.in_flight", None, None): 3,
        ("hearthnet.frames.dropped", None, None): 7,
    }
    assert found["hearthnet.calls", "llm.chat@2.0", "ok"].attributes["hearthnet.side"] == "provider"
    assert found["hearthnet.calls.by_path", "llm.chat@2.0", "ok"].attributes["hearthnet.path"] == "text"


@pytest.mark.req("TOOL-66")
def test_tools_that_were_shown_are_counted_by_name(collector: Collector) -> None:
    made = exporter(collector.url, traces=False)
    made.on_selection({"search": 3}, ["post"])
    made.on_selection({}, ["search", "post"])
    made.close()
    found = {
        (point.name, point.attributes.get("hearthnet.tool")): point.value
        for point in collector.points
        if point.name.startswith("hearthnet.tools.")
    }
    assert found == {
        ("hearthnet.tools.shown", "search"): 2,
        ("hearthnet.tools.shown", "post"): 2,
        ("hearthnet.tools.called", "search"): 3,
        ("hearthnet.tools.unused", "search"): 1,
        ("hearthnet.tools.unused", "post"): 2,
    }


@pytest.mark.req("TRACE-4")
def test_methods_that_callers_make_up_do_not_make_series_without_end(collector: Collector) -> None:
    made = exporter(collector.url, traces=False)
    for number in range(300):
        made.on_end(entry("provider", capability=f"a.b{number}@1.0", code="not_found"))
    made.close()
    counts = {
        point.attributes["rpc.method"]: point.value
        for point in collector.points
        if point.name == "hearthnet.calls"
    }
    assert len(counts) == 257
    assert counts["_OTHER"] == 44


@pytest.mark.req("TRACE-4")
def test_what_the_standard_variables_say_holds(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AT, collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-test=yes")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "kitchen")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "room=north")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    made = telemetry.start("", "rag", NODE, "abcdefgh", {}, {})
    assert made is not None
    traces = Traces()
    traces.on_end, traces.sampled = made.on_end, made.sampled
    traces.end(traces.calling("rag.query@1.0", ""))
    made.on_end(entry())
    made.on_end(entry(flags="00"))
    made.close()
    assert collector.spans == []
    assert {point.service for point in collector.points} == {"kitchen"}
    (resource,) = {tuple(sorted(one.items())) for one in collector.resources}
    assert ("room", "north") in resource
    assert set(collector.headers) == {"yes"}


@pytest.mark.req("TRACE-8")
@pytest.mark.parametrize("silent", [True, False])
def test_a_collector_that_is_away_holds_nobody_up(silent: bool) -> None:
    with Collector(silent) as collector, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and nobody listens there
        made = exporter(collector.url if silent else f"http://127.0.0.1:{closed.getsockname()[1]}")
        watch = Stopwatch()
        for _ in range(2_000):
            made.on_end(entry())
        handed_over, ending = watch.seconds(), Stopwatch()
        made.close()
        assert handed_over < EXPORT_SECONDS, "one export that is waited for takes as long as that"
        assert ending.seconds() < FLUSH_SECONDS + 1


@pytest.mark.req("TRACE-9", "TRACE-10")
def test_a_step_with_a_detail_is_a_span_of_its_kind_and_counted(collector: Collector) -> None:
    made = exporter(collector.url)
    request, answer = entry("run", capability="POST /v1/call"), entry("provider", capability="llm.chat@2.0")
    link = f"00-{'12' * 16}-{'34' * 8}-01"
    http = {"http.request.method": "POST", "http.route": "/v1/call", "url.path": "/v1/call"}
    request.detail = Detail(kind="server", attributes=http, links=(link,))
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 7}
    answer.detail = Detail(name="chat m", kind="client", attributes=model)
    answer.code, answer.handler_began_ns, answer.handler_took_ns = "timeout", 10_000, 1_000_000
    for one in (request, answer):
        made.on_end(one)
    made.close()
    served, _, chat = collector.spans
    assert (served.name, served.kind, served.links) == ("POST /v1/call", 2, (("12" * 16, "34" * 8),))
    assert (chat.name, chat.kind, chat.failed) == ("chat m", 3, True)
    assert chat.attributes == {**model, "error.type": "timeout"}
    counted = {point.name: point.attributes for point in collector.points if "hearthnet" not in point.name}
    assert counted["http.server.request.duration"] == {
        "http.request.method": "POST",
        "http.route": "/v1/call",
    }
    assert counted["gen_ai.client.token.usage"]["gen_ai.token.type"] == "input"
    assert counted["gen_ai.client.operation.duration"]["error.type"] == "timeout"
