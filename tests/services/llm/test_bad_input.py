"""What goes wrong at each kind of backend, as the caller meets it on the bus: the wire code, a message that
names the backend and says what to do, one terminal frame, and no key anywhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet_llm import LlmService
from tests.helpers.mesh import Mesh
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.services.llm import test_ollama
from tests.services.llm.asking import events, frame
from tests.services.llm.model_server import DONE, HTML, TOKEN, Answer, ModelServer, page
from tests.services.llm.test_connecting import running
from tests.services.llm.test_service import CHAT, ask, tool
from tests.services.llm.test_wires_over_http import EVENTS, KEY, VENDORS, Vendor

pytestmark = pytest.mark.asyncio
_HEADER = ("authorization", f"Bearer {KEY}")
ALL: Final = VENDORS | {
    "openai": Vendor(
        "openai", "m-1", "/v1", "/v1/chat/completions", _HEADER, EVENTS, events(TOKEN), events(DONE)
    )
}
NAMES: Final = {name: name.replace(" ", "-") for name in ALL}
Outcome = tuple[list[str], HearthNetError | None]


@asynccontextmanager
async def everybody(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, variable: str = "MINE_KEY"
) -> AsyncIterator[tuple[ModelServer, LlmService, Bus]]:
    """One service with a model of each kind, all at one server."""
    monkeypatch.setenv("MINE_KEY", KEY)
    async with ModelServer() as server:
        models = [
            server.config(
                NAMES[name],
                vendor.model,
                kind=vendor.kind,
                url=f"http://{server.host}{vendor.below}",
                api_key_env=variable,
            )
            for name, vendor in ALL.items()
        ]
        async with running(mesh, "".join(models)) as (llm, bus):
            yield server, llm, bus


async def outcome(bus: Bus, model: str, **fields: Any) -> Outcome:
    """The frames of one stream, and the error that ended it."""
    heard: list[str] = []
    try:
        async with bus.stream(CHAT, ask(model=NAMES[model], **fields)) as stream:
            async for one in stream:
                heard += [one.event]
    except HearthNetError as error:
        return heard, error
    return heard, None


def _inside(name: str) -> bytes:
    """How a vendor says in mid-answer that it is overloaded."""
    busy = {"type": "overloaded_error", "message": "Overloaded"}
    if name.startswith("bedrock"):
        return frame("throttlingException", {"message": "Overloaded"}, "exception")
    if name == "ollama":
        return test_ollama.lines({"error": "Overloaded"})
    if name == "gemini":
        return events({"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}})
    return events({"type": "error", "error": busy})


SOON: Final = {"details": [{"retryDelay": "0.02s"}]}
LONG: Final[dict[str, Any]] = {
    "openai": {
        "error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}
    },
    "anthropic": {
        "type": "error",
        "error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"},
    },
    "gemini": {
        "error": {"code": 400, "message": "The input token count exceeds the maximum number of tokens"}
    },
    "ollama": {"error": "the input length exceeds the context length"},
    "bedrock messages": {"message": "Input is too long for requested model."},
    "bedrock converse": {"message": "Input is too long for requested model."},
}
SCHEMA: Final[dict[str, Any]] = {
    "openai": {"error": {"message": "Invalid schema for function 'search': 'oneOf' is not permitted"}},
    "anthropic": {"type": "error", "error": {"message": "tools.0.input_schema: oneOf is not taken here"}},
    "gemini": {"error": {"code": 400, "message": "Invalid schema: function_declarations[0].parameters"}},
    "ollama": {"error": "invalid tool schema: oneOf"},
    "bedrock messages": {"message": "tools.0.input_schema: oneOf is not taken here"},
    "bedrock converse": {"message": "The value at toolConfig.tools.0.toolSpec.inputSchema is invalid"},
}


def answer(case: str, name: str) -> Answer:
    """What the server of a vendor says in a case."""
    vendor = ALL[name]
    answers: dict[str, Answer] = {
        "html": HTML,
        "html refusal": (404, "text/html", b"<html>nginx</html>"),
        "closes": (200, vendor.content_type, vendor.first),
        "inside": (200, vendor.content_type, vendor.first + _inside(name)),
        "wrong key": page({"error": {"message": f"bad key {KEY}"}}, 401),
        "unknown model": page({"error": {"message": "no such model"}}, 404),
        "too long": page(LONG[name], 400),
        "schema": page(SCHEMA[name], 400),
        "rate": page({"error": {"message": "slow down", **SOON}}, 429),
        "overload": page({"error": {"message": "busy", **SOON}}, 529),
    }
    return answers[case]


TABLE: Final = {
    "html": ("internal_error", "check its url in hearthnet.toml"),
    "html refusal": ("not_found", "check its model and its url"),
    "closes": ("internal_error", "ask again"),
    "inside": ("", "Overloaded"),
    "wrong key": ("unauthorized", "check the key in MINE_KEY"),
    "unknown model": ("not_found", "check its model"),
    "too long": ("bad_request", "shorten the messages"),
    "schema": ("bad_request", "change the tool"),
    "rate": ("rate_limited", "slow down"),
    "overload": ("capacity_exceeded", "busy"),
}
INSIDE: Final = {
    "anthropic": "capacity_exceeded",
    "openai": "capacity_exceeded",
    "gemini": "capacity_exceeded",
    "ollama": "internal_error",
    "bedrock messages": "rate_limited",
    "bedrock converse": "rate_limited",
}


@pytest.mark.req("LLM-35", "LLM-11")
async def test_what_a_vendor_does_wrong_ends_the_stream_with_a_code_and_what_to_do(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong: list[str] = []
    async with everybody(mesh, monkeypatch) as (server, _, bus):
        for case, (code, says) in TABLE.items():
            server.routes |= {vendor.path: answer(case, name) for name, vendor in ALL.items()}
            fields = {"tools": [tool("search")]} if case == "schema" else {}
            outcomes = await asyncio.gather(*(outcome(bus, name, **fields) for name in ALL))
            for name, (heard, error) in zip(ALL, outcomes, strict=True):
                expected = code or INSIDE[name]
                spoken = case in ("closes", "inside")
                if error is None or error.code != expected or (heard == ["token"]) is not spoken:
                    wrong.append(f"{case} of {name}: {heard} {error!r}, not {expected}")
                elif NAMES[name] not in error.message or says not in error.message:
                    wrong.append(f"{case} of {name} says {error.message}, not {says}")
                elif (error.retry_after_ms is not None) is not (
                    error.code in ("rate_limited", "capacity_exceeded")
                ):
                    wrong.append(f"{case} of {name} waits {error.retry_after_ms}")
                elif KEY in json.dumps(error.to_body()):
                    wrong.append(f"{case} of {name} tells the key")
        offers = json.dumps([offer.params for offer in await wait_for(bus.offers)])
    assert wrong == []
    assert KEY not in caplog.text
    assert KEY not in offers
    kept = [
        path for path in mesh.home.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert kept == []


@pytest.mark.req("LLM-35")
async def test_a_call_whose_json_never_closes_is_no_call(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    function = {"name": "search", "arguments": '{"query": "wa'}
    block = {"type": "tool_use", "id": "c", "name": "search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"query": "wa'}
    used = {"toolUse": {"toolUseId": "c", "name": "search"}}
    open_calls = {
        "openai": events(
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": function}]}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        ),
        "anthropic": events(
            {"type": "message_start", "message": {}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ),
        "bedrock converse": b"".join(
            [
                frame("contentBlockStart", {"contentBlockIndex": 0, "start": used}),
                frame(
                    "contentBlockDelta",
                    {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"query": "wa'}}},
                ),
                frame("contentBlockStop", {"contentBlockIndex": 0}),
                frame("messageStop", {"stopReason": "end_turn"}),
            ]
        ),
        "ollama": test_ollama.lines(
            {"message": {"tool_calls": [{"function": {"name": "search", "arguments": '{"query": "wa'}}]}},
            {"done": True, "done_reason": "stop"},
        ),
        "gemini": events(
            {"candidates": [{"content": {"parts": [{"functionCall": {"name": "search", "args": '{"q'}}]}}]},
            {"candidates": [{"finishReason": "STOP"}]},
        ),
    }
    async with everybody(mesh, monkeypatch) as (server, _, bus):
        for name, data in open_calls.items():
            server.routes[ALL[name].path] = (200, ALL[name].content_type, data)
            heard, error = await outcome(bus, name, tools=[tool("search")])
            assert (heard[-1], error and error.code) == ("notice", "internal_error"), name
            assert error is not None
            assert NAMES[name] in error.message
            assert "larger max_tokens or another model" in error.message


@asynccontextmanager
async def stalling(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ModelServer, LlmService, Bus]]:
    """As `everybody`, whose server takes what is asked and says nothing."""
    never = asyncio.Event()

    async def stall(_said: dict[str, Any]) -> Answer:
        await never.wait()
        return HTML

    async with everybody(mesh, monkeypatch) as (server, llm, bus):
        server.routes |= {vendor.path: stall for vendor in ALL.values()}
        try:
            yield server, llm, bus
        finally:
            never.set()


@pytest.mark.req("LLM-2", "LLM-12")
async def test_a_caller_who_leaves_has_the_vendor_let_go_at_once(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalling(mesh, monkeypatch) as (server, llm, bus):
        for name, remote in zip(ALL, llm._pool.there, strict=True):
            before = server.posts()
            asking = asyncio.create_task(outcome(bus, name))
            await wait_for(lambda asked=before: server.posts() > asked)  # type: ignore[misc]
            assert remote._busy == 1
            watch = Stopwatch(mesh.server.process.pid)
            asking.cancel()
            await wait_for(lambda one=remote: one._busy == 0, 30)  # type: ignore[misc]
            assert watch.seconds() < 0.2, name


@pytest.mark.req("LLM-35")
async def test_a_vendor_that_stalls_is_a_timeout(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.models.http_client._SILENCE_SECONDS", 2.0)
    async with stalling(mesh, monkeypatch) as (_, _, bus):
        outcomes = await asyncio.gather(*(outcome(bus, name) for name in ALL))
        for name, (heard, error) in zip(ALL, outcomes, strict=True):
            assert (heard, error and error.code) == ([], "timeout"), name
            assert f"{NAMES[name]} does not answer" in str(error)


@pytest.mark.req("LLM-11", "LLM-43")
async def test_a_model_whose_key_is_missing_is_not_offered_and_says_which(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with everybody(mesh, monkeypatch, "NO_SUCH_KEY") as (server, llm, bus):
        assert await bus.offers(CHAT) == []
        assert "set the environment variable NO_SUCH_KEY" in str(llm.note)
        assert server.asked == []


MESSAGES: Final = {
    "nobody asks": ([{"role": "system", "content": "Be brief."}], "/input/messages"),
    "system late": (
        [
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "x"},
            {"role": "user", "content": "y"},
        ],
        "system messages come before",
    ),
    "a result of nothing": (
        [{"role": "user", "content": "Hi"}, {"role": "tool", "content": "x", "tool_call_id": "c"}],
        "no call 'c' waits",
    ),
    "nothing left to say": (
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "x"}],
        "the last message must be",
    ),
    "no messages": ([], "messages"),
}


@pytest.mark.req("LLM-6")
async def test_messages_out_of_order_are_refused_before_any_vendor_is_asked(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with everybody(mesh, monkeypatch) as (server, _, bus):
        asked = server.posts()
        for name in ALL:
            for case, (messages, says) in MESSAGES.items():
                heard, error = await outcome(bus, name, messages=messages)
                assert (heard, error and error.code) == ([], "bad_request"), f"{case} of {name}"
                assert says in str(error), f"{case} of {name}"
        assert server.posts() == asked
