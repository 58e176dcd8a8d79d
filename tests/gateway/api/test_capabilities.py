"""What is said of a client's scope before there is a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.core.config import McpServerConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.api.capabilities import check_installed, check_offered, is_shared
from hearthnet.gateway.auth.client_store import ClientStore, StoredClient
from hearthnet.gateway.auth.client_tokens import check_room
from hearthnet.trust.authorization.token import Scope
from tests.helpers.gateway import House
from tests.services.mcp.houses import Plain, configure, offered, running, tool

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("GATE-18")]
NOTES = McpServerConfig(name="notes", command=("x",), share=True)
MINE = McpServerConfig(name="mine", command=("x",))


def refused(names: list[str], servers: list[McpServerConfig], code: str) -> str:
    """Why names that nobody offers are refused."""
    with pytest.raises(HearthNetError) as caught:
        check_offered(names, [], servers)
    assert caught.value.code == code
    return caught.value.message


async def test_installed_names_are_judged_without_a_node() -> None:
    tools = ["experimental.mcp.notes.*", "experimental.mcp.notes.read@7.0"]
    assert check_installed(["llm.chat", *tools, "rag.query@1.0"]) == tools
    for name, code in (
        ("experimental.*", "bad_request"),
        ("experimental.mcp.*", "bad_request"),
        ("market.*", "bad_request"),
        ("rag query", "bad_request"),
        ("rag.quary", "not_found"),
        ("rag.query@9.0", "schema_mismatch"),
        ("auth.token.issue", "unauthorized"),
        ("node.trace.list", "unauthorized"),
    ):
        with pytest.raises(HearthNetError) as caught:
            check_installed([name])
        assert caught.value.code == code, name


async def test_servers_of_the_settings_are_known_by_name() -> None:
    assert is_shared("experimental.mcp.notes.*", [MINE, NOTES])
    assert not is_shared("experimental.mcp.mine.*", [MINE, NOTES])
    assert not is_shared("experimental.mcp.notes.read", [NOTES])
    assert "share = true" in refused(["experimental.mcp.mine.*"], [MINE], "unauthorized")
    assert "share = true" in refused(["experimental.mcp.mine.read"], [MINE], "unauthorized")
    assert "there is experimental.mcp.notes.*" in refused(["experimental.mcp.other.*"], [NOTES], "not_found")
    assert "hearthnet mcp list" in refused(["experimental.mcp.other.*"], [], "not_found")
    assert "name experimental.mcp.notes.*" in refused(["experimental.mcp.notes.x"], [NOTES], "not_found")
    assert refused(["experimental.thing"], [], "not_found").endswith("see: hearthnet caps")


async def test_offers_for_others_than_the_node_are_granted(shared: House, tmp_path: Path) -> None:
    ours, mine = Plain(tmp_path / "ours", "ours"), Plain(tmp_path / "mine", "mine")
    for plain in (ours, mine):
        plain.lists(tool(f"read-{plain.name}"))
    settings = shared.mesh.home.config_file.read_text()
    try:
        async with running(shared.mesh, settings, ours.toml(share=True), mine.toml()):
            views = list((await offered(shared.bus, "read-ours", "read-mine")).values())
            check_offered(["experimental.mcp.ours.*", "experimental.mcp.ours.read-ours"], views, [])
            for name in ("experimental.mcp.mine.*", "experimental.mcp.mine.read-mine"):
                with pytest.raises(HearthNetError, match="for this node alone"):
                    check_offered([name], views, [])
    finally:
        configure(shared.mesh.home, settings)


async def test_a_token_without_room_makes_no_client(shared: House) -> None:
    peer, book = shared.bus.peer, ClientStore(shared.mesh.home)

    def check(entry: StoredClient) -> None:
        check_room(peer.identity, peer.community, entry)

    before = book.ids()
    many = Scope(tuple(f"experimental.mcp.other.tool-with-a-name-{n}" for n in range(38)))
    with pytest.raises(HearthNetError, match="38 capabilities have no room") as caught:
        book.add("never", scope=many, check=check)
    assert caught.value.code == "bad_request"
    with pytest.raises(HearthNetError, match="is not a capability"):
        book.add("never", scope=Scope(("no name",)), check=check)
    assert book.ids() == before
    for scope in (None, Scope((), max_effects=100), Scope(("experimental.mcp.other.*",))):
        entry, _ = book.add("fits", "p" * 64, key=peer.node_id, scope=scope, check=check)
        assert book.remove(entry.id)
