"""What a node remembers of its community, and how its processes come to know it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import HEADS, LOG
from hearthnet.bus.session.membership import Membership
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.service.effects import direct_reads
from hearthnet.service.effects.community_log import STREAM, CommunityLog, CommunityState, StoredCommunity
from hearthnet.trust import signed_document
from hearthnet.trust.authorization import revocation
from hearthnet.trust.community import commands, events
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.history import History
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.probe import ProbeService
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


def invited(held: Roster, author: Identity) -> CommunityEvent:
    """One more event of `author`."""
    now = now_ms()
    return commands.CommunityAuthor(held, author).invite(
        Identity.generate(), display_name="x", expires_at=now + 60_000, now_ms=now
    )


@pytest.mark.req("COMMUNITY-6")
async def test_a_place_is_taken_once_and_said_to_be(mesh: Mesh) -> None:
    async with await mesh.store() as store, await mesh.bus() as bus:
        log, own = CommunityLog(store, mesh.home), bus.peer.identity
        first, second = (invited(bus.peer.roster, own) for _ in range(2))
        kept = await asyncio.gather(*(log.claim(one) for one in (first, second, first)))
        assert len({one.hash for one in kept}) == 1
        assert [one.hash for one in (await log.read()).events] == [kept[0].hash]


@pytest.mark.req("COMMUNITY-4")
async def test_all_that_others_wrote_is_kept_also_what_they_wrote_twice_in_one_place(mesh: Mesh) -> None:
    async with await mesh.store() as store, await mesh.bus() as bus:
        log = CommunityLog(store, mesh.home)
        forks = [invited(bus.peer.roster, bus.peer.identity) for _ in range(3)]
        for event in (*forks, *forks):
            await log.keep(event)
        kept = [one.hash for one in (await log.read()).events]
        assert sorted(kept) == sorted(one.hash for one in forks)


@pytest.mark.req("ATTACK-36", "COMMUNITY-6")
async def test_events_that_are_held_are_not_decoded_again(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the form of an earlier version lost, which was not the one that is hashed."""
    async with await mesh.store() as store, await mesh.bus() as bus:
        log, held = CommunityLog(store, mesh.home), bus.peer.roster
        first, second = invited(held, bus.peer.identity), invited(held, bus.peer.identity)
        await log.keep(first)
        await store.js.publish("cm.event.x.1", second.encode())
        decoded = list[bytes]()
        decode = events.decode

        def decoding(data: bytes) -> CommunityEvent:
            decoded.append(data)
            return decode(data)

        monkeypatch.setattr(events, "decode", decoding)
        remembered = await log.read(rosters.merge(held, [first, second]).history)
        assert [one.hash for one in remembered.events] == [second.hash]
        assert remembered.known == {first.hash}
        assert decoded == [second.encode()]
        assert [one.hash for one in (await log.read(held.history)).events] == [first.hash, second.hash]


@pytest.mark.req("COMMUNITY-3", "COMMUNITY-5")
async def test_a_revocation_dated_in_the_far_future_is_kept_like_any_other(mesh: Mesh) -> None:
    """Its author chooses the date. The server takes no such time to live, and what cannot be written would
    keep the revocations of all others from the disk.
    """
    async with await mesh.store() as store, await mesh.bus() as bus:
        log, own = CommunityLog(store, mesh.home), bus.peer.identity
        revoked = tuple(
            revocation.TokenRevocation.sign(own, ids.new_ulid(), own.node_id, "manual", now_ms=at)
            for at in (now_ms() + 10**10, 2**53 - 1 - revocation.RETENTION_MS)
        )
        for document in revoked:
            await log.keep_revocation(document)
        assert (await log.read()).revocations == revoked


