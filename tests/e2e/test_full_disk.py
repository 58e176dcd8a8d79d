"""A disk that becomes full while things are put, read in, posted and answered: each says so, nothing half
done is seen, what only reads goes on, and with room again all of it works, by the same processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus import blob_transfer
from hearthnet.bus.blob_transfer import Options
from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import HomeStore
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from hearthnet.core.node_state import read_node_state
from hearthnet.protocol.manifest import CHUNK_BYTES, manifest_of
from tests.helpers.shell import Shell
from tests.helpers.small_disk import Mount, fill, small_disk
from tests.helpers.waiting import wait_for

SERVICES = ("auth", "file", "llm", "market", "rag")
SETTINGS = f"""
[server]
port = 0
[community]
port = 0
[gateway]
enabled = false
[services]
enabled = {list(SERVICES)}
[file]
keep_free_mb = 0
[[llm.scripted]]
name = "scripted"
file = "script.toml"
"""
SCRIPT = """
[[questions]]
[[questions.turns]]
calls = [{ tool = "market_post", arguments = { category = "offer", title = "Filter", body = "Ring" } }]
[[questions.turns]]
text = "Posted."
"""
ASK = ("ask", "lend it", "--tool", "market_post", "--yes-to", "market.post", "--model", "scripted")
CHUNKS = 60
SMALL, LARGE = os.urandom(1000), os.urandom(CHUNKS * CHUNK_BYTES)


class Source:
    """Content of which the disk is filled before chunk `at` is handed on."""

    def __init__(self, data: bytes, ballast: Path | None = None, at: int = 30) -> None:
        self.manifest = manifest_of(data)
        self.asked: list[int] = []
        self._data, self._ballast, self._at = data, ballast, at

    async def chunk(self, index: int) -> bytes:
        self.asked.append(index)
        if self._ballast is not None and index == self._at:
            fill(self._ballast)
        return self._data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]


async def put(bus: Bus, source: Source) -> int:
    """How many chunks travelled."""
    return (await blob_transfer.put(bus, source, Options(), lambda chunks, of: None)).chunks


def ingestion(cid: str, title: str) -> dict[str, Any]:
    return {
        "params": {"corpus": "home"},
        "input": {"doc_cid": cid, "title": title, "language": "en", "media_type": "text/plain"},
    }


def post() -> dict[str, Any]:
    words = {"category": "offer", "title": "Ladder", "body": "Ring twice."}
    return {"params": {}, "input": {"client_id": new_ulid(), **words}}


async def seen(bus: Bus) -> tuple[list[str], int, int]:
    """What is there, as a caller sees it: blobs of its own, documents and posts."""
    files = (await bus.call("file.list@1.0", {"params": {}, "input": {}})).output["blobs"]
    corpora = (await bus.call("rag.list_corpora@1.0", {"params": {}, "input": {}})).output["corpora"]
    posts = (await bus.call("market.list@1.0", {"params": {}, "input": {}})).output["posts"]
    documents = sum(each["docs"] for each in corpora if each["name"] == "home")
    return [blob["cid"] for blob in files], documents, len(posts)


async def refused(call: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await call
    assert caught.value.code == "capacity_exceeded", caught.value
    assert caught.value.message.startswith("the disk ")
    return caught.value


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A home on a small disk."""
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.mark.timeout(300)
@pytest.mark.req("POWER-2", "POWER-3")
@pytest.mark.asyncio
async def test_a_disk_that_fills_up_is_said_by_each_and_all_goes_on_when_there_is_room(mount: Mount) -> None:
    home = mount("size=120m")
    home.config_file.write_text(SETTINGS)
    (home.path / "script.toml").write_text(SCRIPT)
    shell, ballast = Shell(home.path), home.path / "ballast"
    with shell.node():
        first = {service.name: service.pid for service in read_node_state(home).services}
        async with await Bus.connect(home, "test") as bus, await HomeStore.connect(home, "test") as store:
            water, wood = [await store.blobs.put_bytes(text) for text in (b"Boil it.", b"Dry it.")]
            small = await store.blobs.put_bytes(SMALL, Hold())
            await bus.call("rag.ingest@1.0", ingestion(water, "Water"), timeout_seconds=60)
            await bus.call("market.post@1.0", post())
            before = await seen(bus)

            await refused(put(bus, Source(LARGE, ballast)))
            with pytest.raises(HearthNetError) as unknown:
                await bus.call("file.read@1.0", {"params": {}, "input": {"cid": manifest_of(LARGE).cid}})
            assert unknown.value.code == "not_found"
            # A little room, as the server's store and the node's spare file leave it, is not for documents.
            fill(ballast)
            os.truncate(ballast, ballast.stat().st_size - 8_000_000)
            await refused(bus.call("rag.ingest@1.0", ingestion(wood, "Wood"), timeout_seconds=60))
            fill(ballast)
            await refused(store.blobs.put_bytes(os.urandom(1000)))
            await refused(bus.call("market.post@1.0", post()))
            asked = shell.run(*ASK)
            assert (asked.returncode, "the disk is full" in asked.stderr) == (8, True), asked
            document = home.path.parent / "wells.md"
            document.write_text("# Wells\n\nLine a well with stone.\n")
            for command in (
                ("ingest", document, "--corpus", "home"),
                ("file", "put", document),
                ("market", "post", "--title", "Ladder", "--body", "Ring twice."),
            ):
                done = shell.run(*command)
                assert (done.returncode, "the disk " in done.stderr) == (8, True), (command, done)
            assert shell.json("outbox", "list", "--json") == []
            assert await seen(bus) == before
            assert await store.blobs.read(small) == SMALL

            ballast.unlink()
            await wait_for(lambda: read_node_state(home).services[0].note is None, 30, "room to be noticed")
            assert 0 < await put(bus, again := Source(LARGE)) < CHUNKS
            assert again.asked[0] > 0
            await bus.call("rag.ingest@1.0", ingestion(wood, "Wood"), timeout_seconds=60)
            await bus.call("market.post@1.0", post())
            asked = shell.run(*ASK)
            assert (asked.returncode, "Posted." in asked.stdout) == (0, True), asked
            files, documents, posts = await seen(bus)
            assert (len(files), documents, posts) == (len(before[0]) + 1, 2, 3)
            assert await store.blobs.read(manifest_of(LARGE).cid) == LARGE
        assert {service.name: service.pid for service in read_node_state(home).services} == first
