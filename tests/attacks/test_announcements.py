"""Announcements on the local network by strangers: false ones, floods, nonsense, addresses elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from hearthnet.supervisor.nats import announcer, certificate, home_finder
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.announcer import SERVICE, label_key, make_label
from hearthnet.supervisor.nats.home_finder import MAX_LABELS, MAX_TRIES, find
from hearthnet.supervisor.nats.leaf_links import Upstream
from tests.helpers.announcements import (
    GROUP,
    OPEN,
    Impostor,
    announced,
    fingerprint_of,
    listener,
    on_networks,
    say,
    seeking,
    speaker,
)
from tests.helpers.processes import unused_port
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import House, Street
from tests.supervisor.test_links import link_is_there

pytestmark = pytest.mark.asyncio
POINTER, SERVER = 12, 33


@pytest_asyncio.fixture
async def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Street:
    """A community on a network that strangers are on, too: loopback."""
    on_networks(monkeypatch, "127.0.0.1/8")
    return Street.build(tmp_path, "bob")


@pytest_asyncio.fixture
async def hub(street: Street) -> AsyncIterator[House]:
    """A home that others reach."""
    async with street.open("founder", settings=OPEN) as house:
        yield house


def key_of(house: House) -> bytes:
    """The key of the house's labels, which a stranger does not have: a label stands for one overheard."""
    return label_key(house.prepared.roster.community_id, fingerprint_of(house))


def overheard(house: House) -> str:
    """A label that the house had once."""
    return make_label(key_of(house), os.urandom(8))


@pytest.mark.req("ATTACK-136")
async def test_false_announcement_gets_no_link_and_few_tries(
    street: Street, hub: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_finder, "SEARCH_SECONDS", 1.0)
    monkeypatch.setattr(home_finder, "_PAUSE_SECONDS", 0.1)
    impostor, stale = Impostor(), f"127.0.0.1:{unused_port()}"
    pem = await certificate.fetch(Address("127.0.0.1", hub.server.state.leaf_port), fingerprint_of(hub))
    async with impostor.at(tmp_path) as port, speaker() as stranger:
        await say(stranger, overheard(hub), port, *(f"127.0.0.{number}" for number in range(1, 5)))
        async with (
            street.open("bob", upstream=Upstream(stale, fingerprint_of(hub), pem)) as bob,
            seeking(bob),
        ):
            await wait_for(lambda: impostor.connections >= 2, what="searches that meet the impostor")
            assert bob.server.leaf.remote is not None
            assert list(map(str, bob.server.leaf.remote.addresses)) == [stale]
            assert not bob.home.found_addresses.exists()
            # And the home itself is found beside it.
            async with announced(hub):
                await wait_for(lambda: link_is_there(bob), 30, "the link to the home itself")
        # Nothing followed a handshake: no login, no token.
        assert impostor.received == b""


