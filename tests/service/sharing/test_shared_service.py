"""Over a real server: terms of sharing, put into force while a service runs."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.bus.session.usage_book import UsageBook, UsageCount, UsageKey
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.service.hosting.host import Host
from hearthnet.service.sharing.terms import Terms, changing_terms
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.community import roster
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.roster import Roster
from tests.attacks.attacker import Attacker
from tests.helpers import mesh as meshes
from tests.helpers.members import take_in
from tests.helpers.mesh import Mesh, start_mesh, write_roster
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


def set_terms(mesh: Mesh, terms: Terms | None) -> None:
    """What `hearthnet share probe` writes."""
    with changing_terms(mesh.home.sharing) as known:
        known.clear()
        if terms is not None:
            known["probe"] = terms


def closed_now() -> Terms:
    """Hours that are not now, and not in the next minute."""
    hour = (datetime.now().hour + 2) % 24
    return Terms(hours=(hour * 60, hour * 60 + 60))


async def _error(bus: Bus, **options: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await bus.call(QUERY, query(), **options)
    return caught.value


async def _seen(bus: Bus, node: str) -> bool:
    return any(view.node == node for view in await bus.offers(QUERY))


async def _in_force(host: Host, terms: Terms | None) -> None:
    await wait_for(lambda: host._terms._terms == (terms or Terms()), 5, "the terms to be in force")


@pytest.mark.req("SHARE-5")
@pytest.mark.parametrize("terms", [Terms(audience="nobody"), closed_now()], ids=["nobody", "hours"])
async def test_closed_service_is_hidden_from_others_at_once_and_offered_again(
    mesh: Mesh, terms: Terms
) -> None:
    service = ProbeService()
    async with (
        mesh.hosting(service) as host,
        await mesh.guest_bus() as guest,
        await mesh.bus() as own,
    ):
        node = host.peer.node_id
        view = await Attacker(guest).target(QUERY, node)
        assert (await guest.call(QUERY, query())).provider == node
        set_terms(mesh, terms)
        await _in_force(host, terms)

        async def is_hidden() -> bool:
            return not await _seen(guest, node)

        await wait_for(is_hidden, 5, "the offer to be withdrawn")
        assert (await _error(guest)).code == "not_found"
        code = await Attacker(guest).call(view, QUERY, query())
        assert code == ("unauthorized" if terms.audience == "nobody" else "rate_limited"), "who calls anyway"
        assert await _seen(own, node)
        assert (await own.call(QUERY, query())).provider == node, "this home is not under its terms"
        set_terms(mesh, None)

        async def is_there() -> bool:
            return await _seen(guest, node)

        await wait_for(is_there, 5, "the offer to be there again")
        assert (await guest.call(QUERY, query())).provider == node


@pytest.mark.req("SHARE-5")
async def test_refused_caller_reads_why_and_when_it_is_open_again(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        await guest.call(QUERY, query())
        terms = closed_now()
        host._terms._terms, host._terms._is_open = terms, True  # in force before others have heard of it
        error = await _error(guest)
        assert (error.code, error.rule) == ("rate_limited", "not_shared_now")
        assert error.retry_after_ms is not None
        assert terms.is_open(now_ms() + error.retry_after_ms + 1000)
        assert error.details["hours"] in error.message


@pytest.mark.req("SHARE-6", "ATTACK-130")
async def test_plain_member_is_refused_where_trusted_ones_are_served(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest, await mesh.bus() as own:
        view = await Attacker(guest).target(QUERY, host.peer.node_id)
        set_terms(mesh, Terms(audience="trusted"))
        await _in_force(host, Terms(audience="trusted"))
        assert await Attacker(guest).call(view, QUERY, query()) == "unauthorized"

        refused = host.refused
        await wait_for(lambda: _announced(guest), 5, "what the offer takes")
        error = await _error(guest)
        assert (error.code, error.rule, host.refused) == ("unauthorized", "not_shared_with", refused)
        assert (await own.call(QUERY, query())).output
        borrowed = mint(
            host.peer.identity,
            subject=guest.peer.node_id,
            audience=guest.peer.community,
            scope=Scope(capabilities=(QUERY,)),
            now_ms=now_ms(),
            ttl_seconds=600,
        )
        code = await Attacker(guest).call(view, QUERY, query(), token=borrowed)
        assert code == "unauthorized", "a token of a trusted member makes no other one trusted"


async def _announced(bus: Bus) -> bool:
    return [one.offer.trust for one in await bus.offers(QUERY)] == ["trusted"]


async def _chat(bus: Bus, node: str = "") -> str:
    async with bus.stream(CHAT, CHAT_BODY, node=node) as stream:
        assert [frame.event async for frame in stream][-1] == "done"
        return stream.provider


@pytest.mark.req("SHARE-6")
async def test_call_goes_to_another_home_where_terms_refuse_it(tmp_path: Path) -> None:
    """The home with terms answers sooner, so that it is called first, and last once it has refused."""
    mesh, there, other = await start_mesh(tmp_path, "carol"), ProbeService(), ProbeService()

    async def slowly(call: Call[Any, Any], stream: Stream | None = None) -> None:
        await asyncio.sleep(0.2)

    other.answer = other.talk = slowly
    async with (
        mesh.hosting(there) as host,
        mesh.hosting(other, mesh.guest) as second,
        await mesh.bus(at=mesh.others[0]) as carol,
    ):
        first, spare = host.peer.node_id, second.peer.node_id
        for node in (first, spare):
            await carol.call(QUERY, query(), node=node)
            await _chat(carol, node)
        assert ((await carol.call(QUERY, query())).provider, await _chat(carol)) == (first, first)
        host._terms._terms = Terms(per_day_seconds=1)
        host._terms._running = lambda home: 2.0
        assert [(await carol.call(QUERY, query())).provider for _ in range(3)] == [spare] * 3
        assert [await _chat(carol) for _ in range(3)] == [spare] * 3
        assert host.refused == 2, "one of each capability"
        assert (await _error(carol, node=first)).rule == "day_used_up"
    mesh.server.stop()


@pytest.mark.req("SHARE-7", "ATTACK-130")
async def test_day_that_is_used_up_ends_for_that_home_alone(mesh: Mesh) -> None:
    service = ProbeService()
    today = datetime.now().date().isoformat()

    async def work(call: Call[Any, Any]) -> None:
        await asyncio.sleep(0.05)

    service.answer = work
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest, await mesh.bus() as own:
        home = guest.peer.node_id
        UsageBook(mesh.home.usage).add(
            [(UsageKey(today, "served", home, "probe", QUERY), UsageCount(1, 59_990))]
        )
        set_terms(mesh, Terms(per_day_seconds=60))
        await wait_for(lambda: host._terms._booked.served_ms.get(home) == 59_990, 5, "what was used before")
        assert (await guest.call(QUERY, query())).output, "a little is left, and a call that has begun ends"
        error = await _error(guest)
        assert (error.code, error.rule) == ("rate_limited", "day_used_up")
        assert error.retry_after_ms is not None
        assert (
            datetime.fromtimestamp((now_ms() + error.retry_after_ms + 999) / 1000).date().isoformat() > today
        )
        async with await mesh.guest_bus("another process") as second:
            assert (await _error(second)).rule == "day_used_up"
        assert (await own.call(QUERY, query())).output
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as guest:
        assert (await _error(guest)).rule == "day_used_up", "also after a restart"


@pytest.mark.req("ATTACK-146")
async def test_those_whom_a_removed_member_let_in_are_counted_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carol was let in by the guest, a plain member who answered for her and is put out."""

    def by_guest(home: Home, place: Home, held: Roster) -> Roster:
        inviter = home if place.path.name == "guest" else Home(place.path.parent / "guest")
        name, newcomer = place.path.name, keyring.create_identity(place.device_key)
        return take_in(held, keyring.load_identity(inviter.device_key), newcomer, name)

    monkeypatch.setattr(meshes, "_take_in", by_guest)
    mesh = await start_mesh(tmp_path, "carol")
    service, carols = ProbeService(), mesh.others[0]
    guest, carol = (keyring.load_identity(home.device_key) for home in (mesh.guest, carols))

    async def work(call: Call[Any, Any]) -> None:
        await asyncio.sleep(0.05)

    service.answer = work
    held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
    out = CommunityAuthor(held, mesh.identity).revoke(guest.node_id, "other", client_id="c", now_ms=now_ms())
    held = roster.merge(held, [out])
    write_roster(held, mesh.home, carols)
    assert held.answerable(carol.node_id) == guest.node_id
    set_terms(mesh, Terms(per_day_seconds=1))
    async with mesh.hosting(service) as host, await mesh.bus(at=carols) as bus:
        for _ in range(15):
            await bus.call(QUERY, query())
        await asyncio.gather(*(bus.call(QUERY, query()) for _ in range(9)), return_exceptions=True)
        assert (await _error(bus)).rule == "day_used_up"
        await wait_for(lambda: dict(host.peer.usage.book.rows("")), 5, "the counts")
        await host.peer.usage.flush()
        [one] = dict(host.peer.usage.book.rows(""))
        assert one.home == guest.node_id
    mesh.server.stop()


