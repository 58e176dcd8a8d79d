"""What a caller on the bus may ask of any model, as each kind of backend passes it on and answers it: one
service, and servers that a test writes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.health import FEWEST
from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.services.llm import test_ollama
from tests.services.llm.asking import events, frame
from tests.services.llm.model_server import HTML, ModelServer
from tests.services.llm.shapes import picture
from tests.services.llm.test_bad_input import ALL
from tests.services.llm.test_connecting import running
from tests.services.llm.test_service import CHAT, ask, streamed, tool
from tests.services.llm.test_wires_over_http import KEY, Vendor

pytestmark = pytest.mark.asyncio
_BELOW = "/openai/deployments/m-1"
_AZURE = ALL["openai"]._replace(
    kind="azure", below=_BELOW, path=f"{_BELOW}/chat/completions", header=("api-key", KEY)
)
_ROUTER = ALL["openai"]._replace(below="/router/v1", path="/router/v1/chat/completions")
KINDS: Final[dict[str, Vendor]] = {**ALL, "azure": _AZURE, "router": _ROUTER}
"""`router` calls no tools, as its settings say: it answers in a single shot."""
CALLERS: Final = [name for name in KINDS if name != "router"]
SCRIPT: Final = """
[[questions]]
[[questions.turns]]
text = "Hi END of it"
calls = [{ tool = "search", arguments = { query = "water" } }, { tool = "post", arguments = { title = "x" } }]
"""
NAMES: Final = {name: name.replace(" ", "-") for name in KINDS}
TOOLS: Final = [tool("search"), tool("post")]
SCHEMA: Final = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
Sent = dict[str, Any]


@asynccontextmanager
async def everybody(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, **fields: Any
) -> AsyncIterator[tuple[ModelServer, Bus]]:
    """One service with a model of each kind, all at one server, and one by script."""
    monkeypatch.setenv("MINE_KEY", KEY)
    (mesh.home.path / "script.toml").write_text(SCRIPT)
    async with ModelServer() as server:
        models = [
            server.config(
                NAMES[name],
                vendor.model,
                kind=vendor.kind,
                url=f"http://{server.host}{vendor.below}",
                api_key_env="MINE_KEY",
                **({"tools": False} if name == "router" else {}),
                **({"api_version": "2024-10-21"} if name == "azure" else {}),
                **fields,
            )
            for name, vendor in KINDS.items()
        ]
        for vendor in KINDS.values():
            server.routes[vendor.path] = (200, vendor.content_type, vendor.first + vendor.rest)
        models.append('\n[[llm.scripted]]\nname = "scripted"\nfile = "script.toml"\n')
        async with running(mesh, "".join(models)) as (_, bus):
            yield server, bus


async def sent(server: ModelServer, bus: Bus, name: str, **fields: Any) -> Sent:
    """The native request that comes of a call."""
    await streamed(bus, CHAT, ask(model=NAMES[name], **fields))
    path, body = next((path, body) for method, path, _, body in reversed(server.asked) if method == "POST")
    assert path.partition("?")[0] == KINDS[name].path
    return dict(body)


def at(body: Any, path: str) -> Any:
    """What stands at a dotted path; None where nothing does."""
    for step in path.split("."):
        if isinstance(body, list):
            body = body[int(step)] if int(step) < len(body) else None
        else:
            body = body.get(step) if isinstance(body, dict) else None
    return body


_NAMED = {"type": "function", "function": {"name": "search"}}
_OPENAI = {"auto": "auto", "none": "none", "required": "required", "search": _NAMED}
_ANTHROPIC = {
    "auto": {"type": "auto"},
    "none": {"type": "none"},
    "required": {"type": "any"},
    "search": {"type": "tool", "name": "search"},
}
_GEMINI = {
    "auto": {"mode": "AUTO"},
    "none": {"mode": "NONE"},
    "required": {"mode": "ANY"},
    "search": {"mode": "ANY", "allowedFunctionNames": ["search"]},
}
_CONVERSE: Final[Sent] = {
    "auto": {"auto": {}},
    "none": None,
    "required": {"any": {}},
    "search": {"tool": {"name": "search"}},
}
CHOICES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "openai": ("tool_choice", _OPENAI),
    "azure": ("tool_choice", _OPENAI),
    "anthropic": ("tool_choice", _ANTHROPIC),
    "bedrock messages": ("tool_choice", _ANTHROPIC),
    "gemini": ("toolConfig.functionCallingConfig", _GEMINI),
    "bedrock converse": ("toolConfig.toolChoice", _CONVERSE),
    "ollama": ("tool_choice", dict.fromkeys(_OPENAI)),
}
DECLARED: Final = {
    "gemini": "tools.0.functionDeclarations",
    "bedrock converse": "toolConfig.tools",
}
UNSAID: Final = {("ollama", "none"): 0, ("ollama", "search"): 1, ("bedrock converse", "none"): 0}
"""How many tools are declared where the wire has no word for the choice."""


@pytest.mark.req("LLM-55", "LLM-45")
async def test_each_form_of_choice_reaches_each_kind(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    async with everybody(mesh, monkeypatch) as (server, bus):
        for name in CALLERS:
            where, expected = CHOICES[name]
            for word, native in expected.items():
                choice = {"name": word} if word == "search" else word
                body = await sent(server, bus, name, tools=TOOLS, tool_choice=choice)
                assert at(body, where) == native, (name, word)
                declared = at(body, DECLARED.get(name, "tools")) or []
                assert len(declared) == UNSAID.get((name, word), 2), (name, word)
        for free in ("auto", "none"):
            body = await sent(server, bus, "router", tools=TOOLS, tool_choice=free)
            assert {"tools", "tool_choice"} & body.keys() == set()
        asked = server.posts()
        forced: tuple[Any, ...] = ("required", {"name": "search"})
        for choice in forced:
            with pytest.raises(HearthNetError, match="router cannot call tools; ask") as refused:
                await bus.call(CHAT, ask(model="router", tools=TOOLS, tool_choice=choice))
            assert refused.value.code == "not_implemented"
        assert server.posts() == asked


_CALLS = (("search", {"query": "water"}), ("post", {"title": "x"}))


def _both(name: str) -> bytes:
    """An answer of a kind that calls two tools at once."""
    if name in ("openai", "azure"):
        made = [
            {
                "index": index,
                "id": f"c{index}",
                "function": {"name": tool, "arguments": json.dumps(arguments)},
            }
            for index, (tool, arguments) in enumerate(_CALLS)
        ]
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        ended = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "usage": usage}
        return events({"choices": [{"delta": {"tool_calls": made}}]}, ended)
    if name == "gemini":
        parts = [{"functionCall": {"name": tool, "args": arguments}} for tool, arguments in _CALLS]
        used = {"promptTokenCount": 3, "candidatesTokenCount": 2}
        candidate = {"content": {"parts": parts}, "finishReason": "STOP"}
        return events({"candidates": [candidate], "usageMetadata": used})
    if name == "ollama":
        calls = [{"function": {"name": tool, "arguments": arguments}} for tool, arguments in _CALLS]
        over: Sent = {"done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2}
        return test_ollama.lines({"message": {"tool_calls": calls}}, over)
    if name == "bedrock converse":
        return _converse()
    pieces = _anthropic()
    if name == "anthropic":
        return events(*pieces)
    wrapped = [{"bytes": base64.b64encode(json.dumps(piece).encode()).decode()} for piece in pieces]
    return b"".join(frame("chunk", piece) for piece in wrapped)


def _anthropic() -> list[Sent]:
    made: list[Sent] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}
    ]
    for index, (name, arguments) in enumerate(_CALLS):
        block = {"type": "tool_use", "id": f"c{index}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        made += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}
    return [*made, ended, {"type": "message_stop"}]


def _converse() -> bytes:
    made = []
    for index, (name, arguments) in enumerate(_CALLS):
        used = {"toolUse": {"toolUseId": f"c{index}", "name": name}}
        said = {"toolUse": {"input": json.dumps(arguments)}}
        made += [
            frame("contentBlockStart", {"contentBlockIndex": index, "start": used}),
            frame("contentBlockDelta", {"contentBlockIndex": index, "delta": said}),
            frame("contentBlockStop", {"contentBlockIndex": index}),
        ]
    usage = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}
    return b"".join(
        [*made, frame("messageStop", {"stopReason": "tool_use"}), frame("metadata", {"usage": usage})]
    )


@pytest.mark.req("LLM-55", "LLM-12")
async def test_two_calls_at_once_come_complete_in_order_with_their_usage(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with everybody(mesh, monkeypatch) as (server, bus):
        server.routes |= {KINDS[name].path: (200, KINDS[name].content_type, _both(name)) for name in CALLERS}
        for name in (*CALLERS, "scripted"):
            frames = await streamed(bus, CHAT, ask(model=NAMES.get(name, name), tools=TOOLS))
            calls = [data for event, data in frames if event == "tool_call"]
            assert [(call["name"], call["arguments"]) for call in calls] == list(_CALLS), name
            assert len({call["id"] for call in calls}) == 2, name
            done = frames[-1][1]
            assert (frames[-1][0], done["stop_reason"]) == ("done", "tool_calls"), name
            if name != "scripted":
                assert (done["tokens_in"], done["tokens_out"], done["tool_path"]) == (3, 2, "native"), name
        heard = [event for event, _ in await streamed(bus, CHAT, ask(model="router", tools=TOOLS))]
        assert heard == ["notice", "token", "done"]


@pytest.mark.req("LLM-55", "BUS-24")
async def test_a_model_that_fails_again_and_again_shuts_out_no_other(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with everybody(mesh, monkeypatch) as (server, bus):
        server.routes[KINDS["openai"].path] = HTML
        codes = []
        for _ in range(FEWEST + 2):
            with pytest.raises(HearthNetError) as failed:
                await bus.call(CHAT, ask(model="openai"))
            codes.append(failed.value.code)
        assert codes == [*["internal_error"] * FEWEST, "partition", "partition"]
        for name in (*KINDS, "scripted"):
            if name != "openai":
                meta = (await bus.call(CHAT, ask(model=NAMES.get(name, name)))).body["meta"]
                assert meta["model"] == NAMES.get(name, name)
        assert (await bus.call(CHAT, ask())).body["meta"]["model"] != "openai"


RESULTS: Final = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "a", "name": "search", "arguments": {"query": "x"}},
            {"id": "b", "name": "post", "arguments": {}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "seen"},
    {"role": "tool", "tool_call_id": "b", "content": "broken", "is_error": True},
]
BEGUN: Final = [
    {"role": "user", "content": "Tell a story."},
    {"role": "assistant", "content": "Once", "prefix": True},
]
_BLOCKS = {"messages.2.content.0.is_error": None, "messages.2.content.1.is_error": True}
MARKED: Final[dict[str, Sent]] = {
    "openai": {"messages.2.content": "seen", "messages.3.content": "ERROR: broken"},
    "azure": {"messages.2.content": "seen", "messages.3.content": "ERROR: broken"},
    "ollama": {"messages.2.tool_name": "search", "messages.3.content": "ERROR: broken"},
    "anthropic": _BLOCKS,
    "bedrock messages": _BLOCKS,
    "gemini": {
        "contents.2.parts.0.functionResponse.response": {"output": "seen"},
        "contents.2.parts.1.functionResponse.response": {"error": "broken"},
    },
    "bedrock converse": {
        "messages.2.content.0.toolResult.status": None,
        "messages.2.content.1.toolResult.status": "error",
    },
    "router": {"messages.1.content": "[asked search, post]", "messages.2.role": "user", "tools": None},
}
_JSON = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
_CHAT = {"response_format": _JSON, "seed": 7, "stop": ["END"], "temperature": 0.5}
_MESSAGES = {
    "output_config.format": {"type": "json_schema", "schema": SCHEMA},
    "stop_sequences": ["END"],
    "max_tokens": 50,
    "seed": None,
}
ASKED: Final[dict[str, Sent]] = {
    "openai": {**_CHAT, "max_tokens": 50},
    "azure": {**_CHAT, "max_completion_tokens": 50},
    "router": {**_CHAT, "max_tokens": 50},
    "anthropic": _MESSAGES,
    "bedrock messages": _MESSAGES,
    "gemini": {
        "generationConfig.responseJsonSchema": SCHEMA,
        "generationConfig.responseMimeType": "application/json",
        "generationConfig.seed": 7,
        "generationConfig.stopSequences": ["END"],
        "generationConfig.maxOutputTokens": 50,
        "generationConfig.temperature": 0.5,
    },
    "ollama": {
        "format": SCHEMA,
        "options.seed": 7,
        "options.stop": ["END"],
        "options.num_predict": 50,
        "options.temperature": 0.5,
    },
    "bedrock converse": {
        "outputConfig.textFormat.structure.jsonSchema.name": "answer",
        "inferenceConfig": {"maxTokens": 50, "temperature": 0.5, "stopSequences": ["END"]},
    },
}


@pytest.mark.req("LLM-55")
async def test_results_schema_seed_stop_and_limit_reach_each_kind(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"seed": 7, "stop": ["END"], "max_tokens": 50, "temperature": 0.5}
    async with everybody(mesh, monkeypatch) as (server, bus):
        for name in KINDS:
            body = await sent(server, bus, name, messages=RESULTS, tools=TOOLS)
            found = {path: at(body, path) for path in MARKED[name]}
            assert found == MARKED[name], name
            body = await sent(
                server, bus, name, response_schema={"name": "answer", "schema": SCHEMA}, **fields
            )
            found = {path: at(body, path) for path in ASKED[name]}
            assert found == ASKED[name], name
            body = await sent(server, bus, name, messages=BEGUN)
            last = at(body, "contents.1" if name == "gemini" else "messages.1")
            assert (last["role"], "Once" in json.dumps(last)) == (
                "model" if name == "gemini" else "assistant",
                True,
            ), name
        frames = await streamed(bus, CHAT, ask(model="scripted", stop=["END"]))
        assert "".join(data["text"] for event, data in frames if event == "token").strip() == "Hi"
        assert frames[-1][1]["stop_reason"] == "stop_sequence"


@pytest.mark.req("LLM-55", "LLM-54")
async def test_each_kind_with_eyes_is_shown_an_image_and_each_without_refuses_it(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await mesh.store() as store:
        cid = await store.put_blob(picture())
    shown = [{"type": "text", "text": "?"}, {"type": "image", "image_cid": cid}]
    messages = [{"role": "user", "content": shown}]
    data = base64.b64encode(picture()).decode()
    async with everybody(mesh, monkeypatch, vision=True) as (server, bus):
        for name in KINDS:
            body = json.dumps(await sent(server, bus, name, messages=messages))
            assert data in body, name
            assert cid not in body, name
    async with everybody(mesh, monkeypatch, vision=False) as (server, bus):
        asked = server.posts()
        for name in (*KINDS, "scripted"):
            with pytest.raises(HearthNetError, match="cannot see images") as refused:
                await bus.call(CHAT, ask(model=NAMES.get(name, name), messages=messages))
            assert refused.value.code == "not_found", name
        assert server.posts() == asked
