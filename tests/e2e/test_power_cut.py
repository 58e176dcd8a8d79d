"""All processes of a node die at once, with an upload, ingestions and posts under way; it starts again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from hearthnet.bus import blob_transfer
from hearthnet.bus.blob_transfer import Options, TransferResult
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import HomeStore
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from hearthnet.core.node_state import read_node_state
from hearthnet.protocol.manifest import CHUNK_BYTES, Manifest, manifest_of
from tests.helpers.neighbourhood import Neighbourhood, settle_in
from tests.helpers.shell import READY_SECONDS, STOP_SECONDS, Shell
from tests.helpers.waiting import wait_for, wait_for_sync

pytestmark = [pytest.mark.asyncio, pytest.mark.e2e]
CHUNKS = 40
ENOUGH = 12
CORPUS = "notes"


class Upload:
    """What is put, and how far it was asked for; `wait` keeps it from ending."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.manifest: Manifest = manifest_of(data)
        self.asked = 0
        self.wait: asyncio.Event | None = asyncio.Event()

    async def chunk(self, index: int) -> bytes:
        self.asked = max(self.asked, index)
        if index >= CHUNKS // 2 and self.wait is not None:
            await self.wait.wait()
        return self.data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]

    async def put(self, bus: Bus) -> TransferResult:
        return await blob_transfer.put(bus, self, Options(name="large.bin"), lambda chunks, of: None)


@dataclass
class Posts:
    """Posts one after the other, each under a client id of its own; after some it waits for `more`."""

    tried: dict[str, dict[str, Any]] = field(default_factory=dict)
    confirmed: dict[str, str] = field(default_factory=dict)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def go_on(self, bus: Bus) -> None:
        while True:
            number = len(self.tried)
            if number >= 100:
                await self.more.wait()
            words = {"category": "offer", "title": f"Post {number}", "body": "To lend."}
            client_id = new_ulid()
            self.tried[client_id] = {"params": {}, "input": {"client_id": client_id, **words}}
            reply = await bus.call("market.post@1.0", self.tried[client_id])
            self.confirmed[client_id] = reply.output["event_id"]


def document(number: int) -> bytes:
    """A text of some hundred passages."""
    paragraph = "Keep the lid on the barrel so that no leaves and no mosquitoes get in.\n\n"
    return (f"# Note {number:02}\n\n" + "".join(f"{n}. {paragraph}" for n in range(3_000))).encode()


@dataclass
class Ingestions:
    """Documents ingested one after the other."""

    cids: list[str]
    done: dict[str, int] = field(default_factory=dict)

    async def go_on(self, bus: Bus) -> None:
        for cid in self.cids:
            reply = await bus.call("rag.ingest@1.0", self.body(cid))
            self.done[cid] = reply.output["chunks_indexed"]

    def body(self, cid: str) -> dict[str, Any]:
        return {"params": {"corpus": CORPUS}, "input": {"doc_cid": cid, "media_type": "text/markdown"}}


