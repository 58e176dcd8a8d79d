"""Two members on one server: each with its own key, its own offers, and the other's."""

from __future__ import annotations

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("BUS-12")
async def test_a_member_calls_and_streams_from_another_node(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus(at=mesh.guest) as guest:
        reply = await guest.call(QUERY, query())
        async with guest.stream(CHAT, CHAT_BODY) as stream:
            events = [frame.event async for frame in stream]
        with pytest.raises(HearthNetError) as unasked:
            await guest.call(POST, post(ids.new_ulid()))
        posted = await guest.call(POST, post(ids.new_ulid()), node=mesh.identity.node_id)
    assert unasked.value.code == "not_found", "an effect is for another node only where the call names it"
    assert reply.provider == mesh.identity.node_id
    assert events == ["token", "token", "token", "done"]
    assert posted.output["lamport"] == 1
    assert {call.principal for call in service.calls} == {guest.peer.node_id}


@pytest.mark.req("BUS-12")
async def test_the_own_node_is_asked_first(mesh: Mesh) -> None:
    """Another node's process is known to be quick, and its own one was never asked."""
    near, far = ProbeService(), ProbeService()
    async with mesh.hosting(far), mesh.hosting(near, at=mesh.guest), await mesh.guest_bus() as guest:
        await offered(guest, QUERY, 2)
        for _ in range(3):
            await guest.call(QUERY, query(), node=mesh.identity.node_id)
        asked = {(await guest.call(QUERY, query())).provider for _ in range(6)}
    assert asked == {guest.peer.node_id}
    assert (len(near.calls), len(far.calls)) == (6, 3)


@pytest.mark.req("BUS-22")
async def test_a_node_can_be_chosen(mesh: Mesh) -> None:
    """The caller's own node offers it too, and would come first."""
    near, far = ProbeService(), ProbeService()
    async with mesh.hosting(far), mesh.hosting(near, at=mesh.guest), await mesh.guest_bus() as guest:
        chosen = await guest.call(QUERY, query(), node=mesh.identity.node_id)
        async with guest.stream(CHAT, CHAT_BODY, node=mesh.identity.node_id) as stream:
            provider = {stream.provider async for _ in stream}
        unchosen = await guest.call(QUERY, query())
    assert {chosen.provider} == provider == {mesh.identity.node_id}
    assert unchosen.provider == guest.peer.node_id


@pytest.mark.req("BUS-22")
async def test_a_chosen_node_that_does_not_offer_it_is_named(mesh: Mesh) -> None:
    stranger = Identity.generate().node_id
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match=ids.short_id(stranger)) as caught:
            await bus.call(QUERY, query(), node=stranger)
        assert caught.value.code == "not_found"
        with pytest.raises(HearthNetError, match="not a node id") as caught:
            await bus.call(QUERY, query(), node="kitchen")
        assert caught.value.code == "bad_request"


@pytest.mark.req("BUS-10")
async def test_what_is_for_the_own_node_is_neither_found_nor_given_to_others(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService(trust="self")) as host:
        async with await mesh.bus() as bus:
            (own,) = await offered(bus, QUERY)
            assert own.offer.trust == "self"
        async with await mesh.guest_bus() as guest:
            await offered(guest, CHAT)
            assert QUERY not in {str(view.capability) for view in await guest.offers()}
            assert await guest.offers(QUERY) == []
            guest._discovery.registry.update(
                host.peer.node_id, (own.offer,), withdrawn=False, heard_ms=own.offer.issued_at
            )
            with pytest.raises(HearthNetError) as caught:
                await guest.call(QUERY, query())
    assert caught.value.code == "unauthorized"


@pytest.mark.req("BUS-8")
async def test_announcements_reach_who_uses_the_capability(mesh: Mesh) -> None:
    async with await mesh.guest_bus() as guest:
        with pytest.raises(HearthNetError, match="nobody in the mesh offers"):
            await guest.call(QUERY, query())
        registry = guest._discovery.registry
        async with mesh.hosting(ProbeService()):
            await wait_for(lambda: registry.all_offers(0), what="the announcement")
            heard = {str(view.capability) for view in registry.all_offers(0)}
            assert heard == {QUERY}, "it follows what it used, and nothing else"
        await wait_for(lambda: not registry.all_offers(0), what="the withdrawal")


@pytest.mark.req("BUS-13")
async def test_level_counts(mesh: Mesh) -> None:
    """`trusted` is more than the guest is; the founder, an anchor, has it."""
    async with mesh.hosting(ProbeService(trust="trusted")):
        async with await mesh.bus() as bus:
            assert (await bus.call(QUERY, query())).output
        async with await mesh.guest_bus() as guest:
            with pytest.raises(HearthNetError) as caught:
                await guest.call(QUERY, query())
    assert caught.value.code == "unauthorized"
    assert "trusted" in caught.value.message


@pytest.mark.req("BUS-8")
async def test_what_is_known_is_not_asked_for_again(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as guest, await mesh.bus() as listener:
        asked: list[str] = []
        await listener.peer.link.subscribe("hn.find.>", lambda subject, data, absent: asked.append(subject))
        await listener.peer.link.flush_subscriptions()
        for _ in range(5):
            await guest.call(QUERY, query())
        await listener.peer.link.flush_subscriptions()
    assert len(asked) == 1
