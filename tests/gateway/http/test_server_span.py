"""One trace from a program through gateway, run, model server and MCP servers, over processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from tests.helpers.collector import Collector, Span
from tests.helpers.scripted_model import NAME, Say
from tests.helpers.served import Served, served
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync
from tests.services.mcp.houses import Plain, tool

INTERNAL, SERVER, CLIENT = 1, 2, 3
POST = {"category": "offer", "title": "Secret jam", "body": "Plum."}
SCOPE = ("llm.chat", "market.post", "market.list")
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


class Exporting(Shell):
    """A shell whose processes send what they have at once."""

    sampler: ClassVar[dict[str, str]] = {}

    def environ(self) -> dict[str, str]:
        """With the SDK's own variables."""
        quick = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
        return {**super().environ(), **quick, **self.sampler}


class Sparing(Exporting):
    """One whose processes export no trace that they decide about, and every one that their parent wants."""

    sampler: ClassVar[dict[str, str]] = {
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0",
    }


@dataclass
class Watched:
    """A node, and the collector that its processes send to."""

    node: Served
    collector: Collector
    plain: Plain

    def spans(self, trace: str, *names: str) -> dict[str, Span]:
        """The spans of a trace by name, the last of each, once those of `names` are there."""

        def there() -> dict[str, Span] | None:
            found = {span.name: span for span in self.collector.spans if span.trace == trace}
            return found if found.keys() >= set(names) else None

        return wait_for_sync(there, 30, f"{names} in {trace}")

    def all(self, name: str, count: int, trace: str) -> list[Span]:
        """All spans of that name in a trace, once there are `count`."""

        def there() -> list[Span] | None:
            found = [span for span in self.collector.spans if (span.name, span.trace) == (name, trace)]
            return found if len(found) >= count else None

        return wait_for_sync(there, 30, f"{count} of {name}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A node with a market and an MCP server, whose spans and metrics are collected."""
    folder = tmp_path_factory.mktemp("spans")
    plain = Plain(folder / "plain")
    plain.lists(tool("echo"))
    with Collector() as collector:
        settings = f'[telemetry]\nendpoint = "{collector.url}"\n\n{plain.toml(read_only=["echo"])}'
        with served(folder, "market", "mcp", settings=settings, shell=Exporting(folder / "home")) as node:
            yield Watched(node, collector, plain)


def context(digit: str) -> tuple[str, str, str]:
    """Trace and span of a program, and the header that names them."""
    trace, span = digit * 32, digit * 16
    return trace, span, f"00-{trace}-{span}-01"


def completed(http: httpx2.Client, parent: str, messages: list[Any], **more: Any) -> dict[str, Any]:
    """An answer of the OpenAI API to a request that belongs to a trace."""
    body = {"model": NAME, "messages": messages, **more}
    answer = http.post("/v1/chat/completions", json=body, headers={"traceparent": parent})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.e2e
@pytest.mark.req("TRACE-9", "TRACE-10")
def test_a_question_is_one_trace_from_program_to_model_server(watched: Watched) -> None:
    node, (trace, above, parent) = watched.node, context("a")
    with node.http(node.key(*SCOPE)) as http:
        completed(http, parent, node.ask(Say("Good day.")))
    found = watched.spans(trace, "POST /v1/chat/completions", f"chat {NAME}", "POST")
    served, chat, sent = found["POST /v1/chat/completions"], found[f"chat {NAME}"], found["POST"]
    assert (served.kind, served.parent, served.failed) == (SERVER, above, False)
    assert {
        name: served.attributes[name] for name in served.attributes if not name.startswith("server.")
    } == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "user_agent.original": served.attributes["user_agent.original"],
    }
    assert (chat.kind, chat.service) == (CLIENT, "hearthnet-llm")
    labels = {name: value for name, value in chat.attributes.items() if name.startswith("gen_ai.")}
    assert (labels["gen_ai.operation.name"], labels["gen_ai.provider.name"]) == ("chat", "openai")
    assert labels["gen_ai.request.model"] == labels["gen_ai.response.model"] == NAME
    assert (labels["gen_ai.usage.input_tokens"], labels["gen_ai.usage.output_tokens"]) == (12, 8)
    assert (sent.kind, sent.parent) == (CLIENT, chat.span)
    assert sent.attributes["http.response.status_code"] == 200
    assert sent.attributes["server.port"] == node.model.port
    assert node.model.traceparents[-1] == f"00-{trace}-{sent.span}-01"


