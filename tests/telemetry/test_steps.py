"""Steps below the running one that leave the mesh, and what a provider's method says of its span."""

from __future__ import annotations

import pytest

from hearthnet.bus.session.tracing import Traces, span_ended, span_started
from hearthnet.core.errors import HearthNetError
from hearthnet.models.http_client import HttpRequest, ModelHttpClient
from hearthnet.telemetry import steps
from hearthnet.telemetry.span import SpanRecord
from tests.bus.session.test_tracing import header
from tests.helpers.scripted_model import ScriptedModel

pytestmark = pytest.mark.req("TRACE-10")


def entries(traces: Traces) -> list[SpanRecord]:
    return [entry for _, entry in traces.after(0)]


def test_a_client_step_outside_of_a_step_is_none() -> None:
    with steps.client_step("POST here", {}) as entry:
        assert entry is None
    assert steps.traceparent() == ""
    steps.describe("chat", "client", {})


def test_a_client_step_lies_below_the_method_and_notes_its_failure() -> None:
    traces = Traces()
    served = traces.serving(header(), 0)
    token = span_started(served)
    running = steps.traceparent()
    with steps.client_step("POST here", {"a": 1, "b": ""}, span="POST") as entry:
        assert entry is not None
        assert steps.traceparent() == running != entry.traceparent, "it is not the running step"
    with pytest.raises(HearthNetError, match="late"), steps.client_step("GET here", {}):
        raise HearthNetError("timeout", "late")
    span_ended(served, token)
    traces.end(served)
    post, get, _ = entries(traces)
    assert post.detail is not None
    assert (post.parent, post.detail.name, post.detail.attributes) == (served.handler, "POST", {"a": 1})
    assert (post.code, get.code) == ("", "timeout")
    assert (get.parent, get.trace) == (served.handler, served.trace)
    assert served.tracer is None


def test_a_method_that_goes_on_after_its_call_makes_no_steps() -> None:
    traces = Traces()
    served = traces.serving(header(), 0)
    token = span_started(served)
    traces.end(served)
    with steps.client_step("POST here", {}) as entry:
        assert entry is None
    assert steps.traceparent() == ""
    span_ended(served, token)


def test_what_a_method_says_of_its_span_adds_up() -> None:
    traces = Traces()
    served = traces.serving(header(), 0)
    token = span_started(served)
    steps.describe("tools/call x", "client", {"a": 1})
    steps.describe("tools/call x", "client", {"b": 2})
    span_ended(served, token)
    assert served.detail is not None
    assert served.detail.attributes == {"a": 1, "b": 2}
    with traces.run("ask", "r"):
        steps.describe("no method", "client", {})
    assert entries(traces)[0].detail is None


@pytest.mark.asyncio
async def test_a_request_to_a_model_server_tells_no_key_and_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", "a-secret-of-its-own")
    traces = Traces()
    with ScriptedModel() as model:
        url = model.url.replace("http://", "http://me:secret@")
        connection = ModelHttpClient("scripted", "SCRIPTED_KEY", ("X-Key", "key {key}"))
        served = traces.serving(header(), 0)
        token = span_started(served)
        wrong = HttpRequest("DELETE", f"{url}/models?key=secret", {})
        with pytest.raises(HearthNetError, match="501"):
            async with connection.post(wrong):
                pass
        span_ended(served, token)
        await connection.close()
    (entry,) = entries(traces)
    assert entry.detail is not None
    found = entry.detail.attributes
    assert (found["http.response.status_code"], found["error.type"]) == (501, "501")
    assert found["url.full"] == f"{model.url}/models"
    assert "secret" not in repr(entry)
