"""Homes that announce themselves on a network, and homes that look for them there."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.supervisor.nats import address, certificate
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.announcer import Listening, is_label_of, label_key, make_label
from hearthnet.supervisor.nats.found_addresses import MAX_ADDRESSES, FoundAddresses
from hearthnet.supervisor.nats.home_finder import find
from hearthnet.supervisor.nats.leaf_links import Upstream
from tests.helpers.announcements import (
    OPEN,
    announced,
    fingerprint_of,
    listener,
    on_networks,
    seeking,
)
from tests.helpers.processes import unused_port
from tests.helpers.waiting import wait_for
from tests.supervisor import doors as door_plans
from tests.supervisor.conftest import Node
from tests.supervisor.doors import all_meet, opened, street_with_doors
from tests.supervisor.houses import Callers, House, Street
from tests.supervisor.test_links import link_is_there


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have loopback be the network of this computer."""
    on_networks(monkeypatch, "127.0.0.1/8")


@pytest_asyncio.fixture
async def founder(loopback: None, tmp_path: Path) -> AsyncIterator[tuple[Street, House]]:
    """A home that others reach, and its street with one more member."""
    street = Street.build(tmp_path, "bob")
    async with street.open("founder", settings=OPEN) as house:
        yield street, house


async def way_to_nobody(house: House) -> Upstream:
    """What a home keeps of `house` that knew it at an address at which nobody is now."""
    place = address.parse(house.server.state.address)
    pem = await certificate.fetch(place, fingerprint_of(house))
    return Upstream(f"127.0.0.1:{unused_port()}", fingerprint_of(house), pem)


@pytest.mark.req("FIND-2")
@given(salts=st.lists(st.binary(min_size=8, max_size=8), min_size=2, max_size=2, unique=True))
def test_label_of_a_home_is_known_by_its_key_alone(salts: list[bytes]) -> None:
    key, other = label_key("ed25519:a", "f" * 64), label_key("ed25519:b", "f" * 64)
    first, second = (make_label(key, salt) for salt in salts)
    assert is_label_of(first, key)
    assert is_label_of(second, key)
    assert not is_label_of(first, other)
    assert not is_label_of(first, label_key("ed25519:a", "e" * 64))
    assert first[:16] != second[:16]
    assert first[16:] != second[16:]


@pytest.mark.req("FIND-2")
@given(label=st.one_of(st.text(), st.text(alphabet="0123456789abcdefé", min_size=48, max_size=48)))
def test_label_that_is_none_is_nobodys(label: str) -> None:
    assert not is_label_of(label, label_key("ed25519:a", "f" * 64))


@pytest.mark.req("FIND-1")
@pytest.mark.asyncio
async def test_announced_home_is_found_by_its_own_community(founder: tuple[Street, House]) -> None:
    _, house = founder
    community, fingerprint = house.prepared.roster.community_id, fingerprint_of(house)
    async with announced(house):
        found = await find(community, ["0" * 64, fingerprint])
        assert found is not None
        assert found.address == Address("127.0.0.1", house.server.state.leaf_port)
        assert found.fingerprint == fingerprint
        assert await find("ed25519:other", [fingerprint], 1) is None
    assert await find(community, [fingerprint], 1) is None
    assert await find(community, [""], 60) is None


@pytest.mark.req("FIND-2")
@pytest.mark.asyncio
async def test_announcement_names_nobody(founder: tuple[Street, House]) -> None:
    _, house = founder
    heard = b""
    with contextlib.closing(listener()) as network:
        async with announced(house):
            await find(house.prepared.roster.community_id, [fingerprint_of(house)])
        with contextlib.suppress(BlockingIOError):
            while True:
                heard += network.recv(65536)
    assert b"_hearthnet" in heard
    roster, identity = house.prepared.roster, house.identity
    names = [roster.name, house.prepared.config.display_name, socket.gethostname()]
    for text in (*names, identity.node_id[8:], roster.community_id[8:], fingerprint_of(house)):
        assert text.encode() not in heard
    assert bytes.fromhex(fingerprint_of(house)) not in heard


@pytest.mark.req("FIND-3")
@pytest.mark.asyncio
async def test_leaf_finds_its_hub_at_another_address(founder: tuple[Street, House]) -> None:
    street, hub = founder
    stale = await way_to_nobody(hub)
    found = f"127.0.0.1:{hub.server.state.leaf_port}"
    async with announced(hub), street.open("bob", upstream=stale) as bob, seeking(bob):
        await wait_for(lambda: link_is_there(bob), what="the link at the other address")
        assert any(f"found on this network at {found}" in line for line in bob.news)
        # Invites that are made there name it.
        assert bob.server.state.address == found
    async with street.open("bob") as bob:
        await wait_for(lambda: link_is_there(bob), what="the link at the address that was remembered")
        assert bob.server.leaf.remote is not None
        assert list(map(str, bob.server.leaf.remote.addresses)) == [found, stale.address]


