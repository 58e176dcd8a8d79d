"""What MCP says of errors and capabilities, with the official client in both protocols."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ClientCapabilities,
    ElicitationCapability,
    ErrorData,
    UrlElicitationCapability,
)

from tests.gateway.test_mcp import ARTICLE, MODES, Person, connected, said
from tests.helpers.gateway import House
from tests.helpers.probe import POST, QUERY

pytestmark = pytest.mark.asyncio(loop_scope="module")
FORMS: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"form": {}}}}


@pytest.mark.req("MCP-10")
@pytest.mark.parametrize("mode", MODES)
async def test_an_unknown_tool_is_invalid_params(shared: House, mode: str) -> None:
    async with connected(shared, shared.guest(QUERY), mode=mode) as client:
        for name, words in (("rag_quary", "did you mean rag_query"), ("market_post", "there is no tool")):
            with pytest.raises(MCPError, match=words) as caught:
                await client.call_tool(name, {})
            assert caught.value.code == INVALID_PARAMS
            assert caught.value.data["hearthnet/error"]["error"] == "not_found"


@pytest.mark.req("MCP-3", "MCP-10")
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_without_elicitation_is_told_so(shared: House, mode: str) -> None:
    before = len(shared.workshop.posts)
    async with connected(shared, shared.guest(POST), mode=mode) as client:
        with pytest.raises(MCPError, match="the gateway's page") as caught:
            await client.call_tool("market_post", ARTICLE)
    assert (caught.value.code, caught.value.data) == (MISSING_REQUIRED_CLIENT_CAPABILITY, FORMS)
    assert len(shared.workshop.posts) == before


@pytest.mark.req("MCP-10")
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_of_urls_alone_is_asked_by_no_form(
    shared: House, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declared(session: ClientSession, version: str) -> ClientCapabilities:
        # The library's client always declares both modes.
        return ClientCapabilities(elicitation=ElicitationCapability(url=UrlElicitationCapability()))

    monkeypatch.setattr(ClientSession, "_build_capabilities", declared)
    before, person = len(shared.workshop.posts), Person()
    async with connected(shared, shared.guest(POST), mode=mode, elicitation_callback=person) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("market_post", ARTICLE)
    assert (caught.value.code, caught.value.data) == (MISSING_REQUIRED_CLIENT_CAPABILITY, FORMS)
    assert (person.shown, len(shared.workshop.posts)) == ([], before)


@pytest.mark.req("MCP-10")
async def test_a_client_that_names_no_mode_is_asked_by_form(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declared(session: ClientSession, version: str) -> ClientCapabilities:
        return ClientCapabilities(elicitation=ElicitationCapability())

    monkeypatch.setattr(ClientSession, "_build_capabilities", declared)
    before, person = len(shared.workshop.posts), Person()
    async with connected(shared, shared.guest(POST), mode="legacy", elicitation_callback=person) as client:
        assert not (await client.call_tool("market_post", ARTICLE)).is_error
    (shown,) = person.shown
    assert '"title": "Ladder"' in shown
    assert len(shared.workshop.posts) == before + 1


@pytest.mark.req("MCP-10")
async def test_an_elicitation_answered_by_an_error_is_no_yes(shared: House) -> None:
    async def fails(context: Any, params: Any) -> ErrorData:
        return ErrorData(code=-32603, message="the window is closed\n\x1b[31m" + "x" * 10_000)

    before = len(shared.workshop.posts)
    async with connected(shared, shared.guest(POST), mode="legacy", elicitation_callback=fails) as client:
        refused = await client.call_tool("market_post", ARTICLE)
        assert refused.is_error
        assert said(refused).startswith("unauthorized: the MCP client did not ask the person")
        assert "the window is closed" in said(refused)
        assert said(refused).isprintable()
        assert len(said(refused)) < 400
    async with connected(shared, shared.guest(POST), mode="auto", elicitation_callback=fails) as client:
        with pytest.raises(MCPError, match="the window is closed"):
            await client.call_tool("market_post", ARTICLE)
    assert len(shared.workshop.posts) == before