@pytest.mark.e2e
@pytest.mark.req("TRACE-9")
def test_requests_have_no_ids_in_their_names_and_fail_by_status(watched: Watched) -> None:
    node, (trace, above, parent) = watched.node, context("b")
    missing = "01M83SAHR54G8HEZWKSPC9RYMF"
    with node.http(node.key(*SCOPE)) as http:
        assert http.post(f"/v1/runs/{missing}/cancel", headers={"traceparent": parent}).status_code == 404
        assert http.get("/v1/runs", headers={"traceparent": parent}).status_code == 200
        assert http.get("/v1/runs", headers={"traceparent": "nonsense"}).status_code == 200
        assert http.post("/nowhere", headers={"traceparent": parent}).status_code == 404
    found = watched.spans(trace, "POST /v1/runs/{run}/cancel", "GET /v1/runs", "POST")
    assert found["POST"].attributes["url.path"] == "/nowhere"
    assert "http.route" not in found["POST"].attributes
    cancelled = found["POST /v1/runs/{run}/cancel"]
    assert (cancelled.kind, cancelled.parent, cancelled.failed) == (SERVER, above, False)
    assert cancelled.attributes["http.response.status_code"] == 404
    assert cancelled.attributes["url.path"] == f"/v1/runs/{missing}/cancel"
    assert not [span.name for span in watched.collector.spans if ULID.search(span.name)]


@pytest.mark.e2e
@pytest.mark.req("TRACE-11")
def test_a_resumed_run_continues_the_trace_that_it_began_in(watched: Watched) -> None:
    node, (trace, _, parent), (later, resuming, again) = watched.node, context("c"), context("d")
    messages = node.ask(Say("I will.", calls=(("market_post", POST),)), Say("Posted."))
    with node.http(node.key(*SCOPE)) as http:
        first = completed(http, parent, messages, hearthnet={"tools": ["market.post"]})
        run, (pending,) = first["hearthnet"]["run"], first["hearthnet"]["pending"]
        watched.all("invoke_agent", 1, trace)  # what is not sent yet dies with its process
        _kill_gateway(node)
    with node.http(http.headers["authorization"].removeprefix("Bearer ")) as http:
        word = {"call": pending["tool_call_id"], "decision": "approve", "shown": pending["arguments_digest"]}
        assert http.post(f"/v1/runs/{run}/decisions", json=word).status_code == 200
        done = completed(http, again, messages, hearthnet={"run": run})
    assert done["choices"][0]["message"]["content"].strip() == "Posted."
    begun, resumed = watched.all("invoke_agent", 2, trace)
    found = watched.spans(trace, "execute_tool market.post", "market.post@1.0")
    executed = found["execute_tool market.post"]
    (asked,) = watched.all("POST /v1/chat/completions", 1, later)
    assert asked.parent == resuming
    assert (begun.kind, resumed.kind, resumed.parent) == (INTERNAL, INTERNAL, begun.span)
    assert (begun.links, resumed.links) == ((), ((later, asked.span),))
    assert {begun.attributes["hearthnet.run"], resumed.attributes["hearthnet.run"]} == {run}
    assert (executed.parent, executed.kind) == (resumed.span, INTERNAL)
    assert executed.attributes["gen_ai.operation.name"] == "execute_tool"
    assert executed.attributes["gen_ai.tool.name"] == "market.post"
    assert executed.attributes["gen_ai.tool.call.id"] == pending["tool_call_id"]
    assert watched.node.model.traceparents[-1][3:35] == trace
    assert b"Secret jam" not in b"".join(watched.collector.raw)


def _kill_gateway(node: Served) -> None:
    """Kills the gateway's process, and waits until its successor answers."""
    home = Home(node.shell.home)

    def gateway() -> Any:
        return next(one for one in read_node_state(home).services if one.name == "gateway")

    before = gateway()
    os.kill(before.pid, signal.SIGKILL)
    wait_for_sync(lambda: gateway().address and gateway().restarts > before.restarts, 60, "the gateway")
    node.url = gateway().address


@pytest.mark.e2e
@pytest.mark.req("TRACE-10")
def test_an_mcp_server_is_told_the_trace_of_its_call(watched: Watched) -> None:
    shell = watched.node.shell
    wait_for_sync(lambda: "mcp.plain.echo" in shell.run("caps").stdout, 30, "the tool")
    body = '{"params": {}, "input": {"text": "Secret"}}'
    done = shell.run("call", "experimental.mcp.plain.echo", "--body", body, "--json")
    assert done.returncode == 0, done.stderr
    (heard,) = watched.plain.heard("tools/call")
    trace, span = heard["params"]["_meta"]["traceparent"].split("-")[1:3]
    called = watched.spans(trace, "tools/call echo")["tools/call echo"]
    assert (called.span, called.kind, called.service) == (span, CLIENT, "hearthnet-mcp")
    assert called.attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-06-18",
        "network.transport": "pipe",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
    }


