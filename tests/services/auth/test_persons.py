"""The person of a home's owner, as the community comes to know of it, once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.cli.commands.recover import keep
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.service import EventChain
from hearthnet.service.community.queued_statements import queue_statements
from hearthnet.supervisor.nats.home_setup import Prepared, make_person
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from hearthnet_auth import persons
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import House, living

RECOVER = "community.person.recover@1.0"
REMOVE = "community.device.remove@1.0"
pytestmark = pytest.mark.asyncio


def with_keys(mesh: Mesh, home: Home | None = None) -> list[str]:
    """Makes the keys that the first start makes in a home of before; returns what it reports."""
    at, lines = home or mesh.home, list[str]()
    identity, roster = keyring.load_identity(at.device_key), keyring.load_roster(at.roster)
    make_person(Prepared(at, identity, roster, None), lines.append)  # type: ignore[arg-type]
    return lines


def written(roster: Roster) -> list[str]:
    """The kinds of the events about persons."""
    return [one.event_type for one in roster.events if isinstance(one.content, statements.Statement)]


def held(house: House) -> Roster:
    """What the service knows, also from what it wrote before others joined the bus."""
    return house.auth._membership.roster


@pytest.mark.req("PERSON-8")
async def test_old_home_gets_a_person_once(mesh: Mesh) -> None:
    own = mesh.identity.node_id
    async with living(mesh, mesh.home) as house:
        assert written(held(house)) == []
    assert len(with_keys(mesh)) == 1
    person = keyring.load_identity(mesh.home.recovery_key).node_id
    for _ in range(3):
        async with living(mesh, mesh.home) as house:
            await wait_for(lambda: held(house).owner(own) == person)
            assert written(held(house)) == [statements.KEYED, statements.DEVICE_ADDED]
            member = held(house).member(own)
            assert member is not None
            assert [one.name for one in held(house).devices(person)] == [member.display_name]
    assert with_keys(mesh) == []


@pytest.mark.req("PERSON-8")
async def test_start_cut_off_in_between_is_completed(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after the first key, then after the first event."""
    own = mesh.identity.node_id
    recovery = keyring.create_identity(mesh.home.recovery_key)
    with_keys(mesh)
    assert keyring.load_identity(mesh.home.recovery_key).node_id == recovery.node_id
    key = mesh.home.person_key.read_bytes()

    def cut_off(*_: object) -> None:
        raise HearthNetError("partition", "cut off")

    with monkeypatch.context() as once:
        once.setattr("hearthnet_auth.persons._added", cut_off)
        async with living(mesh, mesh.home) as house:
            await wait_for(lambda: written(held(house)) == [statements.KEYED])
    with_keys(mesh)
    assert mesh.home.person_key.read_bytes() == key
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: held(house).owner(own) == recovery.node_id)
        assert written(held(house)) == [statements.KEYED, statements.DEVICE_ADDED]


@pytest.mark.req("PERSON-8")
async def test_member_of_others_is_known_to_them(mesh: Mesh) -> None:
    with_keys(mesh)
    with_keys(mesh, mesh.guest)
    guest = keyring.load_identity(mesh.guest.device_key).node_id
    person = keyring.load_identity(mesh.guest.recovery_key).node_id
    async with living(mesh, mesh.home) as house, living(mesh, mesh.guest):
        await wait_for(lambda: held(house).owner(guest) == person)
        assert held(house).owner(mesh.identity.node_id) != person


@pytest.mark.req("PERSON-8")
async def test_known_person_is_not_made_again(mesh: Mesh) -> None:
    """Both keys were moved away, after the community knew of the person."""
    with_keys(mesh)
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: bool(held(house).persons))
        known = held(house)
    keys = (mesh.home.recovery_key, mesh.home.person_key)
    for path in keys:
        path.unlink()
    prepared = Prepared(mesh.home, mesh.identity, known, None)  # type: ignore[arg-type]
    await asyncio.to_thread(make_person, prepared, pytest.fail)
    assert not any(path.exists() for path in keys)


@pytest.mark.req("PERSON-8")
async def test_person_key_alone_begins_nobody(mesh: Mesh) -> None:
    """The recovery key was moved away before the community knew of the person."""
    with_keys(mesh)
    mesh.home.recovery_key.unlink()
    async with living(mesh, mesh.home) as house:
        assert written(held(house)) == []
        assert held(house).persons == ()


