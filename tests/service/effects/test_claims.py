"""Claims and outcomes reach the disk, or it is known that they have not."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from hearthnet.bus.store import CLAIMS
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import FULL_BYTES, ROOM_BYTES, Home
from hearthnet.service.effects import exactly_once
from hearthnet.service.effects.claims import ClaimStore, key
from hearthnet.service.effects.exactly_once import Effect, Effects
from hearthnet.service.effects.jetstream_records import DiskGuard
from tests.helpers.mesh import Mesh
from tests.helpers.tcp_proxy import tcp_proxy
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
SUBJECT = "$KV.claims."


@pytest.mark.req("EFFECT-2")
@pytest.mark.parametrize("written", [True, False])
async def test_a_lost_answer_is_settled_by_reading(mesh: Mesh, written: bool) -> None:
    """The connection to the server breaks behind the message, or before it."""
    async with tcp_proxy(mesh.server.url) as proxy, await mesh.store(url=proxy.url) as store:
        claims, name = ClaimStore(store, DiskGuard(None)), key("ef", "me", "1")
        proxy.lose(SUBJECT, 1, written=written)
        held = await claims.write(name, {"by": "one"}, 0, 30)
        assert proxy.lost == 1
        assert held is not None
        assert await claims.get(name, 30) == held
        assert await claims.write(name, {"by": "two"}, 0, 30) is None
        proxy.lose(SUBJECT, 1, written=False)
        changed = await claims.write(name, {"by": "three"}, held.revision, 30)
        assert changed is not None
        proxy.lose(SUBJECT, 99, written=False)
        with pytest.raises(HearthNetError) as caught:
            await claims.write(key("ef", "me", "2"), {"by": "four"}, 0, 0.3)
        assert caught.value.code == "partition"
        await store.link.connected()
        assert await claims.get(key("ef", "me", "2"), 30) is None


@pytest.mark.req("EFFECT-1")
async def test_a_claim_is_made_once_and_changed_only_by_who_read_it(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        claims, name = ClaimStore(store, DiskGuard(None)), key("ef", "me", "1")
        racers = await asyncio.gather(*(claims.write(name, {"by": number}, 0, 30) for number in range(20)))
        (first,) = [racer for racer in racers if racer is not None]
        assert await claims.get(name, 30) == first
        changed = await claims.write(name, {"by": "outcome"}, first.revision, 30)
        assert changed is not None
        assert await claims.write(name, {"by": "another"}, first.revision, 30) is None
        assert await claims.get(name, 30) == changed
        assert changed.record == {"by": "outcome"}
        assert (await store.js.stream_info(f"KV_{CLAIMS}")).state.messages == 1, "earlier records are kept"


@pytest.mark.req("EFFECT-7")
async def test_an_outcome_that_cannot_be_written_is_written_later(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(exactly_once, "_WRITE_SECONDS", 1.0)
    effect = Effect(state="done", capability="x@1.0", digest="", instance="aaaaaaaa", call="1", output=7)
    async with tcp_proxy(mesh.server.url) as proxy, await mesh.store(url=proxy.url) as store:
        claims, name = ClaimStore(store, DiskGuard(None)), key("ef", "me", "1")
        effects = Effects(claims, "aaaaaaaa", lambda instance: True)
        taken = await claims.write(name, {"state": "taken"}, 0, 30)
        assert taken is not None
        proxy.lose(SUBJECT, 99, written=False)
        assert not await effects._conclude(name, effect, taken)
        proxy.lose(SUBJECT, 0, written=False)
        await store.link.connected()

        async def there() -> bool:
            held = await claims.get(name, 30)
            return held is not None and held.record == msgspec.to_builtins(effect)

        await wait_for(there, what="the outcome")
        await effects.close()


@pytest.mark.req("EFFECT-2")
async def test_what_was_begun_may_use_the_last_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    room = DiskGuard(Home.default())
    monkeypatch.setattr(Home, "free_bytes", lambda home: FULL_BYTES // 2)
    await room.check(0.25)
    with pytest.raises(HearthNetError) as caught:
        await room.check()
    assert caught.value.code == "capacity_exceeded"
    room.unwritten()
    with pytest.raises(HearthNetError) as caught:
        await room.check(0.25)
    assert caught.value.details["needed_bytes"] == ROOM_BYTES
    monkeypatch.setattr(Home, "free_bytes", lambda home: 10**12)
    await room.check()
    monkeypatch.setattr(Home, "free_bytes", lambda home: 0)
    await asyncio.gather(*(room.check() for _ in range(3)))  # there was ample room a moment ago


async def test_a_disk_that_cannot_be_asked_is_not_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(home: Home) -> int:
        raise OSError

    monkeypatch.setattr(Home, "free_bytes", fail)
    await DiskGuard(Home.default()).check()
