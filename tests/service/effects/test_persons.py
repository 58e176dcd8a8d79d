"""Two devices of one person that go on with the same run have its effects once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.host import Host
from hearthnet.trust.keys import Identity
from tests.helpers.members import raise_to
from tests.helpers.mesh import GuestBus, Mesh, start_mesh, write_roster
from tests.helpers.probe import POST, ProbeService, post
from tests.helpers.residents import Resident
from tests.service.effect_worker import INGEST, EffectService
from tests.trust.people import PAGE, added, keyed, settled
from tests.trust.town import with_events

pytestmark = [pytest.mark.asyncio, pytest.mark.req("PERSON-61", "ATTACK-69")]
WANTED = {"params": {"corpus": "probe"}, "input": {"doc_cid": content_hash(b"x")}}


class Street(NamedTuple):
    """Providers at the founder, two nodes of a person, and somebody else's node."""

    mesh: Mesh
    host: Host
    events: ProbeService
    effects: EffectService
    first: Bus
    second: Bus
    other: Bus

    @property
    def done(self) -> int:
        """How often the claimed effect has happened."""
        file = self.effects.folder / "effects"
        return len(file.read_text().splitlines()) if file.exists() else 0


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Street]:
    """The first two nodes are one person's."""
    mesh = await start_mesh(tmp_path, "second", "other", stores=False)
    homes = (mesh.guest, *mesh.others)
    nodes = [keyring.load_identity(home.device_key) for home in homes]
    held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
    for node in nodes:
        held = raise_to(held, mesh.identity, node, "trusted")
    held = settled(held, *nodes[:2])
    held = with_events(held, added(held, nodes[0], PAGE))
    write_roster(held, mesh.home, *homes)
    events, effects = ProbeService(), EffectService()
    try:
        async with mesh.hosting(events), mesh.hosting(effects) as host:
            buses = [
                await GuestBus.at(mesh.identity.node_id, home, mesh.server.url, "device") for home in homes
            ]
            yield Street(mesh, host, events, effects, *buses)
            for bus in buses:
                await bus.close()
    finally:
        mesh.server.stop()


async def ingested(bus: Bus, key: str, **changes: Any) -> Any:
    return await bus.call(INGEST, {**WANTED, **changes}, idempotency_key=key)


async def posted(bus: Bus, key: str, **given: Any) -> Any:
    return await bus.call(POST, post(key, **given))


async def test_devices_of_one_person_share_a_key(street: Street) -> None:
    other: dict[Any, dict[str, Any]] = {
        ingested: {"params": {"corpus": "another"}},
        posted: {"title": "Another"},
    }
    for ask, what in ((ingested, "ingest_event_id"), (posted, "event_id")):
        key = ids.new_ulid()
        racing = [ask(bus, key) for bus in (street.first, street.second) * 3]
        replies = await asyncio.gather(*racing)
        assert len({{**reply.output, **reply.meta}[what] for reply in replies}) == 1
        assert sum(not reply.meta.get("repeated", False) for reply in replies) == 1
        # Another device means the same by it, or is refused.
        with pytest.raises(HearthNetError) as caught:
            await ask(street.second, key, **other[ask])
        assert caught.value.details["rule"] == "reused"
    assert street.done == 1


async def test_a_key_of_another_person_says_nothing(street: Street) -> None:
    key = ids.new_ulid()
    first = await ingested(street.first, key)
    mine = await posted(street.first, key)
    theirs = await ingested(street.other, key)
    assert not theirs.meta.get("repeated", False)
    assert theirs.meta["ingest_event_id"] != first.meta["ingest_event_id"]
    assert (await posted(street.other, key)).output["event_id"] != mine.output["event_id"]
    assert street.done == 2


async def test_what_was_claimed_before_it_was_known_whose_it_is(tmp_path: Path) -> None:
    mesh = await start_mesh(tmp_path, stores=False)
    home = mesh.guest
    node = keyring.load_identity(home.device_key)
    held = raise_to(
        keyring.load_roster(mesh.home.roster, mesh.identity.node_id), mesh.identity, node, "trusted"
    )
    write_roster(held, mesh.home, home)
    effects, events, key = EffectService(), ProbeService(), ids.new_ulid()
    try:
        async with (
            mesh.hosting(effects) as host,
            mesh.hosting(events) as log,
            await GuestBus.at(mesh.identity.node_id, home, mesh.server.url, "device") as bus,
        ):
            first, made = await ingested(bus, key), await posted(bus, key)
            first_key = keyed(held, node)
            statements = (first_key, added(with_events(held, first_key), node))
            for each in (host, log):
                await each.peer.membership.add(statements, ())
                assert each.peer.roster.owner(node.node_id) != node.node_id
            again = await ingested(bus, key)
            assert again.meta["repeated"]
            assert again.meta["ingest_event_id"] == first.meta["ingest_event_id"]
            assert (await posted(bus, key)).output == made.output
    finally:
        mesh.server.stop()


async def test_a_page_claims_for_its_person(street: Street) -> None:
    key = ids.new_ulid()
    made = await posted(street.first, key)
    # Without a key it is a client of that name, and with another key nobody's page.
    clients = ((PAGE, "page", True), (None, "owner", False), (Identity.generate(), "page", False))
    for page, name, is_same in clients:
        caller = Resident(street.second.peer.identity, street.second, name, page)
        caller.provider = street.mesh.identity.node_id
        output = await caller.call(POST, {}, **post(key)["input"])
        assert (output["event_id"] == made.output["event_id"]) is is_same
