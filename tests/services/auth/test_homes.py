"""Three homes with their own servers, linked as `hearthnet up` links them: one that was apart catches up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from hearthnet.supervisor.nats.leaf_links import linked
from hearthnet.supervisor.nats.server_config import ANY_PORT
from tests.helpers.mesh import Mesh
from tests.helpers.nats_server import NatsServer
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import INVITE, ISSUE, PROMOTE, REVOKE_TOKEN, House, living
from tests.supervisor.houses import House as Home
from tests.supervisor.houses import Street, way_to

pytestmark = pytest.mark.asyncio


@contextlib.asynccontextmanager
async def at_home(home: Home) -> AsyncIterator[House]:
    """The node's `auth` service and another process of it, at the home's own server."""
    server = cast("NatsServer", home.server.state)  # of which only the address is asked for
    settings = home.server._settings(ANY_PORT, ANY_PORT)
    async with living(Mesh(home.home, home.home, server, home.identity, settings), home.home) as house:
        yield house


async def is_linked(home: Home) -> bool:
    """Whether its server has its link to another one."""
    assert home.server.guarded.system is not None
    return await linked(home.server.guarded.system)


@pytest.mark.req("COMMUNITY-4", "COMMUNITY-3")
async def test_homes_that_were_apart_know_what_the_others_did_soon_after_they_meet(tmp_path: Path) -> None:
    street = Street.build(tmp_path, "bob", "carol")
    async with (
        street.open("founder") as first,
        street.open("carol", upstream=way_to(first)) as third,
        at_home(first) as founder,
        at_home(third) as carol,
    ):
        await wait_for(lambda: is_linked(third), what="carol's link")
        async with street.open("bob") as apart, at_home(apart) as bob:
            invited = await bob.do(INVITE, display_name="made while apart")
            subject = bob.node_id
        await founder.do(PROMOTE, target_node_id=carol.node_id, new_level="trusted")
        token = await founder.do(ISSUE, subject=subject, scope={"capabilities": ["community.sync"]})
        await founder.do(REVOKE_TOKEN, token_id=token["token_id"])
        await wait_for(lambda: carol.level(carol.node_id) == "trusted", what="carol to know")

        async with (
            street.open("bob", upstream=way_to(first)) as second,
            at_home(second) as bob,
        ):
            houses = (founder, bob, carol)

            def level() -> bool:
                return len({house.auth._membership.heads() for house in houses}) == 1

            await wait_for(lambda: is_linked(second), what="bob's link")
            await wait_for(level, what="all three to know the same")
            assert bob.auth._membership.roster.level(carol.node_id) == "trusted"
            assert bob.auth._membership.revocations.revoked(founder.node_id, token["token_id"])
            made = {event.event_id for event in carol.auth._membership.roster.events}
            assert invited["event_id"] in made
            await wait_for(lambda: bob.level(carol.node_id) == "trusted", what="bob's other process to know")
