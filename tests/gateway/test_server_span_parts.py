"""What the step of a request says of it, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hearthnet.agent.loop.events import Dispatch
from hearthnet.agent.runtime.spans import tool_span
from hearthnet.bus.session.tracing import Traces
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.server_span import server_span
from hearthnet.gateway.mcp.span import call_span
from hearthnet.telemetry.span import SpanRecord

pytestmark = pytest.mark.req("TRACE-9")
ABOVE = f"00-{'ab' * 16}-{'cd' * 8}-01"


def scope(method: str = "POST", path: str = "/v1/call", kind: str = "http", **headers: str) -> dict[str, Any]:
    """As a server makes one."""
    given = {"host": "[::1]:8420", **headers}
    return {
        "type": kind,
        "method": method,
        "path": path,
        "scheme": "http",
        "http_version": "1.1",
        "client": ("127.0.0.1", 5),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }


def traced(asked: dict[str, Any], status: int, error: Exception | None = None) -> SpanRecord | None:
    """The step that a request with that answer leaves."""
    traces = Traces()
    try:
        with server_span(traces, asked, lambda: status):
            if error is not None:
                raise error
    except HearthNetError:
        pass
    found = [entry for _, entry in traces.after(0)]
    return found[0] if found else None


def test_a_read_is_a_step_only_where_it_names_a_trace() -> None:
    assert traced(scope("GET"), 200) is None
    assert traced(scope("GET", traceparent="nonsense"), 200) is None
    entry = traced(scope("GET", traceparent=ABOVE), 200)
    assert entry is not None
    assert (entry.trace, entry.parent) == ("ab" * 16, "cd" * 8)


def test_two_traceparents_count_as_none() -> None:
    asked = scope("POST", traceparent=ABOVE)
    asked["headers"].append((b"traceparent", ABOVE.encode()))
    entry = traced(asked, 200)
    assert entry is not None
    assert entry.parent == ""


def test_an_unknown_method_makes_no_name_of_its_own() -> None:
    entry = traced(scope("BREW"), 405)
    assert entry is not None
    assert entry.detail is not None
    assert entry.capability == "HTTP"
    found = entry.detail.attributes
    assert (found["http.request.method"], found["http.request.method_original"]) == ("_OTHER", "BREW")
    assert (found["server.address"], found["server.port"]) == ("::1", 8420)


@pytest.mark.parametrize(
    ("status", "error", "expected", "code"),
    [
        (503, None, 503, "internal_error"),
        (404, None, 404, ""),
        (0, HearthNetError("rate_limited", "later"), 429, "rate_limited"),
        (0, HearthNetError("partition", "gone"), 503, "partition"),
    ],
)
def test_a_step_says_how_its_request_ended(
    status: int, error: Exception | None, expected: int, code: str
) -> None:
    entry = traced(scope(), status, error)
    assert entry is not None
    assert entry.detail is not None
    found = entry.detail.attributes
    assert (found["http.response.status_code"], entry.code) == (expected, code)
    assert found.get("error.type") == (str(expected) if expected >= 500 else None)


def test_an_open_socket_has_switched_protocols() -> None:
    asked = scope("GET", "/v1/socket", "websocket", host="kitchen")
    del asked["method"]
    entry = traced(asked, 0)
    assert entry is not None
    assert entry.detail is not None
    assert entry.detail.attributes["http.response.status_code"] == 101
    assert entry.detail.attributes["http.request.method"] == "GET"
    assert entry.detail.attributes["server.address"] == "kitchen"


@pytest.mark.parametrize("host", ["[::1]:²", "[::1]:", "²", ":", "[::1]:99999999"])
def test_a_host_with_an_odd_port_breaks_no_request(host: str) -> None:
    asked = scope("POST")
    asked["headers"] = [(b"host", host.encode("latin-1"))]
    assert traced(asked, 200) is not None


def test_ids_that_a_client_makes_up_are_cut() -> None:
    """Thousands of steps are kept, so none may hold what a request has room for."""
    traces = Traces()
    request = SimpleNamespace(scope={}, headers={"mcp-session-id": "s" * 60_000})
    context = SimpleNamespace(request=request, request_id="r" * 900_000, protocol_version="2025-11-25")
    with call_span(traces, context, SimpleNamespace(meta=None)):
        pass
    call = Dispatch(
        tool_call_id="c" * 900_000,
        name="market_post",
        capability="market.post@1.0",
        body={},
        client_id="",
        timeout_ms=1,
    )
    with tool_span(SimpleNamespace(traces=traces), "", call):
        pass
    entries = [entry for _, entry in traces.after(0)]
    assert len(entries) == 2
    for entry in entries:
        assert entry.detail is not None
        assert max(len(str(value)) for value in entry.detail.attributes.values()) == 200
