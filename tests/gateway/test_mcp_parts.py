"""The parts of the MCP server that need no server: results, tools."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.mcp.tools import tool_result, tools_of
from tests.agent.tools.test_dynamic import told


@pytest.mark.req("MCP-1")
def test_parts_of_foreign_tools_come_back_as_they_were() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "hi"},
        {"type": "image", "data": "aGk=", "media_type": "image/png"},
        {"type": "document", "url": "note://1", "media_type": "text/plain", "text": "A note."},
        {"type": "document", "url": "", "data": "aGk="},
        {"type": "link", "url": "note://2", "name": "two"},
        {"type": "omitted", "bytes": 7},
    ]
    output = {"content": parts, "is_error": True, "structured": {"n": 1}}
    answer = tool_result(told(), output, {"ms": 1}, [])
    assert answer["isError"]
    assert answer["structuredContent"] == {"n": 1}
    assert answer["content"] == [
        {"type": "text", "text": "hi"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": "A note."}},
        {"type": "resource", "resource": {"uri": "about:blank", "blob": "aGk="}},
        {"type": "resource_link", "uri": "note://2", "name": "two"},
        {"type": "text", "text": '{"type": "omitted", "bytes": 7}'},
    ]
    plain = tool_result(told(), {"content": parts[:1], "is_error": False}, {}, [])
    assert "structuredContent" not in plain
    assert "structuredContent" not in tool_result(contracts().get("market.list@1.0"), ["x"], {}, [])


@pytest.mark.req("MCP-1", "MCP-2")
def test_what_is_no_plain_call_is_no_tool_and_filled_in_fields_are_no_arguments() -> None:
    tools = tools_of(contracts())
    left_out = {one.name for one in contracts()} - {one.contract.name for one in tools.values()}
    assert left_out == {"llm.tools.call", "file.put"}
    with pytest.raises(HearthNetError, match="has no argument 'client_id'"):
        tools["market_post"].body({"client_id": "x"}, "y")