class Node:
    """`hearthnet up` that can be cut off."""

    def __init__(self, home: Path) -> None:
        self._shell = Shell(home)
        self._ready = home.with_suffix(".ready")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        with self._shell.home.with_suffix(".log").open("ab") as log:
            self._process = process = subprocess.Popen(
                [self._shell.program, "up", "--ready-file", self._ready],
                env=self._shell.environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_for_sync(
            lambda: self._ready.exists() or process.poll() is not None, READY_SECONDS, "the ready-file"
        )
        assert process.poll() is None, self._shell.home.with_suffix(".log").read_text()

    def cut_off(self) -> None:
        """SIGKILL for the supervisor and all that it started, as when the power goes."""
        assert self._process is not None
        everything = psutil.Process(self._process.pid).children(recursive=True)
        for pid in (self._process.pid, *(child.pid for child in everything)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        psutil.wait_procs(everything, timeout=STOP_SECONDS)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.cut_off()


@contextlib.asynccontextmanager
async def connected(neighbourhood: Neighbourhood) -> AsyncIterator[Bus]:
    async with await Bus.connect(neighbourhood.founder, "test") as bus:
        yield bus


async def listed(bus: Bus, capability: str, output: str, params: dict[str, Any] | None = None) -> list[Any]:
    body = {"params": params or {}, "input": {"limit": 500}}
    return list((await bus.call(capability, body, timeout_seconds=60)).output[output])


@pytest.fixture
def neighbourhood(tmp_path: Path) -> Neighbourhood:
    return settle_in(tmp_path, services=("file", "market", "rag"))


@pytest.mark.timeout(600)
@pytest.mark.req("POWER-1")
async def test_after_a_power_cut_nothing_is_there_by_halves_and_all_goes_on(
    neighbourhood: Neighbourhood,
) -> None:
    home, upload, posts = neighbourhood.founder, Upload(os.urandom(CHUNKS * CHUNK_BYTES)), Posts()
    node = Node(home.path)
    node.start()
    try:
        ingestions = await _cut_off_at_work(neighbourhood, node, upload, posts)
        node.start()
        upload.wait = None
        async with connected(neighbourhood) as bus:
            notes = {service.name: service.note for service in read_node_state(home).services}
            assert {name for name, note in notes.items() if note} == {"rag"}
            assert f"private until you decide: {CORPUS};" in (notes["rag"] or "")
            await _check_upload(bus, upload)
            await _check_posts(bus, posts)
            await _check_documents(bus, ingestions)
    finally:
        node.stop()


async def _cut_off_at_work(
    neighbourhood: Neighbourhood, node: Node, upload: Upload, posts: Posts
) -> Ingestions:
    """Begins all three, and cuts the node off when each of them has got somewhere and none has ended."""
    state = read_node_state(neighbourhood.founder)
    async with await HomeStore.join(neighbourhood.founder, state.server.url, "test") as store:
        ingestions = Ingestions([await store.put_blob(document(number)) for number in range(20)])
    async with connected(neighbourhood) as bus:
        works = [
            asyncio.create_task(work) for work in (upload.put(bus), posts.go_on(bus), ingestions.go_on(bus))
        ]
        try:
            await wait_for(
                lambda: upload.asked >= ENOUGH and len(posts.confirmed) >= 5 and len(ingestions.done) >= 2,
                120,
                "all three under way",
            )
            assert not any(work.done() for work in works)
            posts.more.set()
            node.cut_off()
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
    return ingestions


async def _check_upload(bus: Bus, upload: Upload) -> None:
    """It cannot be seen, the next attempt goes on behind what is there, and then it is whole."""
    cid = upload.manifest.cid
    assert cid not in await listed(bus, "file.list@1.0", "cids")
    with pytest.raises(HearthNetError) as refused:
        await bus.call("file.read@1.0", {"params": {}, "input": {"cid": cid}})
    assert refused.value.code == "not_found"
    done = await upload.put(bus)
    assert 0 < done.chunks < CHUNKS
    async with await HomeStore.connect(bus.peer.home, "test") as store:
        assert await store.blobs.read(cid) == upload.data


async def _check_posts(bus: Bus, posts: Posts) -> None:
    """What was confirmed is there; what was tried is there once, however often it is tried again."""
    there = await listed(bus, "market.list@1.0", "posts")
    assert set(posts.confirmed.values()) <= {post["event_id"] for post in there}
    again = {
        client_id: (await bus.call("market.post@1.0", body)).output["event_id"]
        for client_id, body in posts.tried.items()
    }
    assert posts.confirmed.items() <= again.items()
    after = await listed(bus, "market.list@1.0", "posts")
    assert sorted(post["title"] for post in after) == sorted(f"Post {n}" for n in range(len(posts.tried)))


async def _check_documents(bus: Bus, ingestions: Ingestions) -> None:
    """A document has all of its passages or is not there; ingested again it is there once."""
    corpus = {"corpus": CORPUS}
    there = {
        each["doc_cid"]: each for each in await listed(bus, "rag.list_documents@1.0", "documents", corpus)
    }
    assert set(ingestions.done) <= set(there)
    whole = set(ingestions.done.values())
    assert len(whole) == 1
    for cid in ingestions.cids[: len(there) + 1]:
        reply = await bus.call("rag.ingest@1.0", ingestions.body(cid))
        assert {reply.output["chunks_indexed"]} == whole
    assert len(await listed(bus, "rag.list_documents@1.0", "documents", corpus)) == len(there) + 1
