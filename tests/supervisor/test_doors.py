"""Homes that meet at doors: which go and come, while the homes go on (docs/decisions/0222)."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats.address import reachable_host
from hearthnet.supervisor.nats.leaf_links import Upstream, save_upstream
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.keys import Identity
from tests.helpers.members import raise_to
from tests.helpers.processes import kill, unused_port
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.supervisor.doors import (
    all_meet,
    certificate_of,
    is_linked,
    opened,
    server_roster,
    shaken_hands,
)
from tests.supervisor.houses import Callers, Visitor
from tests.supervisor.raw_leaf import RawLeaf

pytestmark = pytest.mark.asyncio


def counted(visitor: Visitor) -> list[str]:
    """Those of the numbered announcements that it heard."""
    return [subject for subject in visitor.subjects() if ".number" in subject]


def has_all(visitor: Visitor) -> bool:
    """Whether it heard as many as three homes make."""
    return len(counted(visitor)) >= 60


@pytest.mark.req("DOOR-4")
async def test_homes_at_different_doors_hear_each_other_once(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob") as village:
        visitors = await village.visitors()
        await all_meet(village, visitors)
        for number in range(20):
            for name, visitor in visitors.items():
                token = village.houses[name].identity.token
                await visitor.say(f"hn.adv.{token}.number{number}.v1")
        for visitor in visitors.values():
            await wait_for(functools.partial(has_all, visitor), what="all of it")
            assert len(counted(visitor)) == len(set(counted(visitor))) == 60
        assert "loop" not in "".join(house.log.lower() for house in village.houses.values())


@pytest.mark.req("DOOR-5")
async def test_a_killed_door_parts_no_pair_for_five_seconds(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob") as village:
        visitors = await village.visitors()
        await all_meet(village, visitors)
        watch = Stopwatch()
        # For good: its home does not start it again.
        founder = village.houses["founder"].door
        founder._follow(())
        kill(founder.guarded.nats.pid)
        await all_meet(village, visitors)
        assert watch.seconds() < 5


@pytest.mark.req("DOOR-4")
async def test_the_hub_becomes_a_door_at_the_same_address(tmp_path: Path, callers: Callers) -> None:
    """Bob's home is of the roster of before, as one of an earlier version or one that was off."""
    async with opened(tmp_path, callers) as village:
        founder, bob, _ = village.houses.values()
        hub = founder.server.state.leaf_port
        village.plan.ports["founder"] = hub, unused_port()
        held = rosters.merge(village.held, [village.plan.opened(village.held, "founder", founder.identity)])
        save_upstream(bob.home, Upstream(f"127.0.0.1:{hub}"))
        bob.server.leaf.prepare()
        await bob.admit(server_roster(village.held))
        await wait_for(lambda: is_linked(bob), 20, "bob at the hub")
        await village.all_admit(held, "founder", "carol")
        await wait_for(lambda: founder.door.state == "open", 20, "the founder's door")
        assert (founder.server.leaf.listens, founder.server.state.leaf_port) == (False, hub)
        visitors = await village.visitors()
        await all_meet(village, visitors)
        closed = CommunityAuthor(held, founder.identity).close_door(founder.identity.node_id, now_ms())
        await founder.admit(server_roster(rosters.merge(held, [closed])))
        await wait_for(lambda: is_linked(bob), 20, "bob at the hub again")
        assert (founder.door.state, founder.server.state.leaf_port) == ("", hub)


@pytest.mark.req("DOOR-4")
async def test_doors_come_and_go_by_the_roster_alone(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder") as village:
        visitors = await village.visitors()
        await all_meet(village, visitors)
        bob, founder = village.houses["bob"], village.houses["founder"]
        trusted = raise_to(village.held, founder.identity, bob.identity, "trusted")
        more = rosters.merge(trusted, [village.plan.opened(trusted, "bob", bob.identity)])
        await village.all_admit(more)
        await wait_for(lambda: bob.door.state == "open", 20, "bob's door")
        visitors = await village.visitors()
        await all_meet(village, visitors)
        gone = CommunityAuthor(more, bob.identity).close_door(founder.identity.node_id, now_ms())
        await village.all_admit(rosters.merge(more, [gone]))
        await wait_for(lambda: founder.door.state == "", 20, "the founder's door to close")
        visitors = await village.visitors()
        await all_meet(village, visitors)


@pytest.mark.req("DOOR-6")
async def test_a_revoked_member_is_gone_from_every_door(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob") as village:
        carol = village.houses["carol"].identity
        leaves = []
        for name in ("founder", "bob"):
            leaves.append(await RawLeaf.connect(village.plan.ports[name][0], carol.login()))
            await wait_for(lambda: leaves[-1].welcome, what=f"carol at the door of {name}")
        author = CommunityAuthor(village.held, load_identity(village.houses["founder"].home.community_key))
        out = author.revoke(carol.node_id, "other", client_id="x", now_ms=now_ms())
        watch = Stopwatch()
        await village.all_admit(rosters.merge(village.held, [out]), "founder", "bob")
        for leaf in leaves:
            await wait_for(lambda leaf=leaf: leaf.over, what="the end of the link")  # type: ignore[misc]
        assert watch.seconds() < 2
        again = await RawLeaf.connect(village.plan.ports["bob"][0], carol.login())
        await wait_for(lambda: again.over, what="the refusal")
        assert not again.welcome
        for leaf in (*leaves, again):
            await leaf.close()


@pytest.mark.req("DOOR-6")
async def test_a_false_hub_is_shut_out_at_a_door(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob") as village:
        carol, bob = village.houses["carol"].identity, village.houses["bob"]
        leaf = await RawLeaf.connect(village.plan.ports["bob"][0], carol.login(), is_hub=True)
        await wait_for(lambda: leaf.over, what="the end of the link")
        await leaf.close()
        assert any("as if it were the hub" in line for line in bob.news)


@pytest.mark.req("DOOR-7", "ATTACK-122")
async def test_beyond_loopback_doors_are_verified_by_their_keys(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob", host="0.0.0.0") as village:
        visitors = await village.visitors()
        await all_meet(village, visitors)
        carol, bob = village.houses["carol"], village.houses["bob"]
        leaf, route = village.plan.ports["bob"]
        place = reachable_host("0.0.0.0")
        assert carol.server.leaf.remote is not None
        assert carol.server.leaf.remote.trusted is not None
        # Another key at the address of the door is not linked to, and no other key comes in as a door.
        other = Identity.generate().node_id
        false = [msgspec.structs.replace(one, key=other) for one in village.held.doors]
        held = server_roster(village.held)
        await carol.admit(held._replace(doors=tuple(false)))
        for name in ("founder", "bob"):  # a link that is there stays
            kill(village.houses[name].door.guarded.nats.pid)
        await wait_for(lambda: "failed to verify certificate" in carol.log, 20, "carol to refuse")
        assert not await is_linked(carol)
        await carol.admit(held)
        await wait_for(lambda: is_linked(carol), 20, "carol's link")
        strangers = certificate_of(tmp_path / "stranger")
        for port, files in ((route, strangers), (route, None)):
            with pytest.raises(OSError, match=r"."):
                await shaken_hands(place, port, files)
        assert await shaken_hands(place, route, bob.server.leaf.certificate()[0])
        assert await shaken_hands(place, leaf, None)
