"""Posts of a person who has several devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.service.hosting.host import Host
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet_market import MarketService
from tests.helpers.mesh import GuestBus, Mesh, start_mesh, write_roster
from tests.services.market.trade import Guest, body, do, listed, post, refused
from tests.trust.people import PAGE, added, removed, settled
from tests.trust.town import with_events

pytestmark = pytest.mark.asyncio


class Family(NamedTuple):
    """The mesh, and the market's process in it."""

    mesh: Mesh
    market: Host

    async def bus(self, home: Home) -> Bus:
        """A process of that home, which asks the market's home for effects."""
        return await GuestBus.at(self.mesh.identity.node_id, home, self.mesh.server.url, "guest")


@pytest_asyncio.fixture
async def family(tmp_path: Path) -> AsyncIterator[Family]:
    """A market at the founder, and a person with two further nodes and a page; `other` is somebody else."""
    mesh = await start_mesh(tmp_path, "second", "other", stores=False)
    first, second = (keyring.load_identity(home.device_key) for home in (mesh.guest, mesh.others[0]))
    held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
    held = settled(held, first, second)
    held = with_events(held, added(held, first, PAGE))
    write_roster(held, mesh.home, mesh.guest, *mesh.others)
    try:
        async with mesh.hosting(MarketService()) as host:
            yield Family(mesh, host)
    finally:
        mesh.server.stop()


@pytest.mark.req("PERSON-20", "MARKET-14")
async def test_a_post_is_changed_and_ended_from_any_node_of_its_person(family: Family) -> None:
    second, other = family.mesh.others
    async with await family.bus(family.mesh.guest) as bus, await family.bus(second) as there:
        kept, gone = await post(bus, "Ladder"), await post(bus, "Saw")
        await do(there, "update", event_id=kept, fields={"title": "Long ladder"})
        await do(there, "expire", event_id=gone, reason="user_request")
        assert [one["title"] for one in (await listed(bus)).values()] == ["Long ladder"]
        exported = (await do(there, "export"))["events"]
        assert len(exported) == 4, "the events of both nodes"
        async with await family.bus(other) as stranger:
            for verb, given in (("update", {"fields": {"title": "Mine"}}), ("delete", {})):
                error = await refused(stranger, verb, event_id=kept, **given)
                assert error.code == "unauthorized"
            assert (await do(stranger, "export"))["events"] == []
        await do(there, "delete", all=True)
        assert await listed(bus) == {}


@pytest.mark.req("PERSON-20", "PERSON-4")
async def test_a_removed_node_changes_nothing_and_its_posts_stay(family: Family) -> None:
    second = family.mesh.others[0]
    async with await family.bus(family.mesh.guest) as bus, await family.bus(second) as lost:
        made = await post(lost, "Ladder")
        await do(lost, "update", event_id=made, fields={"title": "Mine"})
        first, stolen = bus.peer.identity, lost.peer.identity
        out = removed(bus.peer.roster, first, stolen)
        await family.market.peer.membership.add([out])
        error = await refused(lost, "update", event_id=made, fields={"title": "Thief's"})
        assert error.code == "revoked"
        await do(bus, "update", event_id=made, fields={"title": "Mine still"})
        assert [one["title"] for one in (await listed(bus)).values()] == ["Mine still"]


@pytest.mark.req("PERSON-20")
async def test_the_owner_changes_what_a_page_of_the_owner_posted(family: Family) -> None:
    async with await family.mesh.bus() as bus:
        page, stranger = Guest(family.mesh, bus, "owner"), Guest(family.mesh, bus, "anna")
        made = (await page.do("post", category="offer", title="Saw", body="To lend."))["event_id"]
        foreign = (await stranger.do("post", category="offer", title="Rope", body="To lend."))["event_id"]
        await do(bus, "update", event_id=made, fields={"title": "Sharp saw"})
        assert (await refused(bus, "update", event_id=foreign, fields={"title": "x"})).code == "unauthorized"
        # A page without a key of its own is its gateway's word, and nobody's device.
        own = await post(bus, "Ladder")
        with pytest.raises(Exception, match="only its author"):
            await page.do("update", event_id=own, fields={"title": "x"})


@pytest.mark.req("PERSON-21")
async def test_a_page_reads_as_its_person_at_the_word_of_its_own_node_alone(family: Family) -> None:
    second, other = family.mesh.others
    async with await family.bus(family.mesh.guest) as bus:
        made = await post(bus, "Ladder")
        for home, expected in ((second, [made]), (other, [])):
            async with await family.bus(home) as gateway:
                own = gateway.peer.identity
                token = mint(
                    own,
                    subject=own.node_id,
                    audience=gateway.peer.community,
                    scope=Scope(("market.export@1.0",)),
                    now_ms=now_ms(),
                    ttl_seconds=60,
                    principal="page",
                    cnf=PAGE.node_id,
                )
                reply = await gateway.call("market.export@1.0", body(), token=token)
                assert [one["event_id"] for one in reply.output["events"]] == expected


@pytest.mark.req("PERSON-62")
async def test_an_ended_post_is_exported_by_its_author_alone(family: Family) -> None:
    async with await family.mesh.bus() as bus:
        anna = Guest(family.mesh, bus, "anna")
        made = (await anna.do("post", category="offer", title="Rope", body="To lend."))["event_id"]
        assert (await do(bus, "export", event_id=made))["events"], "anybody may while it stands"
        await anna.do("expire", event_id=made, reason="user_request")
        assert (await refused(bus, "export", event_id=made)).code == "not_found"
        assert len((await anna.do("export", event_id=made))["events"]) == 2