@pytest.mark.req("COMMUNITY-3")
async def test_a_revocation_is_kept_until_its_token_is_over(mesh: Mesh) -> None:
    async with await mesh.store() as store, await mesh.bus() as bus:
        log, own = CommunityLog(store, mesh.home), bus.peer.identity
        current = revocation.TokenRevocation.sign(own, ids.new_ulid(), own.node_id, "manual", now_ms=now_ms())
        short = revocation.TokenRevocation.sign(own, ids.new_ulid(), own.node_id, "manual", now_ms=now_ms())
        ending = signed_document.sign(
            msgspec.structs.replace(short, forget_at=now_ms() + 500, signature=""), own, revocation.PURPOSE
        )
        over = msgspec.structs.replace(short, token_id=ids.new_ulid(), forget_at=now_ms() - 2_000)
        before = (await store.js.stream_info(STREAM)).state.last_seq
        for document in (current, ending, over):
            await log.keep_revocation(document)
        written = (await store.js.stream_info(STREAM)).state.last_seq - before
        assert written == 2, "what is over already is not kept at all"

        async def only_the_current_one() -> bool:
            return (await log.read()).revocations == (current,)

        await wait_for(only_the_current_one, 30, "the other to be forgotten")


@pytest.mark.req("COMMUNITY-3")
async def test_log_that_shrinks_while_it_is_read_is_read(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revocations are forgotten at any moment; to wait for one of them ended in `partition`."""
    async with await mesh.store() as store, await mesh.bus() as bus:
        log = CommunityLog(store, mesh.home)
        event = invited(bus.peer.roster, bus.peer.identity)
        await log.keep(event)
        lasting = (await store.js.stream_info(STREAM)).state.messages
        for number in range(30):
            await store.js.publish(f"cm.revoked.x.{number}", b"{}", headers={"Nats-TTL": "10s"})
        monkeypatch.setattr(direct_reads, "_BATCH", 10)
        messages = log._messages()
        first = await anext(messages)

        async def forgotten() -> bool:
            return (await store.js.stream_info(STREAM)).state.messages == lasting

        await wait_for(forgotten, 60, "the revocations to be forgotten")
        read = [message.subject async for message in messages]
        assert first.subject.startswith("cm.event.")
        assert 0 < len(read) < 30
        assert (await log.read()).events == (event,)


@pytest.mark.req("COMMUNITY-7")
async def test_what_is_damaged_in_it_is_passed_over(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    async with await mesh.store() as store, await mesh.bus() as bus:
        log = CommunityLog(store, mesh.home)
        await store.js.publish("cm.event.x.1", b"no event")
        await store.js.publish("cm.revoked.x.1", b"{}")
        event = invited(bus.peer.roster, bus.peer.identity)
        await log.keep(event)
        remembered = await log.read()
        assert (remembered.events, remembered.revocations) == ((event,), ())
    assert caplog.text.count("is damaged") == 2


@pytest.mark.req("COMMUNITY-6")
async def test_a_log_that_is_away_or_full_is_said_to_be(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await mesh.store() as store, await mesh.bus() as bus:
        log, event = CommunityLog(store, mesh.home), invited(bus.peer.roster, bus.peer.identity)
        monkeypatch.setattr(Home, "free_bytes", lambda self: 1)
        with pytest.raises(HearthNetError) as full:
            await log.claim(event)
        monkeypatch.undo()
        mesh.server.stop()
        monkeypatch.setattr("hearthnet.service.effects.community_log._APPEND_SECONDS", 0.5)
        with pytest.raises(HearthNetError) as away:
            await log.claim(event)
    assert full.value.code == "capacity_exceeded"
    assert away.value.code == "partition"


def hashes(known: Membership) -> set[str]:
    """What a process knows."""
    return {event.hash for event in known.roster.events}


@pytest.mark.req("COMMUNITY-7")
async def test_a_service_knows_the_log_before_it_answers(mesh: Mesh) -> None:
    """Its roster on the disk is older: the supervisor was killed before it wrote."""
    async with await mesh.store() as store, await mesh.bus() as bus:
        log, own = CommunityLog(store, mesh.home), bus.peer.identity
        event = invited(bus.peer.roster, own)
        await log.claim(event)
        document = revocation.TokenRevocation.sign(
            own, ids.new_ulid(), own.node_id, "manual", now_ms=now_ms()
        )
        await log.keep_revocation(document)
        async with mesh.hosting(ProbeService()) as host:
            assert event.hash in hashes(host.peer.membership)
            assert host.peer.membership.revocations.revoked(own.node_id, document.token_id)


@pytest.mark.req("COMMUNITY-7")
async def test_a_process_that_was_cut_off_knows_what_it_missed(mesh: Mesh) -> None:
    """While its connection was broken, another process wrote and told."""
    async with await mesh.store() as store, await mesh.bus() as bus:
        memory = CommunityState(_given(store), mesh.home, bus.peer)
        await memory.open()
        try:
            event = invited(bus.peer.roster, bus.peer.identity)
            mesh.restart_server()
            links = store.link.client, bus.peer.link
            await wait_for(lambda: all(link.is_connected for link in links), what="the server")
            await CommunityLog(store, mesh.home).claim(event)
            await bus.peer.link._notify_restored()
            await wait_for(lambda: event.hash in hashes(bus.peer.membership), what="it to be known")
        finally:
            await memory.close()


@pytest.mark.req("COMMUNITY-7")
async def test_a_process_that_knows_less_than_its_nodes_auth_service_looks_it_up(mesh: Mesh) -> None:
    """Should word of something be lost on the way, the next heads bring it out."""
    async with await mesh.store() as store, await mesh.bus() as bus, await mesh.bus() as auth:
        memory = CommunityState(_given(store), mesh.home, bus.peer)
        await memory.open()
        try:
            event = invited(bus.peer.roster, auth.peer.identity)
            await CommunityLog(store, mesh.home).claim(event)
            await auth.peer.membership.add([event])
            await gossip_frames.publish(
                auth.peer.sender, HEADS, msgspec.json.encode(auth.peer.membership.heads())
            )
            await wait_for(lambda: event.hash in hashes(bus.peer.membership), what="it to be known")
        finally:
            await memory.close()


@pytest.mark.req("COMMUNITY-7")
async def test_a_memory_that_cannot_be_read_is_read_later(mesh: Mesh) -> None:
    async with await mesh.store() as store, await mesh.bus() as bus:
        store_away, attempts = True, 0

        async def given() -> Any:
            nonlocal attempts
            attempts += 1
            if store_away:
                raise HearthNetError("partition", "away")
            return store

        memory = CommunityState(given, mesh.home, bus.peer)
        with pytest.raises(HearthNetError, match="away"):
            await memory.open()
        store_away = False
        await memory.open()
        try:
            store_away, attempts = True, 0
            event = invited(bus.peer.roster, bus.peer.identity)
            await CommunityLog(store, mesh.home).claim(event)
            await bus.peer.link._notify_restored()
            await wait_for(lambda: attempts, what="the first attempt, in vain")
            assert event.hash not in hashes(bus.peer.membership)
            store_away = False
            await wait_for(lambda: event.hash in hashes(bus.peer.membership), what="the second attempt")
        finally:
            await memory.close()


@pytest.mark.req("COMMUNITY-1", "COMMUNITY-7")
async def test_what_is_told_while_a_process_reads_the_log_is_not_lost(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens before it reads: of what is told before, during and after the reading none is missing."""
    async with await mesh.store() as store, await mesh.bus() as writer:
        log, read, before = CommunityLog(store, mesh.home), CommunityLog.read, hashes(writer.peer.membership)

        async def write() -> None:
            event = invited(writer.peer.roster, writer.peer.identity)
            await log.claim(event)
            await writer.peer.membership.add([event])
            for body in gossip_frames.batches([event], ()):
                await gossip_frames.publish(writer.peer.sender, LOG, body)
            await writer.peer.link.flush_subscriptions()

        async def read_between(self: CommunityLog, *held: History) -> StoredCommunity:
            await write()
            remembered = await read(self, *held)
            await write()
            return remembered

        await write()
        monkeypatch.setattr(CommunityLog, "read", read_between)
        async with mesh.hosting(ProbeService()) as host:
            await write()
            wanted = hashes(writer.peer.membership)
            assert len(wanted - before) == 4
            await wait_for(lambda: hashes(host.peer.membership) >= wanted, what="all of it")


def _given(store: Any) -> Any:
    async def given() -> Any:
        return store

    return given


@pytest.mark.req("COMMUNITY-6")
async def test_an_event_that_does_not_come_back_is_not_said_to_be_kept(mesh: Mesh) -> None:
    async with await mesh.store() as store, await mesh.bus() as bus:
        log = CommunityLog(store, mesh.home)

        async def nothing(subject: str) -> None:
            return None

        log._event = nothing  # type: ignore[method-assign]
        with pytest.raises(HearthNetError) as caught:
            await log.claim(invited(bus.peer.roster, bus.peer.identity))
    assert caught.value.code == "partition"
