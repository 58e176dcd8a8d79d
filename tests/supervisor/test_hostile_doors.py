"""What a hostile door can do to the others, and to the homes at them (docs/decisions/0224)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats.server_config import ANY_PORT
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.commands import CommunityAuthor
from tests.helpers.mesh import Mesh
from tests.helpers.nats_server import NatsServer
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.waiting import wait_for
from tests.supervisor.doors import Village, all_meet, is_linked, opened, server_roster
from tests.supervisor.houses import Callers, House
from tests.supervisor.raw_route import RawRoute

pytestmark = pytest.mark.asyncio


async def hostile(village: Village, to: str = "founder", by: str = "bob") -> RawRoute:
    """A route to the door of `to` by who has the key of another one's, which is a door of the roster."""
    files, _ = village.houses[by].server.leaf.certificate()
    await wait_for(lambda: village.houses[to].door.state == "open", what="the door")
    route = await RawRoute.connect(village.plan.ports[to][1], files)
    await wait_for(lambda: route.welcome, what="the door to take it for another one")
    return route


@contextlib.asynccontextmanager
async def hosting(house: House) -> AsyncIterator[ProbeService]:
    """A service at that house."""
    service, server = ProbeService(), cast("NatsServer", house.server.state)
    settings = house.server._settings(ANY_PORT, ANY_PORT)
    async with Mesh(house.home, house.home, server, house.identity, settings).hosting(service):
        yield service


@pytest.mark.req("ATTACK-119")
async def test_what_a_door_forges_is_dropped_by_its_receivers(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob") as village:
        founder, carol = village.houses["founder"], village.houses["carol"]
        visitors = await village.visitors()
        await all_meet(village, visitors)
        async with hosting(founder) as service:
            bus = await Bus.join(carol.home, carol.url, "carol")
            reply = await bus.call(QUERY, query(), node=founder.identity.node_id, timeout_seconds=20)
            assert reply.provider == founder.identity.node_id
            # A message of a route goes to homes at that door alone, and carol may be at either.
            routes = await hostile(village), await hostile(village, "bob", "founder")
            me, other = carol.identity.token, founder.identity.token
            instance = next(iter(await bus.offers(QUERY))).offer.instance
            visitors["carol"].heard.clear()
            for subject in (
                f"hn.call.{me}.{other}.{instance}.probe.query.v1",
                f"hn.adv.{other}.probe.query.v1",
                f"hn.event.{other}.community.log",
                f"hn.adv.{other}.last.v1",
            ):
                for route in routes:
                    route.publish("HN", subject, "HN1 p\n{}\n{}")
            # The servers carry it: nothing may rely on who may publish a subject.
            await wait_for(
                lambda: f"hn.adv.{other}.last.v1" in visitors["carol"].subjects(), what="the forgeries"
            )
            reply = await bus.call(QUERY, query(), node=founder.identity.node_id, timeout_seconds=20)
            assert reply.provider == founder.identity.node_id
            assert len(service.calls) == 2, "the forged call began nothing"
            await bus.close()
            for route in routes:
                await route.close()


@pytest.mark.req("ATTACK-120")
async def test_a_door_commands_no_other_door(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob") as village:
        visitors = await village.visitors()
        await all_meet(village, visitors)
        founder, route = village.houses["founder"].door, await hostile(village)
        assert founder.guarded.system is not None
        before = await founder.guarded.system.sessions()
        route.send("RS+ HN hn.adv.>")
        for account in ("SYS", "$SYS", "HN"):
            route.send(f"RS+ {account} $SYS.>", f"RS+ {account} _INBOX.>")
            for session in before:
                body = msgspec.json.encode({"cid": session.connection}).decode()
                route.publish(account, f"$SYS.REQ.SERVER.{route.server_id}.KICK", body)
            route.publish(account, f"$SYS.REQ.SERVER.{route.server_id}.LDM")
            route.publish(account, f"$SYS.REQ.SERVER.{route.server_id}.RELOAD")
        # Behind all of it comes what it does hear, so that all of it has been read.
        for name, visitor in visitors.items():
            await visitor.say(f"hn.adv.{village.houses[name].identity.token}.last.v1")
        await wait_for(lambda: any(b".last.v1" in line for line in route.heard), what="what it may hear")
        assert await founder.guarded.system.sessions() == before
        secret = founder._system_account.encode()
        told = b"".join((*route.said, *route.heard))
        assert not [word for word in (secret, b"$SYS", b"_INBOX") if word in told]
        await route.close()


@pytest.mark.req("ATTACK-121")
async def test_the_door_of_a_removed_member_is_cut_off(tmp_path: Path, callers: Callers) -> None:
    async with opened(tmp_path, callers, "founder", "bob") as village:
        founder, bob = village.houses["founder"], village.houses["bob"].identity
        route = await hostile(village)
        root = load_identity(founder.home.community_key)
        out = CommunityAuthor(village.held, root).revoke(bob.node_id, "other", client_id="x", now_ms=now_ms())
        await founder.admit(server_roster(rosters.merge(village.held, [out])))
        await wait_for(lambda: route.over, 2, "the end of the route")
        files, _ = village.houses["bob"].server.leaf.certificate()
        with pytest.raises(OSError, match=r"."):
            await RawRoute.connect(village.plan.ports["founder"][1], files)
        await route.close()


@pytest.mark.req("ATTACK-123")
@pytest.mark.parametrize("address", ["[::::]:7422", "no-such-home.invalid:7422"])
async def test_an_address_that_is_none_takes_nobody_away(
    tmp_path: Path, callers: Callers, address: str
) -> None:
    async with opened(tmp_path, callers, "founder", "bob", host="0.0.0.0") as village:
        visitors = await village.visitors()
        await all_meet(village, visitors)
        bob = village.houses["bob"]
        door = next(one for one in village.held.doors if one.node_id == bob.identity.node_id)
        moved = CommunityAuthor(village.held, bob.identity).open_door(address, address, door.key, now_ms())
        await village.all_admit(rosters.merge(village.held, [moved]), "founder", "carol")
        carol = village.houses["carol"]
        await wait_for(lambda: is_linked(carol), 20, "carol at the other door")
        visitors = await village.visitors()
        await all_meet(village, visitors, "founder", "carol")
