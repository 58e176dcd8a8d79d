"""A person mutes an author at home: for that person alone, and only there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.cli.workflows.person_belongings import remove_mutes
from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import ServiceState
from hearthnet_market import MarketService
from hearthnet_market.mutes import MOST_MUTED, Muted, Mutes
from tests.helpers.mesh import Mesh, start_mesh, write_roster
from tests.helpers.residents import Resident, resident
from tests.services.market.trade import body, listed, post
from tests.trust.people import settled

pytestmark = pytest.mark.asyncio


class Household(NamedTuple):
    """A home with a market, its owner's bus, two more persons, and a neighbour who posts there."""

    mesh: Mesh
    bus: Bus
    ada: Resident
    ben: Resident
    neighbour: Bus

    async def call(self, who: Resident | None, verb: str, **given: Any) -> dict[str, Any]:
        """The output of a call by the owner (None) or by a person."""
        if who is not None:
            return await who.call(f"market.{verb}@1.0", {}, **given)
        return dict((await self.bus.call(f"market.{verb}@1.0", body(**given))).output)

    async def seen(self, who: Resident | None) -> list[str]:
        """The titles that are listed and found; a title is found where it is listed."""
        shown = [one["title"] for one in (await self.call(who, "list"))["posts"]]
        found = [one["title"] for one in (await self.call(who, "search", query="lend", k=50))["posts"]]
        assert sorted(shown) == sorted(found)
        return sorted(shown)

    async def muted(self, who: Resident | None) -> list[str]:
        """The authors whom that person has muted."""
        return [one["author"] for one in (await self.call(who, "list", muted=True))["muted"]]


@contextlib.asynccontextmanager
async def household(mesh: Mesh) -> AsyncIterator[Household]:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.guest_bus() as neighbour:
        ada, ben = (resident(mesh.identity, bus, name) for name in ("ada", "ben"))
        yield Household(mesh, bus, ada, ben, neighbour)


async def refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    return caught.value


@pytest.mark.req("MARKET-39")
async def test_an_author_is_muted_for_one_person_until_taken_back(mesh: Mesh) -> None:
    async with household(mesh) as home:
        author = home.neighbour.peer.node_id
        await post(home.neighbour, "Ladder")
        await post(home.bus, "Saw")
        both = ["Ladder", "Saw"]
        assert await home.call(home.ada, "mute", author=author) == {"muted": True}
        assert await home.call(home.ada, "mute", author=author) == {"muted": True}
        # Under the token of a run, which is for the same person, it is the same.
        run = Resident(mesh.identity, home.bus, "ada")
        for who, titles in ((home.ada, ["Saw"]), (run, ["Saw"]), (home.ben, both), (None, both)):
            assert await home.seen(who) == titles
        assert len(await listed(home.neighbour)) == 2
        assert [await home.muted(who) for who in (home.ada, home.ben, None)] == [[author], [], []]
        every = (await home.call(home.ada, "list", muted=True))["posts"]
        assert sorted(one["title"] for one in every) == both
        await home.call(None, "mute", author=author)
    for file in mesh.home.service("market").glob("view.db*"):
        file.unlink()
    async with household(mesh) as home:
        assert [await home.seen(who) for who in (home.ada, None)] == [["Saw"]] * 2
        await home.call(home.ada, "mute", author=author, muted=False)
        assert [await home.seen(who) for who in (home.ada, None)] == [both, ["Saw"]]
        assert [await home.muted(who) for who in (home.ada, None)] == [[], [author]]


@pytest.mark.req("MARKET-39")
async def test_all_computers_of_a_person_are_muted(tmp_path: Path) -> None:
    mesh = await start_mesh(tmp_path, "second", stores=False)
    try:
        held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
        nodes = [keyring.load_identity(home.device_key) for home in (mesh.guest, mesh.others[0])]
        write_roster(settled(held, *nodes), mesh.home, mesh.guest, *mesh.others)
        first, second = (one.node_id for one in nodes)
        async with household(mesh) as home:
            async with await type(home.neighbour).join(mesh.others[0], mesh.server.url, "second") as there:
                given = {"client_id": "01JZZZZZZZZZZZZZZZZZZZZZ31", "category": "offer", "title": "Rope"}
                made = body(**given, body="To lend.")
                await there.call("market.post@1.0", made, node=mesh.identity.node_id)
            await post(home.neighbour, "Ladder")
            await home.call(home.ada, "mute", author=first)
            assert (await home.seen(home.ada), await home.seen(None)) == ([], ["Ladder", "Rope"])
            [muted] = (await home.call(home.ada, "list", muted=True))["muted"]
            assert (muted["author"], muted["nodes"]) == (first, sorted((first, second)))
            # Any of the person's computers stands for it.
            await home.call(home.ada, "mute", author=second)
            assert await home.muted(home.ada) == [first]
            await home.call(home.ada, "mute", author=second, muted=False)
            assert await home.seen(home.ada) == ["Ladder", "Rope"]
    finally:
        mesh.server.stop()


