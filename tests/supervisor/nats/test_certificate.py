"""Beyond loopback there is TLS: who is at the other end is known by the key of its certificate."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509

from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats import address, certificate
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.leaf_links import Upstream
from tests.helpers.announcements import on_networks
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import House, Street
from tests.supervisor.test_links import link_is_there

OPEN = '[server]\nport = 0\n[community]\nport = 0\nhost = "0.0.0.0"\naddress = "localhost"\n'


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> Street:
    """A founder and a member who has a home of its own."""
    return Street.build(tmp_path, "bob")


@pytest_asyncio.fixture
async def founder(street: Street) -> AsyncIterator[House]:
    """A home that others in the network reach."""
    async with street.open("founder", settings=OPEN) as house:
        yield house


async def learned(house: House) -> Upstream:
    """What someone with an invite keeps of the home."""
    state = house.server.state
    pem = await certificate.fetch(address.parse(state.address), state.fingerprint)
    return Upstream(state.address, state.fingerprint, pem)


@pytest.mark.req("UP-45")
@pytest.mark.asyncio
async def test_a_link_over_tls_to_a_certificate_that_is_known(founder: House, street: Street) -> None:
    way = await learned(founder)
    assert way.address == f"localhost:{founder.server.state.leaf_port}"
    async with street.open("bob", upstream=way) as bob:
        await wait_for(lambda: link_is_there(bob), what="the link")
        # Who joins there is sent on to where all meet.
        assert (bob.server.state.address, bob.server.state.fingerprint) == (way.address, way.fingerprint)
    seed = bob.home.nats / "upstream.login"
    assert stat.S_IMODE(seed.stat().st_mode) == 0o600
    assert bob.identity.login().seed in seed.read_bytes()
    everything = b"".join(file.read_bytes() for file in bob.home.nats.glob("*") if file.is_file())
    assert bob.identity.to_text().split()[1].encode() not in everything
    assert bob.identity.login().seed not in bob.home.server_config.read_bytes()


@pytest.mark.req("UP-45")
@pytest.mark.asyncio
async def test_another_key_at_that_address_is_refused(founder: House, street: Street) -> None:
    place = address.parse(founder.server.state.address)
    with pytest.raises(HearthNetError, match="is not the one of the invite") as caught:
        await certificate.fetch(place, "0" * 64)
    assert caught.value.code == "invalid_signature"
    other = street.folder / "other.pem"
    fingerprint = certificate.ensure(other, street.folder / "other.key", ("localhost", "127.0.0.1"))
    way = Upstream(founder.server.state.address, fingerprint, other.read_text())
    async with street.open("bob", upstream=way) as bob:
        await wait_for(
            lambda: "failed to verify certificate" in bob.log, what="the certificate to be refused"
        )
        assert not await link_is_there(bob)


@pytest.mark.req("UP-45")
@pytest.mark.asyncio
async def test_nothing_is_said_in_the_clear(founder: House) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", founder.server.state.leaf_port)
    writer.write(b"CONNECT {}\r\nPING\r\n")
    said = b""
    with contextlib.suppress(ConnectionError):
        said = await asyncio.wait_for(reader.read(), 20)
    assert b"nonce" not in said
    assert b"INFO" not in said
    writer.close()


@pytest.mark.req("UP-46")
@pytest.mark.asyncio
async def test_a_home_that_nobody_answers_for_is_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = Address("127.0.0.1", closed.getsockname()[1])
        with pytest.raises(HearthNetError, match=f"no home answers at {place}") as caught:
            await certificate.fetch(place, "0" * 64)
    assert caught.value.code == "partition"


@pytest.mark.req("FIND-7")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
            "no node runs there (hearthnet up), or its port",
        ),
        (TimeoutError(), "nothing is there: a wrong address, a firewall"),
        (OSError(errno.EHOSTUNREACH, "no route to host"), "nothing is there: a wrong address, a firewall"),
        (OSError(errno.ENETUNREACH, "unreachable"), "this computer has no network that leads there"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "nobody knows that name"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "it hangs up at once"),
        (ssl.SSLError(1, "wrong version"), "does not speak TLS, so it is not a home"),
    ],
)
def test_reason_for_no_answer_is_the_joiners(error: OSError, words: str) -> None:
    assert words in certificate._reason(error)


async def _speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    writer.close()
    await writer.wait_closed()


@pytest.mark.req("FIND-7")
@pytest.mark.asyncio
async def test_port_that_is_closed_and_one_without_tls_are_told_apart() -> None:
    async with await asyncio.start_server(_speak_http, "127.0.0.1", 0) as web:
        place = Address("127.0.0.1", web.sockets[0].getsockname()[1])
        with pytest.raises(HearthNetError, match="does not speak TLS"):
            await certificate.fetch(place, "0" * 64)
    with pytest.raises(HearthNetError, match="no node runs there"):
        await certificate.fetch(place, "0" * 64)


@pytest.mark.req("UP-46")
@pytest.mark.asyncio
async def test_new_names_need_a_new_certificate_but_no_new_invites(founder: House, street: Street) -> None:
    way = await learned(founder)
    (pem, key), _ = founder.server.leaf.certificate()
    before = pem.read_bytes()
    names = certificate.local_names("localhost")
    assert certificate.ensure(pem, key, names) == way.fingerprint
    assert pem.read_bytes() == before
    assert certificate.ensure(pem, key, (*names, "kitchen.example", "192.0.2.7")) == way.fingerprint
    assert pem.read_bytes() != before
    await founder.server.stop(1)
    await wait_for(lambda: any("is back" in line for line in founder.news), what="the server to be back")
    assert (await learned(founder)).certificate != way.certificate
    async with street.open("bob", upstream=way) as bob:
        await wait_for(lambda: link_is_there(bob), what="the link, with the certificate of before")


@pytest.mark.req("UP-13")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
async def test_a_damaged_key_of_the_server_is_named_and_left_alone(street: Street, content: bytes) -> None:
    home = street.place("founder")
    (home.nats / "leaf.key").write_bytes(content)
    with pytest.raises(HearthNetError, match=r"leaf\.key is damaged; put back a copy") as caught:
        async with street.open("founder", settings=OPEN):
            pytest.fail("started with a damaged key")
    assert caught.value.code == "bad_request"
    assert (home.nats / "leaf.key").read_bytes() == content


@pytest.mark.req("UP-13")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"address": "a b"}', b'{"address": "x:1", "more": 1}', b"\xff"]
)
async def test_a_damaged_way_to_another_home_is_named_and_left_alone(street: Street, content: bytes) -> None:
    home = street.place("bob")
    home.upstream.write_bytes(content)
    with pytest.raises(HearthNetError, match=r"upstream\.json is damaged \(.*redeem a new invite"):
        async with street.open("bob"):
            pytest.fail("started with a damaged file")
    assert home.upstream.read_bytes() == content


@pytest.mark.req("UP-45")
@pytest.mark.asyncio
async def test_no_link_beyond_this_computer_without_a_certificate(street: Street) -> None:
    with pytest.raises(HearthNetError, match=r"192\.0\.2\.7:7422 is beyond this computer"):
        async with street.open("bob", upstream=Upstream("192.0.2.7:7422")):
            pytest.fail("started")
    assert not (street.place("bob").nats / "upstream.login").exists()


@pytest.mark.req("UP-47")
@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("kitchen", "kitchen", 7422),
        ("kitchen.local:1", "kitchen.local", 1),
        ("192.0.2.7:65535", "192.0.2.7", 65535),
        ("[2001:db8::1]", "2001:db8::1", 7422),
        ("[::1]:80", "::1", 80),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, host: str, port: int) -> None:
    found = address.parse(text)
    assert found == (host, port)
    assert address.parse(str(found)) == found


@pytest.mark.req("UP-47")
@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "a:0",
        "a:65536",
        "a:x",
        "a b",
        'a"}',
        "a/b",
        "::1",
        "[::1",
        "[a]:1",
        "[fe80::1%eth0]",
        "-a",
        "a-",
        "a_b",
        "a" * 254,
        "a@b",
    ],
)
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(HearthNetError, match="is no address; write NAME"):
        address.parse(text)


@pytest.mark.req("UP-47")
def test_what_only_this_computer_reaches_is_known() -> None:
    assert [
        host for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost") if not address.is_loopback(host)
    ] == []
    assert not address.is_loopback("0.0.0.0")
    assert not address.is_loopback("kitchen")
    assert address.parse("[::1]:7422").on_loopback
    assert not address.parse("192.0.2.7").on_loopback


@pytest.mark.req("UP-47")
def test_how_others_reach_a_server_is_no_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address.reachable_host("127.0.0.1") == "127.0.0.1"
    assert address.reachable_host("kitchen.local") == "kitchen.local"
    assert address.reachable_host("192.0.2.7") == "192.0.2.7"
    for everywhere in ("0.0.0.0", "::"):
        own = address.reachable_host(everywhere)
        assert not address.is_loopback(own)
        assert own != everywhere
        address.check_host(own)
    # To where no packet may go: as without any network.
    monkeypatch.setattr(address, "_ELSEWHERE", ("255.255.255.255", 9))
    on_networks(monkeypatch, "192.0.2.9/24", "198.51.100.9/24")
    assert address.reachable_host("0.0.0.0") == "192.0.2.9"
    on_networks(monkeypatch)
    assert address.reachable_host("0.0.0.0") == socket.gethostname()


@pytest.mark.req("UP-47")
@pytest.mark.asyncio
@pytest.mark.parametrize("line", ['host = "a b"', 'address = "a b"', 'host = ""'])
async def test_an_address_in_the_settings_that_is_none_is_named(street: Street, line: str) -> None:
    with pytest.raises(HearthNetError, match=r"hearthnet\.toml: \[community\]: .* is no "):
        async with street.open("founder", settings=f"[server]\nport = 0\n[community]\n{line}\n"):
            pytest.fail("started")


@pytest.mark.req("CLOCK-9")
def test_a_certificate_is_valid_by_every_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem, key = tmp_path / "a.pem", tmp_path / "a.key"
    with monkeypatch.context() as earlier:
        earlier.setattr(certificate, "_BEGIN", datetime(2020, 1, 1, tzinfo=UTC))
        fingerprint = certificate.ensure(pem, key, ("localhost",))
    assert certificate.ensure(pem, key, ("localhost",)) == fingerprint, "the key stays"
    made = x509.load_pem_x509_certificate(pem.read_bytes())
    assert made.not_valid_before_utc == datetime(1970, 1, 1, tzinfo=UTC), "one of before is made again"
    assert made.not_valid_after_utc.year >= 2120
