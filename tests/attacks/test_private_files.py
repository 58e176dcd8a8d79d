"""A neighbour, plain or trusted, who wants a file that a home has put and not shared, or to know of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus import blob_transfer
from hearthnet.bus.blob_transfer import Options
from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.manifest import CHUNK_BYTES, Manifest, manifest_of
from tests.attacks.conftest import Victim
from tests.helpers.full_house import UNLIMITED
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell

CHUNKS = 6
SECRET, OTHER, HALF = (os.urandom(CHUNKS * CHUNK_BYTES) for _ in range(3))
FILE = manifest_of(SECRET).cid
NOTHING = manifest_of(OTHER).cid


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A home that has put a file for itself; Mallory is a member, Tess a trusted one."""
    folder: Path = tmp_path_factory.mktemp("files")
    neighbourhood = settle_in(folder, "mallory", "tess", services=("auth", "file"), settings=UNLIMITED)
    shell = Shell(neighbourhood.founder.path)
    (folder / "secret").write_bytes(SECRET)
    with shell.node() as state:
        assert shell.run("file", "put", folder / "secret").stdout == f"{FILE}\n"
        assert shell.run("members", "promote", "tess", "trusted").returncode == 0
        key = load_identity(neighbourhood.founder.device_key)
        yield Victim(neighbourhood.founder, str(state["server"]["url"]), key, neighbourhood)


class Source:
    """Content to put, of which no more than `most` chunks are there."""

    def __init__(self, data: bytes, most: int = CHUNKS) -> None:
        self.manifest = manifest_of(data)
        self.sent: list[int] = []
        self._data, self._most = data, most

    async def chunk(self, index: int) -> bytes:
        """The chunk, which may not be there."""
        if index >= self._most:
            raise HearthNetError("bad_request", "there is no more")
        self.sent.append(index)
        return self._data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]


class Sink:
    """Takes content in."""

    def __init__(self) -> None:
        self.data = b""

    async def begin(self, manifest: Manifest) -> int:
        """Nothing is here yet."""
        return 0

    async def write(self, index: int, data: bytes) -> None:
        """Takes a chunk."""
        self.data += data


async def put(bus: Bus, source: Source, **options: Any) -> int:
    """How many chunks had to be sent."""
    return (await blob_transfer.put(bus, source, Options(**options), lambda chunks, of: None)).chunks


async def ask(bus: Bus, node: str, verb: str, **given: Any) -> str:
    """What is answered, without the names of the content and times."""
    try:
        output = (await bus.call(f"file.{verb}@1.0", {"params": {}, "input": given}, node=node)).output
        text = str(output)
    except HearthNetError as error:
        text = str(error.to_body())
    for cid in (FILE, NOTHING):
        text = text.replace(cid, "CID").replace(cid[:23], "CID")
    return text


def asked(cid: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls about one file."""
    return [
        ("read", {"cid": cid}),
        ("read", {"cid": cid, "start": 99}),
        ("list", {"prefix": cid[:30]}),
        ("remove", {"cid": cid}),
        ("remove", {"cid": cid, "all": True}),
    ]


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-46", "FILE-9")
@pytest.mark.parametrize("name", ["mallory", "tess"])
async def test_a_private_file_is_answered_as_none(house: Victim, name: str) -> None:
    attacker = await house.attacker(name)
    try:
        for mine, others in zip(asked(FILE), asked(NOTHING), strict=True):
            there = await ask(attacker.bus, house.node, mine[0], **mine[1])
            assert there == await ask(attacker.bus, house.node, others[0], **others[1])
            assert "CID" in there or mine[0] == "list" or "only the node itself" in there
    finally:
        await attacker.bus.close()


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-46", "FILE-9")
async def test_putting_a_file_does_not_show_that_it_was_there(house: Victim) -> None:
    tess = await house.attacker("tess")
    try:
        shown = []
        for data, cid in ((SECRET, FILE), (OTHER, NOTHING)):
            sent = await put(tess.bus, Source(data))
            listed = await ask(tess.bus, house.node, "list", prefix=cid[:30])
            removed = await ask(tess.bus, house.node, "remove", cid=cid)
            read = await ask(tess.bus, house.node, "read", cid=cid)
            again = await put(tess.bus, Source(data))
            assert await ask(tess.bus, house.node, "remove", cid=cid) == removed
            shown.append((sent, listed, removed, read, again))
        assert shown[0] == shown[1]
        assert shown[0][0] == shown[0][4] == CHUNKS
        assert "'deleted': True" in shown[0][2]
    finally:
        await tess.bus.close()
    # The home has it as before.
    shell = Shell(house.home.path)
    assert FILE in [blob["cid"] for blob in await asyncio.to_thread(shell.json, "file", "list", "--json")]


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-46", "FILE-9")
async def test_an_upload_that_broke_off_is_continued_by_nobody_else(house: Victim) -> None:
    """Whoever sends the rest of what somebody else began would hold, and read, all of it."""
    own, tess = await Bus.join(house.home, house.url, "own"), await house.attacker("tess")
    try:
        with pytest.raises(HearthNetError, match="there is no more"):
            await put(own, Source(HALF, most=CHUNKS - 1))
        rest = Source(HALF)
        assert await put(tess.bus, rest) == CHUNKS
        assert sorted(rest.sent) == list(range(CHUNKS))
    finally:
        await own.close()
        await tess.bus.close()


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-46", "FILE-9")
async def test_a_shared_file_is_read_until_it_is_removed(house: Victim, tmp_path: Path) -> None:
    shell, mallory = Shell(house.home.path), await house.attacker()
    (tmp_path / "poster").write_bytes(b"Summer party")
    try:
        done = await asyncio.to_thread(shell.json, "file", "put", tmp_path / "poster", "--share", "--json")
        sink = Sink()
        await blob_transfer.fetch(mallory.bus, done["cid"], [house.node], sink, lambda chunks, of: None)
        assert sink.data == b"Summer party"
        await asyncio.to_thread(shell.json, "file", "remove", done["cid"], "--json")
        await asyncio.to_thread(shell.json, "file", "put", tmp_path / "poster", "--json")
        assert "not_found" in await ask(mallory.bus, house.node, "read", cid=done["cid"])
    finally:
        await mallory.bus.close()
