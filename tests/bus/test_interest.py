"""A process hears of what it uses, counted by the server; and offers count only as their nodes made them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.capability_name import Capability
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import offer as offers
from hearthnet.protocol import subjects
from hearthnet.protocol.header import Header
from hearthnet.protocol.offer import LIFETIME_MS, Notice, OfferRecord
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.nats_server import NatsServer
from tests.helpers.offers import offered
from tests.helpers.probe import QUERY, ProbeService
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.asyncio
_OTHERS = 999


class _Sent(msgspec.Struct):
    out_msgs: int
    name: str = ""


class _Connections(msgspec.Struct):
    connections: list[_Sent]


class _Answer(msgspec.Struct):
    data: _Connections


async def _sent(system: Client) -> dict[str, int]:
    """How many messages the server has sent to each connection, by its name and its own count."""
    answer = await system.request("$SYS.REQ.SERVER.PING.CONNZ", b"{}", timeout=DEADLINE_SECONDS)
    found = msgspec.json.decode(answer.data, type=_Answer).data.connections
    return {connection.name: connection.out_msgs for connection in found}


@pytest.mark.req("BUS-65")
async def test_who_follows_one_capability_is_sent_nothing_of_999_others(
    nats_server: Callable[..., NatsServer],
) -> None:
    accounts = "accounts { HN { users: [{user: a, password: a}] }, SYS { users: [{user: s, password: s}] } }"
    url = nats_server(f"{accounts}\nsystem_account: SYS").url.removeprefix("nats://")
    node = Identity.generate().node_id
    heard: dict[str, list[str]] = {"one": [], "all": []}
    system = await nats.connect(f"nats://s:s@{url}")
    clients = {name: await nats.connect(f"nats://a:a@{url}", name=name) for name in ("one", "all", "speaker")}
    for name, subject in (("one", subjects.announcements_of(_capability(0))), ("all", "hn.adv.>")):

        async def note(message: Msg, kept: list[str] = heard[name]) -> None:
            kept.append(message.subject)

        await clients[name].subscribe(subject, cb=note)
        await clients[name].flush()
    before = await _sent(system)
    for number in range(_OTHERS + 1):
        await clients["speaker"].publish(subjects.announce(node, _capability(number)), b"")
    await clients["speaker"].flush()
    await wait_for(lambda: len(heard["all"]) == _OTHERS + 1, what="all announcements")
    after = await _sent(system)
    assert after["all"] - before["all"] == _OTHERS + 1
    assert after["one"] - before["one"] == 1
    assert heard["one"] == [subjects.announce(node, _capability(0))]
    for client in (system, *clients.values()):
        await client.close()


def _capability(number: int) -> Capability:
    return Capability(f"rag.query{number}" if number else "rag.query", 1, 0)


@pytest.mark.req("BUS-65")
async def test_a_bus_asks_the_server_for_what_it_uses_and_no_more(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as guest:
        assert _followed(guest) == []
        await guest.call(QUERY, {"params": {"corpus": "probe"}, "input": {"query": "water"}})
        assert _followed(guest) == ["hn.adv.*.rag.query.v1"]


def _followed(bus: Bus) -> list[str]:
    return [subject for subject in bus.peer.link._subjects if subject.startswith("hn.adv.")]


@pytest.mark.req("BUS-66")
async def test_offers_count_only_as_members_made_them(mesh: Mesh) -> None:
    """Said straight to the one who listens: the server would not even pass what names another's node."""
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        (true,) = await offered(guest, QUERY)
        async with guest.watch(QUERY):
            heard = guest._discovery.registry
            await wait_for(lambda: heard.all_offers(0), what="the true offer")
            known = len(heard)
            stranger, member = Identity.generate(), host.peer.identity
            community = guest.peer.community
            false = _announcement(stranger, stranger, community)
            forged = _announcement(stranger, member, community)
            foreign = _announcement(member, member, stranger.node_id)
            good = _announcement(member, member, community)
            changed = good.replace(b'"bench1"', b'"bench2"')
            subject = subjects.announce(member.node_id, true.capability)
            for data in (forged, foreign, changed, b"", b"HN1 p\n" + good.partition(b"\n")[2]):
                guest._discovery._on_announcement(subject, data, False)
            theirs = subjects.announce(stranger.node_id, true.capability)
            guest._discovery._on_announcement(theirs, false, False)
            assert len(heard) == known
            guest._discovery._on_announcement(subject, good, False)
            assert len(heard) == known + 1
            heard.drop_instance(member.node_id, "process1")
            guest._discovery._on_announcement(subject, good, False)
            assert len(heard) == known, "said once, it does not count twice"


def _announcement(signer: Identity, named: Identity, community: str) -> bytes:
    """A frame of `signer` that says to be from `named`."""
    record = OfferRecord(
        capability=QUERY,
        instance="process1",
        schema_hash="blake3:" + "0" * 64,
        params={"corpus": "bench1"},
        max_concurrent=1,
        in_flight=0,
        issued_at=now_ms(),
        expires_at=now_ms() + LIFETIME_MS // 2,
    )
    header = Header(
        kind="offer",
        id=ids.new_ulid(),
        sender=named.node_id,
        from_instance="process1",
        community=community,
        time=now_ms(),
        capability="rag.query.v1",
    )
    return frames.signed(header, offers.encode(Notice((record,))), signer)