@pytest.mark.req("SHARE-7", "ATTACK-146")
async def test_time_that_is_being_written_counts(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts leave the process for the book, which is read once a second."""
    add, began, goes_on = UsageBook.add, threading.Event(), threading.Event()

    def slowly(self: UsageBook, counts: Any) -> None:
        began.set()
        assert goes_on.wait(20)
        add(self, counts)

    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        set_terms(mesh, Terms(per_day_seconds=60))
        await _in_force(host, Terms(per_day_seconds=60))
        await guest.call(QUERY, query())
        await host.peer.usage.flush()
        monkeypatch.setattr(host._terms, "refresh", lambda now_ms: False)
        monkeypatch.setattr(UsageBook, "add", slowly)
        host.peer.usage.served(guest.peer.node_id, QUERY, 61.0, {})
        assert (await _error(guest)).rule == "day_used_up"
        await wait_for(began.is_set, 5, "the counts to be on their way")
        assert (await _error(guest)).rule == "day_used_up", "while it is written"
        goes_on.set()
        await wait_for(lambda: sum(_written(host).values()) >= 61_000, 5, "the counts in the book")
        assert (await _error(guest)).rule == "day_used_up", "before the book was read"
        monkeypatch.undo()
        await wait_for(lambda: host._terms._booked.served_ms, 5, "the book to be read")
        assert (await _error(guest)).rule == "day_used_up"
        today = datetime.now().date().isoformat()
        assert host.peer.usage.pending_ms(today, guest.peer.node_id) == 0
        assert sum(_written(host).values()) < 62_000, "counted once"


def _written(host: Host) -> dict[str, int]:
    return host.peer.usage.book.served_ms(datetime.now().date().isoformat(), "probe")


@pytest.mark.req("ATTACK-130")
async def test_damaged_terms_share_with_nobody(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        view = await Attacker(guest).target(QUERY, host.peer.node_id)
        mesh.home.sharing.write_text('{"services": {"probe": {"wiht": "trusted"}}}')
        await wait_for(lambda: not host._terms.is_offered, 5, "the file to be read")
        assert await Attacker(guest).call(view, QUERY, query()) == "unauthorized"
        set_terms_anew(mesh)
        await wait_for(lambda: host._terms.is_offered, 5, "the file to be read")


def set_terms_anew(mesh: Mesh) -> None:
    """What `hearthnet share --reset` writes."""
    with changing_terms(mesh.home.sharing, anew=True):
        pass
