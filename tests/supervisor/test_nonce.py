"""A server chooses what a login signs: whatever it asks for, no signature of ours comes out of it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import nkeys
import pytest
import pytest_asyncio

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import frame
from hearthnet.supervisor.nats.leaf_links import Upstream
from hearthnet.trust.authorization import approval, grant, revocation
from hearthnet.trust.community import events, roster
from hearthnet.trust.keys import Identity, Login, signing_input, verify, verify_raw
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import Street

pytestmark = pytest.mark.asyncio
PURPOSES = (
    approval.PURPOSE,
    events.COSIGN_PURPOSE,
    events.INVITE_PURPOSE,
    events.LOGIN_PURPOSE,
    events.PROOF_PURPOSE,
    events.PURPOSE,
    frame.PURPOSE,
    grant.PURPOSE,
    revocation.PURPOSE,
    roster.PURPOSE,
)


@dataclass
class Asker:
    """A server that wants one thing: a signature over bytes of its choice."""

    wanted: bytes
    port: int = 0
    got: list[dict[str, Any]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greets like a server, with what is to be signed as the nonce, and reads the answer."""
        self.writers.append(writer)
        info = b'{"server_id":"X","version":"2.15.1","proto":1,"headers":true,"auth_required":true'
        # As a listener for links has it: a server hangs up on any other kind before it logs in.
        info += b',"client_id":1,"leafnode_urls":["127.0.0.1:1"]'
        info += b',"max_payload":1048576,"nonce":"' + self.wanted + b'"}'
        writer.write(b"INFO " + info + b"\r\n")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
            line = await reader.readline()
            if line.startswith(b"CONNECT "):
                self.got.append(msgspec.json.decode(line[8:]))
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            await writer.drain()
        writer.close()

    def signatures(self) -> list[bytes]:
        """What it got."""
        texts = [str(each["sig"]) for each in self.got if each.get("sig")]
        return [base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in texts]


@pytest_asyncio.fixture
async def asker() -> AsyncIterator[Asker]:
    """The hostile server."""
    found = Asker(b"")
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
        for writer in found.writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def in_json(data: bytes) -> bytes:
    """`data` as the inside of a JSON string, byte by byte where that is possible, with the rest left raw."""
    return b"".join(
        bytes([byte]) if byte >= 0x20 and byte not in b'"\\' else b"\\u%04x" % byte for byte in data
    )


def nothing_of_ours(identity: Identity, login: Login, signature: bytes, wanted: bytes) -> None:
    """The signature proves that a login was there, and nothing else to anybody."""
    as_node = ids.node_id(base64.b32decode(login.public)[1:33])
    assert not verify_raw(identity.node_id, wanted, signature)
    for purpose in PURPOSES:
        for data in (wanted, b"anything", login.public.encode(), identity.node_id.encode()):
            assert not verify(identity.node_id, purpose, data, signature)
            assert not verify(as_node, purpose, data, signature)


def demands(identity: Identity) -> list[bytes]:
    """Texts of a nonce: an own object, in the form that is signed, or as near as a string comes."""
    proof = identity.node_id.encode()
    framed = signing_input("login proof", proof)
    return [
        b"AAAAAAAAAAA",
        proof,
        framed,
        in_json(framed),
        b"\\u00ff" + in_json(framed[1:]),
        b"\\udcff" + in_json(framed[1:]),
        in_json(signing_input("frame", b'{"kind":"call"}\n{}')),
    ]


@pytest.mark.req("UP-49")
@pytest.mark.parametrize("number", range(7))
async def test_a_process_that_logs_in_signs_nothing_of_ours(asker: Asker, number: int) -> None:
    identity = Identity.generate()
    asker.wanted = demands(identity)[number]
    login = identity.login()
    with contextlib.suppress(HearthNetError):
        await NatsClient.connect(f"nats://127.0.0.1:{asker.port}", login, "victim")
    assert asker.writers, "nobody came to be asked"
    for signature in asker.signatures():
        nothing_of_ours(identity, login, signature, asker.wanted)
    if number < 2:
        # The attack does reach the login: it signs what a server says. Hence a key of its own.
        assert {each["nkey"] for each in asker.got} == {login.public}
        nkeys.from_seed(bytearray(login.seed)).verify(asker.wanted, asker.signatures()[0])


@pytest.mark.req("UP-49")
async def test_a_server_that_links_signs_nothing_of_ours(asker: Asker, tmp_path: Path) -> None:
    street = Street.build(tmp_path, "bob")
    async with street.open("bob", upstream=Upstream(f"127.0.0.1:{asker.port}")) as bob:
        login = bob.identity.login()
        for wanted in demands(bob.identity)[0:5:2]:
            asker.wanted = wanted
            asker.got.clear()
            tries = bob.log.count("Leafnode connection c")
            await wait_for(
                lambda: asker.got or bob.log.count("Leafnode connection c") > tries + 1,  # noqa: B023
                10,
                "the next attempt",
            )
            for signature in asker.signatures():
                nothing_of_ours(bob.identity, login, signature, wanted)
            # Bytes that are no text are not even signed; anything else is what a login signs.
            assert bool(asker.signatures()) is (wanted[:1] != b"\xff")
            for each in asker.got:
                assert each["nkey"] == login.public
                assert bob.identity.token not in str(each)
