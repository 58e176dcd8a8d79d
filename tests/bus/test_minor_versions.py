"""Homes of two minor versions on one bus: contracts, offers and frames of both."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hearthnet import Call, HearthNetError, Offer, Reply, capability
from hearthnet.contracts.registry import Contracts
from hearthnet.core import ids
from hearthnet.protocol import header as headers
from hearthnet.protocol import offer as offers
from hearthnet.protocol.header import Header
from hearthnet.protocol.offer import Notice
from hearthnet.service import decorators
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, MODEL, POST, QUERY, ROW, Anything, ProbeService, post, query

pytestmark = pytest.mark.asyncio
LATER_QUERY, LATER_POST = "rag.query@1.1", "market.post@1.1"


class Later(ProbeService):
    """A provider of the next minor version, which takes and tells more."""

    def offers(self) -> list[Offer]:
        """The same, by their later names."""
        return [
            Offer(capability=LATER_QUERY, params={"corpus": "probe"}, max_concurrent=4),
            Offer(capability=CHAT, params=MODEL, max_concurrent=4),
            Offer(capability=LATER_POST, max_concurrent=4),
        ]

    @capability(LATER_QUERY)
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """A row with a member that callers of before do not know."""
        self.calls.append(call)
        row = {**ROW, "later": call.body["input"].get("later", "none")}
        return Reply({"chunks": [row], "later": True}, {"corpus": "probe", "embedding_model": None})

    @capability(LATER_POST, event_sourced=True)
    async def post(self, call: Call[Anything, Anything]) -> Reply:
        """As before, with more in the answer."""
        self.calls.append(call)
        assert self.events is not None
        recorded = await self.events.append(call, "market.post.created", dict(call.body["input"]))
        output = {"event_id": recorded.event.event_id, "lamport": recorded.lamport, "later": True}
        return Reply(output, {"repeated": recorded.repeated})


@pytest.fixture
def later_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contracts:
    """Providers of this process have contracts of the next minor version, too; its callers do not."""
    folder = tmp_path / "contracts"
    shutil.copytree(Path(__file__).resolve().parents[2] / "contracts", folder)
    for name in ("rag.query", "market.post"):
        page: dict[str, Any] = json.loads((folder / f"{name}@1.0.json").read_text())
        page["version"] = "1.1"
        page["request_schema"]["properties"]["input"]["properties"]["later"] = {"type": "string"}
        (folder / f"{name}@1.1.json").write_text(json.dumps(page))
    found = Contracts(folder)
    monkeypatch.setattr(decorators, "contracts", lambda: found)
    return found


def speak_later(sender: Any) -> None:
    """The headers of this process have members that nobody knows yet."""
    make = sender.header

    def header(*arguments: Any, **fields: Any) -> Header:
        made = make(*arguments, **fields)
        return LaterHeader(**{name: getattr(made, name) for name in Header.__struct_fields__})

    sender.header = header


class LaterHeader(Header, frozen=True, kw_only=True, omit_defaults=False, gc=False):
    """A header of the next minor version."""

    priority: int = 7
    hints: tuple[str, ...] = ("later",)


@pytest.mark.req("VERSION-1")
async def test_a_caller_of_before_uses_a_later_provider(mesh: Mesh, later_contracts: Contracts) -> None:
    service = Later()
    async with mesh.hosting(service), await mesh.guest_bus() as guest:
        read = await guest.call(QUERY, query())
        assert read.output["chunks"][0]["later"] == "none"
        client_id = ids.new_ulid()
        wrote = await guest.call(POST, post(client_id))
        assert wrote.output["later"]
        again = await guest.call(POST, post(client_id))
        assert again.meta["repeated"], "its effect happens once"
    assert len(service.calls) == 3


@pytest.mark.req("VERSION-1")
async def test_providers_of_both_versions_are_asked(mesh: Mesh, later_contracts: Contracts) -> None:
    before, later = ProbeService(), Later()
    async with (
        mesh.hosting(before),
        mesh.hosting(later, at=mesh.guest),
        await mesh.bus() as home,
        await mesh.guest_bus() as guest,
    ):
        for bus in (home, guest):
            for host in (home, guest):
                await bus.call(QUERY, query(), node=host.peer.node_id)
    assert (len(before.calls), len(later.calls)) == (2, 2)


@pytest.mark.req("VERSION-1")
async def test_a_later_caller_is_told_which_version_there_is(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as guest:
        with pytest.raises(HearthNetError) as caught:
            await guest.call(LATER_QUERY, query())
    assert caught.value.code == "schema_mismatch"
    assert QUERY in caught.value.alt


@pytest.mark.req("VERSION-4")
async def test_members_of_later_headers_are_ignored(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest:
        speak_later(guest.peer.sender)
        speak_later(host.peer.sender)
        await guest.call(QUERY, query())
        await asyncio.gather(*(guest.call(QUERY, query()) for _ in range(4)))
        await guest.call(POST, post(ids.new_ulid()))
        async with guest.stream(CHAT, CHAT_BODY) as stream:
            frames = [frame.event async for frame in stream]
        assert frames[-1] == "done"
        assert b"priority" in headers.encode(guest.peer.sender.header("call", ids.new_ulid()))


@pytest.mark.req("VERSION-3")
async def test_an_offer_that_cannot_be_read_keeps_no_other_out(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = offers.encode

    def later(notice: Notice) -> bytes:
        page = json.loads(encode(notice))
        for one in page["offers"]:
            one["priority"] = 7
        page["offers"].insert(0, {**page["offers"][0], "capability": "rag.query@1.0#fast"})
        return json.dumps({**page, "valid": "for ever"}).encode()

    monkeypatch.setattr(offers, "encode", later)
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as guest:
        await guest.call(QUERY, query())
        listed = await guest.offers()
    assert {str(view.capability) for view in listed} >= {QUERY, CHAT, POST}