@pytest.mark.req("ATTACK-137")
async def test_flood_of_announcements_is_bounded(
    hub: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[home_finder._Search] = []

    class Watched(home_finder._Search):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            searches.append(self)

    monkeypatch.setattr(home_finder, "_Search", Watched)
    impostor, key = Impostor(), key_of(hub)
    async with impostor.at(tmp_path, "0.0.0.0") as port, speaker() as stranger:
        # As a member can, who knows the key of labels.
        for number in range(1, 2 * MAX_LABELS):
            made = make_label(key, os.urandom(8))
            await say(stranger, made, port, *(f"127.0.{number}.{last}" for last in range(1, 9)))
        searching = asyncio.create_task(find(hub.prepared.roster.community_id, [fingerprint_of(hub)], 120))
        with flood():
            await wait_for(lambda: impostor.connections and len(searches[0]._labels) == MAX_LABELS, 100)
            await asyncio.wait({searching}, timeout=3)
            # It has found nothing, and goes on.
            assert not searching.done()
            [search] = searches
            assert len(search._labels) == MAX_LABELS
            assert impostor.connections <= MAX_TRIES
            assert len(search._tried) <= MAX_TRIES
            searching.cancel()
            await asyncio.wait({searching})


@pytest.mark.req("ATTACK-137")
async def test_a_flood_does_not_prolong_a_search(hub: House) -> None:
    with flood():
        assert await find(hub.prepared.roster.community_id, [fingerprint_of(hub)], 1) is None


@contextlib.contextmanager
def flood() -> Iterator[None]:
    """Announce homes that nobody knows during the block: about 14,000 a second, none of them twice."""
    over = threading.Event()

    def send() -> None:
        with contextlib.closing(stranger_socket()) as stranger:
            while not over.wait(0.01):
                for _ in range(10):
                    names = [encoded(f"{os.urandom(24).hex()}.{SERVICE}") for _ in range(14)]
                    answers = [record(encoded(SERVICE), POINTER, name) for name in names]
                    stranger.sendto(packet_of(*answers), GROUP)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def encoded(name: str) -> bytes:
    """Return a name of DNS as it is sent."""
    labels = [part.encode() for part in name.strip(".").split(".")]
    return b"".join(bytes([len(part)]) + part for part in labels) + b"\0"


def record(name: bytes, kind: int, data: bytes) -> bytes:
    """Return one record of the class IN that counts for two minutes."""
    return name + struct.pack(">HHIH", kind, 1, 120, len(data)) + data


def packet_of(*answers: bytes) -> bytes:
    """Return an answer of multicast DNS."""
    return struct.pack(">HHHHHH", 0, 0x8400, 0, len(answers), 0, 0) + b"".join(answers)


def stranger_socket() -> socket.socket:
    """A socket for packets of any kind to all on the network."""
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    return found


@pytest.mark.req("ATTACK-138")
async def test_malformed_records_harm_nothing(hub: House) -> None:
    label, chance = overheard(hub), random.Random(138)
    name = encoded(f"{label}.{SERVICE}")
    packet = packet_of(
        record(encoded(SERVICE), POINTER, name), record(name, SERVER, struct.pack(">HHH", 0, 0, 0) + name)
    )
    loops = b"\x00\x00\x84\x00\x00\x00\x00\x01\x00\x00\x00\x00" + b"\xc0\x0c\x00\x0c\x00\x01" * 20
    bent = [
        bytes(one ^ (chance.random() < 0.05) * chance.randrange(256) for one in packet) for _ in range(300)
    ]
    cut = [packet[:end] for end in range(len(packet))]
    with contextlib.closing(stranger_socket()) as stranger:
        searching = asyncio.create_task(find(hub.prepared.roster.community_id, [fingerprint_of(hub)], 20))
        async with speaker() as other:
            for _ in range(3):
                for data in (packet, loops, *cut, *bent, os.urandom(9000)):
                    stranger.sendto(data, GROUP)
                await asyncio.sleep(0)
            # Names that are none, a port 0, and no address.
            await say(other, overheard(hub), 0, "127.0.0.1")
            await say(other, overheard(hub), 7422)
            await say(other, "ä" * 24, 7422, "127.0.0.1")
            async with announced(hub):
                found = await searching
    assert found is not None
    assert found.address.port == hub.server.state.leaf_port


@pytest.mark.req("ATTACK-139")
async def test_label_lasts_no_longer_than_its_salt(hub: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer, "SALT_SECONDS", 0.0)
    monkeypatch.setattr(announcer, "LOOK_SECONDS", 0.05)
    labels: set[str] = set()
    heard = b""
    with contextlib.closing(listener()) as network:
        async with announced(hub) as own:

            def seen() -> bool:
                zeroconf = own._zeroconf
                infos = zeroconf.zeroconf.registry.async_get_service_infos() if zeroconf else []
                labels.update(info.name.partition(".")[0] for info in infos)
                return len(labels) >= 3

            await wait_for(seen, what="three labels")
        with contextlib.suppress(BlockingIOError):
            while True:
                heard += network.recv(65536)
    parts = [{one[at : at + 16] for one in labels} for at in (0, 16, 32)]
    assert all(len(part) == len(labels) for part in parts)
    # They were on the network, and by its key alone one is known to be of the same home as another.
    assert all(one.encode() in heard for one in list(labels)[:3])
    assert all(announcer.is_label_of(one, key_of(hub)) for one in labels)


@pytest.mark.req("ATTACK-140")
async def test_address_elsewhere_is_never_tried(
    hub: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_networks(monkeypatch, "127.0.0.1/24")
    impostor, tried = Impostor(), []

    async def fetch(place: Address, fingerprint: str) -> str:
        tried.append(place.host)
        return await fetched(place, fingerprint)

    fetched = certificate.fetch
    monkeypatch.setattr(certificate, "fetch", fetch)
    async with impostor.at(tmp_path, "127.0.1.1") as port, speaker() as stranger:
        elsewhere = ("127.0.1.1", "192.0.2.99", "224.0.0.251", "255.255.255.255", "0.0.0.0")
        await say(stranger, overheard(hub), port, *elsewhere)
        await say(stranger, overheard(hub), port, "127.0.0.1")
        assert await find(hub.prepared.roster.community_id, [fingerprint_of(hub)], 2) is None
    assert tried == ["127.0.0.1"]
    assert impostor.connections == 0
