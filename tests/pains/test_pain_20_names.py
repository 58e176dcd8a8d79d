"""20. Names and schemas differ per vendor: dotted, long and colliding names go to the model and come back; a
schema is taken by the vendor's own validator, or its tool goes alone, with a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.events import AskClient, Start
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, new_run
from hearthnet.agent.tools.toolbox import Toolbox, natives
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import wire
from tests.agent.bench import LOOK, QUESTION, RUN, Bench, only
from tests.helpers.mesh import Mesh
from tests.pains.strict import TARGETS, strictly
from tests.services.llm.model_server import Answer, Route, page
from tests.services.llm.test_bad_input import ALL, everybody
from tests.services.llm.test_bad_input import NAMES as MODELS
from tests.services.llm.test_service import CHAT, ask, streamed, tool
from tests.services.llm.test_wires_over_http import Vendor

NAMES = ["rag.query", "rag_query", "rag query", "x" * 128, "x" * 127 + "y", "näh", "read_result"]


@pytest.mark.req("TOOL-19")
def test_every_name_round_trips_through_the_model() -> None:
    toolbox = Toolbox(msgspec.structs.replace(LOOK, name=name) for name in NAMES)
    shown = [tool["name"] for tool in natives(toolbox)]
    assert len(set(shown)) == len(NAMES)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in shown)
    bench = Bench(start=False)
    bench.loop = ToolLoop(new_run(RUN, QUESTION, "auto", Limits()), toolbox)
    bench.feed(Start(now=bench.now))
    for name, safe in zip(NAMES, shown, strict=True):
        wanted = only(AskClient, bench.call(safe, {}, "")).wanted
        assert wanted.name == name
        bench.answered(wanted.tool_call_id, {})
    bench.model_done("tool_calls")
    said = next(message for message in bench.asked_model().messages if "tool_calls" in message)
    assert [call["name"] for call in said["tool_calls"]] == shown, "and back to the model as it knows them"


# --- schemas ---

KEYWORDS: dict[str, dict[str, Any]] = {
    "$ref": {"$ref": "#/$defs/place"},
    "anyOf with null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "const": {"const": "now"},
    "oneOf": {"oneOf": [{"type": "integer"}, {"enum": ["all", "none"]}]},
    "two types": {"type": ["string", "null"]},
}
PLACE = {"type": "object", "properties": {"row": {"type": "string"}}, "required": ["row"]}


def _tool(keyword: str) -> ToolDefinition:
    schema = {"type": "object", "properties": {"part": KEYWORDS[keyword]}, "$defs": {"place": PLACE}}
    return msgspec.structs.replace(LOOK, parameters_schema=schema)


@pytest.mark.req("PAIN-20", "LLM-98")
@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_schema_reaches_every_vendor_whole_and_its_types_take_it(keyword: str) -> None:
    tool = _tool(keyword)
    strictly(QUESTION, [tool])
    asked = {"messages": QUESTION, "tools": natives(Toolbox([tool])), "stream": True}
    for vendor, target in TARGETS.items():
        body = wire(vendor).encode(msgspec.convert(asked, ChatRequest), target).body
        assert tool.parameters_schema in list(_objects(body)), vendor


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a body."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


@pytest.mark.req("PAIN-20")
@pytest.mark.parametrize(
    ("arguments", "fits"),
    [({"part": {"row": "B"}}, True), ({"part": {"row": 7}}, False), ({"part": "B"}, False), ({}, True)],
)
def test_what_a_reference_says_is_held_here(arguments: dict[str, Any], fits: bool) -> None:
    (tool,) = Toolbox([_tool("$ref")])
    assert isinstance(tool.prepare(arguments, ""), str) != fits


REFUSALS: dict[str, dict[str, Any]] = {
    "openai": {"error": {"message": "Invalid schema for function 'odd': array schema missing items"}},
    "anthropic": {"error": {"message": "tools.1.custom.input_schema: JSON schema is invalid"}},
    "gemini": {"error": {"message": "tools[0].function_declarations[1].parameters.schema: unknown"}},
    "bedrock converse": {"message": "toolConfig.tools.2.member.toolSpec.inputSchema: schema is invalid"},
    "bedrock messages": {"message": "tools.1.custom.input_schema: JSON schema is invalid"},
    "ollama": {"error": "invalid schema of tool 'odd'"},
}


@pytest.mark.asyncio
@pytest.mark.req("PAIN-20", "LLM-98")
async def test_a_tool_that_a_vendor_refuses_goes_alone_with_a_notice(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of server refuses one tool in its own words, and takes the other."""
    tools = [tool("search"), {**tool("post"), "name": "odd"}]
    told = {}
    async with everybody(mesh, monkeypatch) as (server, _llm, bus):
        for name, vendor in ALL.items():
            server.routes[vendor.path] = _refusing(vendor, REFUSALS[name])
            body = ask(model=MODELS[name], tools=tools)
            frames = await streamed(bus, CHAT, body)
            told[name] = [data["text"] for event, data in frames if event == "notice"]
            assert [event for event, _ in frames if event != "notice"][-1] == "done"
            assert any(event == "token" for event, _ in frames)
    assert all(len(text) == 1 and text[0].startswith("the tool odd is left out: ") for text in told.values())
    assert len(told) >= 6


def _refusing(vendor: Vendor, refusal: dict[str, Any]) -> Route:
    async def answer(asked: dict[str, Any]) -> Answer:
        if "odd" in repr(asked):
            return page(refusal, 400)
        assert "search" in repr(asked)
        return 200, vendor.content_type, vendor.first + vendor.rest

    return answer