@pytest.mark.req("PERSON-32")
async def test_recovery_is_completed_by_the_next_start(mesh: Mesh) -> None:
    """It was cut off after the first statement was in the log; nothing is written twice."""
    own, new = mesh.identity.node_id, Identity.generate()
    with_keys(mesh)
    recovery = keyring.load_identity(mesh.home.recovery_key)
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: held(house).owner(own) == recovery.node_id)
        signed = CommunityAuthor(held(house), recovery).recovered(new, ())
        keep(mesh.home, new, signed)
        waiting = mesh.home.recovery_statements.read_bytes()
        assert (await house.do(RECOVER))["event_id"]
        assert not mesh.home.recovery_statements.exists()
    mesh.home.recovery_statements.write_bytes(waiting)
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: not mesh.home.recovery_statements.exists())
        person = held(house).person(recovery.node_id)
        assert person is not None
        assert (person.epoch, person.key) == (2, new.node_id)
        assert held(house).is_device(own, recovery.node_id)
        assert written(held(house)) == [statements.KEYED, statements.DEVICE_ADDED, statements.KEYED]
        with pytest.raises(HearthNetError) as refused:
            await house.do(RECOVER)
        assert refused.value.code == "not_found"


@pytest.mark.req("PERSON-32")
async def test_statements_of_several_commands_all_reach_the_log(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands add to the queue at once, and one while the service writes what was there to the log."""
    with_keys(mesh)
    async with living(mesh, mesh.home) as house:
        community, append, late = held(house).community_id, EventChain.append, list[Identity]()

        def begun(paper: Identity) -> None:
            queue_statements(mesh.home, (statements.keyed(community, paper, 1, Identity.generate().node_id),))

        async def in_between(*arguments: Any) -> Any:
            if not late:
                late.append(Identity.generate())
                begun(late[0])
            return await append(*arguments)

        papers = [Identity.generate() for _ in range(16)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(begun, papers))
        monkeypatch.setattr(EventChain, "append", in_between)
        await house.do(RECOVER)
        known = {one.person for one in held(house).persons}
        assert {one.node_id for one in papers} <= known
        assert late[0].node_id not in known
        await house.do(RECOVER)
        assert held(house).person(late[0].node_id) is not None
        assert not mesh.home.recovery_statements.exists()


@pytest.mark.req("PERSON-8", "PERSON-5")
async def test_replaced_person_key_begins_no_further_epoch(
    mesh: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    """The person was recovered elsewhere before this node was its device."""
    guest, new = keyring.load_identity(mesh.guest.device_key), Identity.generate()
    async with living(mesh, mesh.home) as house:
        with_keys(mesh)
        paths = (mesh.home.recovery_key, mesh.home.person_key)
        recovery, old = (keyring.load_identity(path) for path in paths)
        for key in (old, new):
            event = CommunityAuthor(held(house), guest).key_person(recovery, key, now_ms())
            await house.auth._membership.add((event,))
        await persons.introduce(house.auth._chain, mesh.home, mesh.identity)
        person = held(house).person(recovery.node_id)
        assert person is not None
        assert (person.epoch, person.key) == (2, new.node_id)
        assert "was replaced" in caplog.text


@pytest.mark.req("PERSON-32")
async def test_damaged_file_of_statements_stops_no_service(mesh: Mesh) -> None:
    mesh.home.recovery_statements.write_text("{")
    async with living(mesh, mesh.home) as house:
        with pytest.raises(HearthNetError, match="is damaged") as refused:
            await house.do(RECOVER)
        assert refused.value.code == "bad_request"
    assert mesh.home.recovery_statements.read_text() == "{"


@pytest.mark.req("PERSON-32")
async def test_removals_are_carried_after_a_refused_key(mesh: Mesh) -> None:
    """Another node has recovered the person at the same time, with a key that sorts first."""
    own = mesh.identity.node_id
    guest = keyring.load_identity(mesh.guest.device_key)
    with_keys(mesh)
    recovery = keyring.load_identity(mesh.home.recovery_key)
    first, second = sorted((Identity.generate(), Identity.generate()), key=lambda one: one.node_id)
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: held(house).owner(own) == recovery.node_id)
        key = keyring.load_identity(mesh.home.person_key)
        membership, author = house.auth._membership, CommunityAuthor(held(house), guest)
        await membership.add((author.add_node(recovery.node_id, key, "Laptop", now_ms()),))
        keep(mesh.home, second, CommunityAuthor(held(house), recovery).recovered(second, (guest.node_id,)))
        elsewhere = CommunityAuthor(held(house), mesh.identity)
        await membership.add((elsewhere.key_person(recovery, first, now_ms(), (own,)),))
        with pytest.raises(HearthNetError) as refused:
            await house.do(RECOVER)
        assert refused.value.code == "unauthorized"
        assert not mesh.home.recovery_statements.exists()
        assert held(house).is_revoked(guest.node_id)
        assert held(house).owner(guest.node_id) == recovery.node_id


@pytest.mark.req("PERSON-32")
async def test_statements_that_cannot_be_written_wait_and_refused_ones_do_not(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_keys(mesh)
    recovery, other = keyring.load_identity(mesh.home.recovery_key), Identity.generate()
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: held(house).owner(mesh.identity.node_id) == recovery.node_id)
        (keyed,) = CommunityAuthor(held(house), recovery).recovered(other, ())
        keep(mesh.home, other, (msgspec.structs.replace(keyed, signature=ids.b64(bytes(64))),))

        async def cut_off(*_: object) -> None:
            raise HearthNetError("partition", "cut off")

        with monkeypatch.context() as once:
            once.setattr("hearthnet.service.EventChain.append", cut_off)
            with pytest.raises(HearthNetError, match="cut off"):
                await house.do(RECOVER)
        assert mesh.home.recovery_statements.exists()
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: not mesh.home.recovery_statements.exists())
        await wait_for(lambda: "the recovery is not in the log" in caplog.text)
        person = held(house).person(recovery.node_id)
        assert person is not None
        assert person.epoch == 1


@pytest.mark.req("PERSON-10")
async def test_removal_asked_for_again_is_the_same_and_takes_the_persons_key(mesh: Mesh) -> None:
    with_keys(mesh)
    recovery = keyring.load_identity(mesh.home.recovery_key)
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: held(house).owner(mesh.identity.node_id) == recovery.node_id)
        guest, key = (keyring.load_identity(path) for path in (mesh.guest.device_key, mesh.home.person_key))
        author = CommunityAuthor(held(house), guest)
        await house.auth._membership.add((author.add_node(recovery.node_id, key, "Laptop", now_ms()),))
        first = await house.do(REMOVE, device=guest.node_id, reason="lost")
        assert (await house.do(REMOVE, device=guest.node_id, reason="lost"))["event_id"] == first["event_id"]
        # Brought back with the words, and lost again: that is another removal.
        new = Identity.generate()
        back = CommunityAuthor(held(house), recovery).recovered(new, (), (guest.node_id,))
        keep(mesh.home, new, back)
        await house.do(RECOVER)
        assert held(house).is_device(guest.node_id, recovery.node_id)
        again = await house.do(REMOVE, device=guest.node_id, reason="lost")
        assert again["event_id"] != first["event_id"]
        assert held(house).is_revoked(guest.node_id)
        mesh.home.person_key.write_text(Identity.generate().to_text())
        with pytest.raises(HearthNetError) as refused:
            await house.do(REMOVE, device=mesh.identity.node_id, reason="")
        assert refused.value.code == "not_found"


@pytest.mark.req("PERSON-8")
async def test_a_key_adds_a_node_once_and_none_when_replaced(mesh: Mesh) -> None:
    with_keys(mesh)
    recovery, old = (keyring.load_identity(path) for path in (mesh.home.recovery_key, mesh.home.person_key))
    guest, new = keyring.load_identity(mesh.guest.device_key), Identity.generate()
    async with living(mesh, mesh.home) as house:
        await wait_for(lambda: held(house).owner(mesh.identity.node_id) == recovery.node_id)
        added = persons._added(held(house), mesh.identity, old)
        assert added.hash in {one.hash for one in held(house).events}
        keep(mesh.home, new, CommunityAuthor(held(house), recovery).recovered(new, ()))
        await house.do(RECOVER)
        assert persons._added(held(house), guest, new).author == guest.node_id
        with pytest.raises(HearthNetError, match="was replaced") as refused:
            persons._added(held(house), guest, old)
        assert refused.value.code == "unauthorized"
