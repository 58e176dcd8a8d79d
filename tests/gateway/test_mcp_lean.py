"""The list of tools as a model reads it: what is in it, and how large it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import compile_schema
from hearthnet.gateway.api.capabilities import is_for_clients
from hearthnet.gateway.mcp.tools import (
    UNLISTED,
    McpTool,
    output_schema,
    tools_of,
)
from hearthnet_mcp import McpService
from tests.gateway.test_mcp import MODES, Person, connected, said
from tests.helpers.gateway import House
from tests.helpers.waiting import wait_for
from tests.services.mcp.houses import SECONDS, Plain, configure, tool

MAX_LIST_BYTES = 24 * 1024
"""The size of all tools of the installation together, as transferred."""
MAX_TOOL_BYTES = 2_560

TOOLS = tools_of(one for one in contracts() if is_for_clients(one))
LISTED = [one for one in TOOLS.values() if one.contract.name not in UNLISTED]
FREE = {"type": "object"}
COMBINED = {
    "type": "object",
    "properties": {"what": {"type": "string"}},
    "allOf": [{"properties": {"where": {"type": "string"}}, "required": ["where"]}],
}
PROMISED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def size(tool: McpTool) -> int:
    """Bytes of a tool as the library sends it."""
    model = types.Tool.model_validate(tool.listed(any_output=True), by_name=False)
    return len(model.model_dump_json(by_alias=True, exclude_none=True).encode())


@pytest.mark.req("MCP-11")
def test_the_list_of_all_installed_tools_stays_within_its_bound() -> None:
    sizes = {one.name: size(one) for one in LISTED}
    assert {name: bytes for name, bytes in sizes.items() if bytes > MAX_TOOL_BYTES} == {}
    assert sum(sizes.values()) <= MAX_LIST_BYTES, sizes
    assert {"llm_chat", "rag_query", "market_post", "trans_text", "file_list", "mesh_search"} <= sizes.keys()
    assert {one.contract.name for one in TOOLS.values()} >= UNLISTED


@pytest.mark.req("MCP-11")
def test_what_the_list_shows_of_a_chat_the_contract_takes() -> None:
    chat = TOOLS["llm_chat"]
    shown = chat.listed(any_output=False)["inputSchema"]
    assert list(shown["properties"]) == ["model", "messages", "max_tokens", "temperature"]
    assert shown["required"] == ["messages"]
    asked = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]}
    assert compile_schema(shown).accepts(asked)
    assert chat.body(asked, "")["input"] == asked
    # What is not shown is still taken.
    assert chat.body({**asked, "seed": 7}, "")["input"]["seed"] == 7


@pytest.mark.req("MCP-11")
@pytest.mark.parametrize("contract", [one.contract for one in LISTED], ids=[one.name for one in LISTED])
def test_a_lean_output_schema_allows_all_that_the_contract_does(contract: Contract) -> None:
    schema = output_schema(contract)
    output = contract.response_schema["properties"]["output"]
    if schema is None:
        assert output.get("type") != "object"
        return
    assert set(schema) == {"type", "properties", "required"}
    assert schema["type"] == "object"
    assert schema["required"] == output.get("required", [])
    assert schema["properties"].keys() == output["properties"].keys()
    for name, field in schema["properties"].items():
        assert field.items() <= output["properties"][name].items()


@pytest.mark.req("MCPADD-14")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("mode", MODES)
async def test_foreign_schemas_come_through_as_they_are(shared: House, tmp_path: Path, mode: str) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(
        tool("free", schema=FREE),
        tool("echo", schema=COMBINED, outputSchema=PROMISED),
        tool("count", outputSchema=PROMISED),
        tool("broken", outputSchema=PROMISED),
        tool("list", outputSchema={"type": "array"}),
    )
    done = {"type": "text", "text": "done"}
    plain.answers(
        free={"result": {"content": [done]}},
        count={"result": {"content": [done], "structuredContent": {"n": 3}}},
        broken={"result": {"content": [done], "structuredContent": {"n": "three"}}},
    )
    settings = shared.mesh.home.config_file.read_text()
    names = [f"experimental.mcp.plain.{name}" for name in ("free", "echo", "count", "broken", "list")]
    person, service = Person(), McpService()
    options: dict[str, Any] = {"mode": mode, "elicitation_callback": person}
    configure(shared.mesh.home, settings, plain.toml(share=True))
    try:
        async with shared.mesh.hosting(service) as host:
            await wait_for(service.offers, SECONDS)
            await host.refresh()
            async with connected(shared, shared.guest(*names), **options) as client:

                async def all_listed() -> dict[str, Any]:
                    found = {one.name.rpartition("_")[2]: one for one in (await client.list_tools()).tools}
                    return found if len(found) == 5 else {}

                listed = await wait_for(all_listed, SECONDS)
                assert listed["echo"].input_schema == COMBINED
                assert listed["free"].input_schema["additionalProperties"] is True
                assert listed["echo"].output_schema == listed["count"].output_schema == PROMISED
                assert listed["list"].output_schema == ({"type": "array"} if mode == "auto" else None)
                counted = await client.call_tool(listed["count"].name, {"text": "x"})
                assert counted.structured_content == {"n": 3}
                await client.call_tool(listed["free"].name, {"any": [1], "thing": {"at": None}})
                broken = await client.call_tool(listed["broken"].name, {"text": "x"})
                assert (broken.is_error, said(broken)) == (True, "done")
                assert "own schema has it: /n" in str(broken.content[1])
                wrong = await client.call_tool(listed["echo"].name, {"what": "x"})
                assert said(wrong).startswith("bad_request")
    finally:
        configure(shared.mesh.home, settings)
    calls = [call["params"]["arguments"] for call in plain.heard("tools/call")]
    assert calls == [{"text": "x"}, {"any": [1], "thing": {"at": None}}, {"text": "x"}]
