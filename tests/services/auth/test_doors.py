"""Doors: opened and closed once, and tried from another home before (docs/decisions/0223)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hearthnet.cli.commands import door as door_command
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats import certificate
from hearthnet.trust.keys import Identity
from hearthnet_auth import doors
from hearthnet_auth.schemas import DoorInput
from tests.helpers.mesh import Mesh
from tests.helpers.processes import unused_port
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import House, living
from tests.supervisor.doors import certificate_of

pytestmark = pytest.mark.asyncio
OPEN, CLOSE, CHECK = "community.door.open@1.0", "community.door.close@1.0", "community.door.check@1.0"
PLACES = {"address": "kitchen:7422", "route": "kitchen:7423", "key": Identity(bytes([7]) * 32).node_id}


async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What a hub without TLS says first."""
    writer.write(b"INFO {}\r\n")
    writer.close()
    await writer.wait_closed()


def open_at(house: House) -> list[tuple[str, str]]:
    """The open doors, as the node's second process knows them."""
    return [(one.node_id, one.address) for one in house.bus.peer.roster.doors]


@pytest.mark.req("DOOR-8", "COMMUNITY-8", "ATTACK-124")
async def test_a_door_is_opened_and_closed_once(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        key = ids.new_ulid()
        first = await founder.do(OPEN, client_id=key, **PLACES)
        assert await founder.do(OPEN, client_id=key, **PLACES) == first
        await wait_for(
            lambda: open_at(guest) == [(founder.node_id, "kitchen:7422")], what="the guest to know"
        )
        moved = await founder.do(OPEN, **(PLACES | {"address": "attic:7422"}))
        assert moved["event_id"] != first["event_id"]
        back = await founder.do(OPEN, **PLACES)
        assert back["event_id"] not in (first["event_id"], moved["event_id"])
        with pytest.raises(HearthNetError) as plain:
            await guest.do(OPEN, **PLACES)
        with pytest.raises(HearthNetError) as others:
            await guest.do(CLOSE, node_id=founder.node_id)
        assert (plain.value.code, others.value.code) == ("unauthorized", "unauthorized")
        closed = await founder.do(CLOSE, client_id=key, node_id=founder.node_id)
        assert await founder.do(CLOSE, client_id=key, node_id=founder.node_id) == closed
        await wait_for(lambda: open_at(guest) == [], what="the guest to know")


@pytest.mark.req("DOOR-8")
async def test_what_another_home_finds_at_a_door_is_its_key(tmp_path: Path) -> None:
    files, others = certificate_of(tmp_path / "own"), certificate_of(tmp_path / "other")
    key, other = certificate.key_id(files.key), certificate.key_id(others.key)
    hub = await asyncio.start_server(greet, "127.0.0.1", 0)
    plain = f"127.0.0.1:{hub.sockets[0].getsockname()[1]}"
    nobody = f"127.0.0.1:{unused_port()}"
    async with hub, door_command._route_listener("127.0.0.1", files, (0,)) as port:
        route = f"127.0.0.1:{port}"
        for door, reason in (
            (DoorInput(plain, route, key), ""),
            (DoorInput(route, route, key), "no answer from"),  # without TLS it says nothing
            (DoorInput(plain, route, other), f"another server answers at {route}"),
            (DoorInput(plain, nobody, key), f"{nobody} refuses connections"),
            (DoorInput(nobody, route, key), f"{nobody} refuses connections"),
            (DoorInput(plain, "no-such-home.invalid:7423", key), "is no address that is known here"),
            (DoorInput(plain, plain, key), f"{plain} refuses connections"),
        ):
            found = await doors.why_unreached(door)
            assert reason in found, door
            assert bool(reason) == bool(found), door


@pytest.mark.req("DOOR-8")
async def test_a_door_that_no_home_reaches_is_not_opened(mesh: Mesh, tmp_path: Path) -> None:
    files = certificate_of(tmp_path / "own")
    fields = {
        "address": f"127.0.0.1:{unused_port()}",
        "route": f"127.0.0.1:{unused_port()}",
        "key": certificate.key_id(files.key),
    }
    async with living(mesh, mesh.home) as founder:
        assert await door_command._reached(founder.bus, fields, untested=False) is None, "nobody tried"
        async with living(mesh, mesh.guest) as guest:
            with pytest.raises(HearthNetError) as unreached:
                await door_command._reached(founder.bus, fields, untested=False)
            assert unreached.value.code == "partition"
            assert f"{fields['address']} refuses connections" in unreached.value.message
            assert await door_command._reached(founder.bus, fields, untested=True) is None
            hub = await asyncio.start_server(greet, "127.0.0.1", 0)
            fields["address"] = f"127.0.0.1:{hub.sockets[0].getsockname()[1]}"
            async with hub, door_command._route_listener("127.0.0.1", files, (0,)) as port:
                fields["route"] = f"127.0.0.1:{port}"
                assert await door_command._reached(founder.bus, fields, untested=False) == guest.node_id
            request = {"params": {}, "input": fields}
            with pytest.raises(HearthNetError) as plain:
                await guest.bus.call(CHECK, request, node=founder.node_id)
            assert plain.value.code == "unauthorized"