@pytest.mark.e2e
@pytest.mark.req("TRACE-9")
@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_calls_of_an_mcp_client_continue_their_own_traces(watched: Watched, mode: str) -> None:
    node, digits = watched.node, {"auto": "ef", "legacy": "12"}[mode]
    headers = {"Authorization": f"Bearer {node.key(*SCOPE)}"}
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60)
        )
        transport = streamable_http_client(f"{node.url}/mcp", http_client=http)
        client = await stack.enter_async_context(Client(transport, cache=None, mode=mode))
        for digit in digits:
            meta: Any = {"traceparent": context(digit)[2]}
            answer = await client.call_tool("market_list", {}, meta=meta)
            assert not answer.is_error, answer
        unknown: Any = {"traceparent": context("7")[2]}
        with pytest.raises(MCPError, match="there is no tool 'wire_money'"):
            await client.call_tool("wire_money", {}, meta=unknown)
    for digit in digits:
        trace, above, _ = context(digit)
        found = watched.spans(trace, "tools/call market_list", "market.list@1.0")
        called = found["tools/call market_list"]
        assert (called.kind, called.parent, called.failed) == (SERVER, above, False)
        assert called.attributes["mcp.method.name"] == "tools/call"
        assert called.attributes["network.transport"] == "tcp"
        assert len(called.links) == 1, "the request that brought it"
    nameless = watched.spans(context("7")[0], "tools/call")["tools/call"]
    assert nameless.attributes["error.type"] == "-32602"


@pytest.mark.e2e
@pytest.mark.req("TRACE-12")
def test_traces_of_clients_are_exported_as_own_sampler_says(tmp_path: Path) -> None:
    _, _, parent = context("a")
    with Collector() as collector:
        settings = f'[telemetry]\nendpoint = "{collector.url}"\n'
        with served(tmp_path, settings=settings, shell=Sparing(tmp_path / "home")) as node:
            with node.http(node.key(*SCOPE)) as http:
                completed(http, parent, node.ask(Say("Good day.")))
            with httpx2.Client(base_url=node.url, trust_env=False) as stranger:
                assert stranger.post("/v1/call", json={}, headers={"traceparent": parent}).status_code == 401
        # A process sends what it has before it ends, as it does its metrics.
        counted = {(point.service, point.name) for point in collector.points}
        assert ("hearthnet-gateway", "http.server.request.duration") in counted
        assert ("hearthnet-llm", "gen_ai.client.operation.duration") in counted
        assert [span.name for span in collector.spans] == []
        assert node.model.traceparents[-1][3:35] == parent[3:35], "it is continued all the same"


@pytest.mark.e2e
@pytest.mark.req("TRACE-12")
def test_clients_cannot_keep_requests_out_of_the_collector(watched: Watched) -> None:
    trace, above, parent = context("8")
    with watched.node.http(watched.node.key(*SCOPE)) as http:
        completed(http, f"{parent[:-2]}00", watched.node.ask(Say("Good day.")))
    found = watched.spans(trace, "POST /v1/chat/completions", f"chat {NAME}")
    assert found["POST /v1/chat/completions"].parent == above


@pytest.mark.e2e
@pytest.mark.req("TRACE-9")
def test_requests_and_tokens_are_counted_by_the_conventions(watched: Watched) -> None:
    node = watched.node
    with node.http(node.key(*SCOPE)) as http:
        completed(http, context("9")[2], node.ask(Say("Good day.")))
    expected = {
        ("hearthnet-gateway", "http.server.request.duration"),
        ("hearthnet-llm", "http.client.request.duration"),
        ("hearthnet-llm", "gen_ai.client.operation.duration"),
        ("hearthnet-llm", "gen_ai.client.token.usage"),
    }

    def counted() -> bool:
        return expected <= {(point.service, point.name) for point in watched.collector.points}

    wait_for_sync(counted, 30, "the metrics")
    counted_by = [
        point.attributes for point in watched.collector.points if point.name == "http.server.request.duration"
    ]
    assert "/v1/chat/completions" in {found.get("http.route") for found in counted_by}
    assert not any("url.path" in found for found in counted_by)