@pytest.mark.req("FIND-3")
@pytest.mark.asyncio
async def test_leaf_finds_a_door_at_another_address(
    loopback: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_plans, "reachable_host", lambda host: "192.0.2.77")
    street, plan = street_with_doors(tmp_path, "bob", doors=("founder",), host="0.0.0.0")
    settings = plan.settings("founder")
    port = plan.ports["founder"][0]
    async with street.open("founder", settings=settings) as hub, street.open("bob") as bob:
        await wait_for(lambda: hub.door.state == "open", what="the door")
        async with announced(hub), seeking(bob):
            await wait_for(lambda: link_is_there(bob), what="the link to the door")
        assert bob.server.leaf.remote is not None
        assert list(map(str, bob.server.leaf.remote.addresses)) == [f"127.0.0.1:{port}", f"192.0.2.77:{port}"]
        assert hub.server.leaf.fingerprints == ()


@pytest.mark.req("FIND-8")
@pytest.mark.asyncio
async def test_doors_that_both_moved_find_each_other(
    loopback: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callers: Callers
) -> None:
    monkeypatch.setattr(door_plans, "reachable_host", lambda host: "192.0.2.77")
    async with opened(tmp_path, callers, "founder", "bob", host="0.0.0.0") as village:
        async with contextlib.AsyncExitStack() as stack:
            for name in ("founder", "bob"):
                door = village.houses[name].door
                await wait_for(lambda door=door: door.state == "open", what="the door")  # type: ignore[misc]
                await stack.enter_async_context(announced(village.houses[name]))
            for house in village.houses.values():
                await stack.enter_async_context(seeking(house))
            visitors = await village.visitors()
            await all_meet(village, visitors)
        for name in ("founder", "bob"):
            system = village.houses[name].door.guarded.system
            assert system is not None
            assert await system.routes() == 1


@pytest.mark.req("FIND-5")
@pytest.mark.asyncio
async def test_certificate_follows_the_addresses_and_links_stay(
    founder: tuple[Street, House], monkeypatch: pytest.MonkeyPatch
) -> None:
    street, hub = founder
    place = Address("127.0.0.1", hub.server.state.leaf_port)
    pem = await certificate.fetch(place, fingerprint_of(hub))
    async with street.open("bob", upstream=Upstream(str(place), fingerprint_of(hub), pem)) as bob:
        await wait_for(lambda: link_is_there(bob), what="the link")
        async with announced(hub):
            on_networks(monkeypatch, "127.0.0.1/8", "127.0.0.77/8")

            async def is_named() -> bool:
                found = x509.load_pem_x509_certificate(
                    (await certificate.fetch(place, fingerprint_of(hub))).encode()
                )
                names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
                return "127.0.0.77" in map(str, names.get_values_for_type(x509.IPAddress))

            await wait_for(is_named, what="a certificate with the new address")
        assert await link_is_there(bob)
        assert "Leafnode connection closed: Client Closed" not in bob.log
        assert len(list(hub.home.nats.glob("leaf-*.pem"))) == 1


@pytest.mark.req("FIND-6")
@pytest.mark.asyncio
async def test_home_that_announces_nothing_follows_its_addresses(
    founder: tuple[Street, House], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, house = founder
    async with announced(house, is_on=False) as own:
        before = house.server.leaf.certificate()[0]
        await wait_for(lambda: own._networks is not None)
        on_networks(monkeypatch, "127.0.0.1/8", "127.0.0.77/8")
        await wait_for(lambda: house.server.leaf.certificate()[0] != before)
        assert await find(house.prepared.roster.community_id, [fingerprint_of(house)], 1) is None
        assert not own.is_announced


@pytest.mark.req("FIND-1")
@pytest.mark.asyncio
async def test_home_that_nobody_links_to_is_not_announced(founder: tuple[Street, House]) -> None:
    street, hub = founder
    assert hub.server.leaf.listening(7422) == Listening("0.0.0.0", 7422, fingerprint_of(hub))
    stale = await way_to_nobody(hub)
    async with street.open("bob", settings=OPEN, upstream=stale) as bob:
        assert bob.server.leaf.listening(7422) is None
    bob.home.upstream.unlink()
    async with street.open("bob") as alone:
        assert alone.server.leaf.listening(7422) is None


@pytest.mark.req("FIND-3")
def test_found_addresses_are_few_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    for port in range(1, 6):
        FoundAddresses(path).add("a" * 64, Address("192.0.2.1", port))
    for number in range(40):
        FoundAddresses(path).add(f"{number:064}", Address("192.0.2.1", 1))
    kept = FoundAddresses(path)
    assert kept.of("a" * 64) == ()
    assert kept.of(f"{39:064}") == (Address("192.0.2.1", 1),)
    for port in range(1, 6):
        kept.add("a" * 64, Address("192.0.2.1", port))
    assert [one.port for one in FoundAddresses(path).of("a" * 64)] == [5, 4, 3][:MAX_ADDRESSES]
    path.write_text('{"' + "a" * 64 + '": ["no address; }"]}')
    assert FoundAddresses(path).of("a" * 64) == ()
    path.write_text("[")
    assert FoundAddresses(path).of("a" * 64) == ()


@pytest.mark.req("FIND-6")
@pytest.mark.parametrize("is_on", [True, False])
def test_node_announces_itself_unless_it_is_off(start: Callable[..., Node], place: Home, is_on: bool) -> None:
    settings = OPEN.replace("[community]", f"[community]\nzeroconf = {str(is_on).lower()}")
    place.config_file.write_text(settings)
    node = start()
    node.ready()
    node.reaches(lambda: read_node_state(place).server.announced == is_on, "what the settings say")
    assert ("announced on this network" in read_node_state(place).server.homes) == is_on
    assert node.end() == 0