@pytest.mark.req("MARKET-39")
async def test_a_guest_of_a_home_is_muted_apart_from_its_owner(mesh: Mesh) -> None:
    async with household(mesh) as home:
        own = mesh.identity.node_id
        text = {"category": "offer", "body": "To lend."}
        made = {"client_id": "01JZZZZZZZZZZZZZZZZZZZZZ32", "title": "Rope", **text}
        await home.ben.call("market.post@1.0", {}, **made)
        await post(home.bus, "Saw")
        await home.call(home.ada, "mute", author=own)
        assert await home.seen(home.ada) == ["Rope"]
        await home.call(home.ada, "mute", author=own, muted=False)
        await home.call(home.ada, "mute", author=own, guest="ben")
        assert await home.seen(home.ada) == ["Saw"]
        assert await home.seen(home.ben) == ["Rope", "Saw"]


@pytest.mark.req("MARKET-40")
async def test_muting_is_refused_to_strangers_and_of_oneself(mesh: Mesh) -> None:
    async with household(mesh) as home:
        own = mesh.identity.node_id
        for guest in ({}, {"guest": "owner"}):
            error = await refusal(home.call(None, "mute", author=own, **guest))
            assert (error.code, error.rule) == ("bad_request", "self")
        error = await refusal(home.ada.call("market.mute@1.0", {}, author=own, guest="ada"))
        assert error.rule == "self"
        await home.call(home.ada, "mute", author=home.neighbour.peer.node_id)
        # A client that the owner gave that name is not the person; another home has no list here.
        nobody = Resident(mesh.identity, home.bus, "ada")
        error = await refusal(nobody.call("market.mute@1.0", {}, author=own))
        assert error.code == "unauthorized"
        assert await home.muted(nobody) == []
        error = await refusal(home.neighbour.call("market.mute@1.0", body(author=own)))
        assert error.code == "unauthorized"
        theirs = await home.neighbour.call("market.list@1.0", body(muted=True))
        assert theirs.output["muted"] == []


@pytest.mark.req("MARKET-40")
async def test_what_a_removed_person_had_muted_is_forgotten(mesh: Mesh) -> None:
    async with household(mesh) as home:
        author = home.neighbour.peer.node_id
        for who in (home.ada, home.ben):
            await home.call(who, "mute", author=author)
            error = await refusal(who.call("market.remove_person@1.0", {}, person="ada"))
            assert error.code in ("unauthorized", "trust_insufficient")
        assert await home.call(None, "remove_person", person="ada") == {"mutes_removed": 1}
        assert [await home.muted(who) for who in (home.ada, home.ben)] == [[], [author]]
        assert await home.call(None, "remove_person", person="ada") == {"mutes_removed": 0}


@pytest.mark.req("MARKET-40")
async def test_the_removal_of_a_person_needs_the_market_once_it_has_run(mesh: Mesh) -> None:
    market = ServiceState("market", os.getpid(), "ready", 0, None, (), 0)
    with mesh.published():
        assert await asyncio.to_thread(remove_mutes, mesh.home, "ada") == 0
    async with household(mesh) as home:
        await home.call(home.ada, "mute", author=home.neighbour.peer.node_id)
        with mesh.published():
            error = await refusal(asyncio.to_thread(remove_mutes, mesh.home, "ada"))
            assert "the service market does not run here" in str(error)
        with mesh.published(market):
            assert await asyncio.to_thread(remove_mutes, mesh.home, "ada") == 1
        assert await home.muted(home.ada) == []


@pytest.mark.req("MARKET-40")
async def test_the_number_of_muted_authors_is_bounded(tmp_path: Path) -> None:
    with contextlib.closing(Mutes(tmp_path / "mutes.db")) as mutes:
        rows = [(f"author {number}",) for number in range(MOST_MUTED)]
        mutes._database.execute("BEGIN")
        mutes._database.executemany("INSERT INTO muted VALUES ('me', ?, '', 0)", rows)
        mutes._database.execute("COMMIT")

        def alone(principal: str) -> frozenset[str]:
            return frozenset({principal})

        mutes.mute("me", Muted("author 7", "", 1), alone)
        with pytest.raises(HearthNetError, match="list --muted"):
            mutes.mute("me", Muted("one more", "", 1), alone)
        mutes.mute("another", Muted("one more", "", 1), alone)
        assert len(mutes.of("me")) == MOST_MUTED
