"""Members who write events without end, while they are put out and by identities that they invited."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.event_intake import BYTES_AT_ONCE
from hearthnet.bus.session.gossip_frames import LOG
from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.times import now_ms
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.community import events
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent, Withdrawn
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import LIST, LIST_BODY, Attacker
from tests.helpers.members import act, let_in
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
SYNC = "community.sync@1.0"


def flood(held: Roster, author: Identity, number: int) -> list[CommunityEvent]:
    """A chain of so many events of `author` that hold and change nothing."""
    sequence, previous, lamport = held.next(author.node_id)
    content = Withdrawn(invite_event_hash=held.events[0].hash)
    made: list[CommunityEvent] = []
    for count in range(number):
        place = (sequence + count, previous, lamport + count)
        made.append(act(held, author, events.WITHDRAWN, content, place, now_ms()))
        previous = made[-1].hash
    return made


async def tell(bus: Bus, told: list[CommunityEvent]) -> None:
    """Publishes events as a member's node does."""
    for body in gossip_frames.batches(told, ()):
        await gossip_frames.publish(bus.peer.sender, LOG, body)


@pytest.mark.req("ATTACK-37")
async def test_a_member_that_floods_is_put_out_as_quickly_as_any(tmp_path: Path) -> None:
    """Six members write at once as much as is taken of each; one of them is put out meanwhile."""
    gang = [f"mallory{number}" for number in range(6)]
    neighbourhood = settle_in(tmp_path, *gang, "carol", services=("market", "auth"))
    home = neighbourhood.founder
    shell, mallory = Shell(home.path), load_identity(neighbourhood.home(gang[0]).device_key)
    async with contextlib.AsyncExitStack() as stack:
        state = stack.enter_context(shell.node())
        url = str(state["server"]["url"])
        buses = [
            await stack.enter_async_context(await Bus.join(neighbourhood.home(name), url, name))
            for name in (*gang, "carol")
        ]
        carol = Attacker(buses[-1])
        market = await carol.target(LIST, str(state["node_id"]))
        # With a token of the attacker's, carol sees what the market's process knows of it.
        token = mint(
            mallory,
            subject=carol.peer.node_id,
            audience=carol.peer.community,
            scope=Scope(capabilities=(LIST,)),
            now_ms=now_ms(),
            ttl_seconds=600,
        )
        assert await carol.call(market, LIST, LIST_BODY, token=token) == "ok"
        floods = [flood(bus.peer.roster, bus.peer.identity, 600) for bus in buses[:-1]]
        telling = [tell(bus, told) for bus, told in zip(buses, floods, strict=False)]
        await asyncio.gather(*telling)

        async def refused() -> bool:
            return await carol.call(market, LIST, LIST_BODY, token=token) == "revoked"

        with shell.start("revoke", mallory.node_id, "--yes", "--json") as command:
            await wait_for(refused, what="the market to refuse what the attacker lent")
            assert await asyncio.to_thread(command.wait, 60) == 0
        for told in floods:
            kept = [one for one in told if carol.peer.roster.history.get(one.hash) is not None]
            assert sum(len(one.encode()) for one in kept) <= BYTES_AT_ONCE


@pytest.mark.req("ATTACK-36")
async def test_forty_identities_of_one_member_are_five_a_day_and_share_its_room(tmp_path: Path) -> None:
    neighbourhood = settle_in(tmp_path, "mallory", "carol", services=("auth",))
    home = neighbourhood.founder
    async with contextlib.AsyncExitStack() as stack:
        shell = Shell(home.path)
        state = stack.enter_context(shell.node())
        mallory, carol = [
            await stack.enter_async_context(
                await Bus.join(neighbourhood.home(name), str(state["server"]["url"]), name)
            )
            for name in ("mallory", "carol")
        ]
        before, identities = mallory.peer.roster, [Identity.generate() for _ in range(40)]
        later = before
        for one in identities:
            later = let_in(later, mallory.peer.identity, one)
        await tell(mallory, [one for one in later.events if before.history.get(one.hash) is None])

        async def held_there() -> Roster:
            reply = await carol.call(SYNC, {"params": {}, "input": {"heads": {}, "limit": 1_000}})
            told = signed_document.readable(reply.output["events"], CommunityEvent)
            return rosters.derive(before.community_id, told)

        async def taken_in() -> bool:
            return len((await held_there()).members) > len(before.members) + 4

        await wait_for(taken_in, what="five to be let in")
        for one in identities[:5]:
            await tell(mallory, flood(later, one, 250))
        # What carol writes comes behind all that.
        (last,) = flood(carol.peer.roster, carol.peer.identity, 1)
        await tell(carol, [last])

        async def done() -> Roster | None:
            held = await held_there()
            return held if held.history.get(last.hash) is not None else None

        held = await wait_for(done, what="the last word")
        arguments = ("revoke", mallory.peer.node_id, "--with-invited", "--yes", "--json")
        page = await asyncio.to_thread(shell.json, *arguments)
        assert [one["done"] for one in page["invited"]] == [True] * 5
        assert {one.node_id for one in (await held_there()).members} == {
            one.node_id for one in before.members if one.node_id != mallory.peer.node_id
        }
    assert len(held.members) == len(before.members) + 5
    gang = {mallory.peer.node_id, *(one.node_id for one in identities)}
    kept = sum(len(one.encode()) for one in held.events if one.author in gang)
    assert BYTES_AT_ONCE / 2 < kept < BYTES_AT_ONCE * 1.1
