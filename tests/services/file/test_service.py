"""The file service on a real node: content put and read over the bus, and who may do what."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from hearthnet import Call, Reply, Stream, capability
from hearthnet.bus import blob_transfer
from hearthnet.bus.blob_transfer import Options, TransferResult
from hearthnet.bus.blobs.blob_store import Blobs
from hearthnet.bus.blobs.metadata import CHUNKS, STREAM, Hold, meta_subject
from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.contracts.registry import contracts
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import b64
from hearthnet.core.times import now_ms
from hearthnet.protocol.manifest import CHUNK_BYTES, Manifest, manifest_of
from hearthnet_file import FileService
from hearthnet_file.garbage_collector import MB, PARTIAL_MS
from hearthnet_file.schemas import PutInput, ReadInput
from tests.helpers.contract_examples import missing_from_output
from tests.helpers.members import raise_to
from tests.helpers.mesh import Mesh, write_roster
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
LARGE = os.urandom(20 * CHUNK_BYTES + 1000)
OTHER = os.urandom(3 * CHUNK_BYTES)
MINUTE_MS = 60_000


class Bytes:
    """A source and a sink in memory."""

    def __init__(self, data: bytes = b"", have: int = 0) -> None:
        self.data = bytearray(data)
        self.manifest = manifest_of(data)
        self.asked: list[int] = []
        self.before: Callable[[int], Awaitable[None]] | None = None
        self._have = have

    async def chunk(self, index: int) -> bytes:
        if self.before is not None:
            await self.before(index)
        self.asked.append(index)
        return bytes(self.data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])

    async def begin(self, manifest: Manifest) -> int:
        return self._have

    async def write(self, index: int, data: bytes) -> None:
        if self.before is not None:
            await self.before(index)
        assert index * CHUNK_BYTES == len(self.data)
        self.data += data


def silent(chunks: int, of: int) -> None:
    """Tells nobody."""


async def put(bus: Bus, data: bytes, *, source: Bytes | None = None, **options: Any) -> TransferResult:
    return await blob_transfer.put(bus, source or Bytes(data), Options(**options), silent)


async def fetch(bus: Bus, cid: str, *nodes: str) -> bytes:
    sink = Bytes()
    await blob_transfer.fetch(bus, cid, nodes, sink, silent)
    return bytes(sink.data)


async def ask(bus: Bus, verb: str, **given: Any) -> Any:
    return (await bus.call(f"file.{verb}@1.0", {"params": {}, "input": given})).output


async def refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    assert "\n" not in caught.value.message
    return caught.value


def settings(mesh: Mesh, quota_mb: int = 1_000, keep_free_mb: int = 0) -> None:
    mesh.home.config_file.write_text(f"[file]\nquota_mb = {quota_mb}\nkeep_free_mb = {keep_free_mb}\n")


@contextlib.asynccontextmanager
async def running(mesh: Mesh, service: FileService | None = None) -> AsyncIterator[Bus]:
    """The service, and another process of its node."""
    if not mesh.home.config_file.exists():
        settings(mesh)
    async with mesh.hosting(service or FileService()), await mesh.bus() as bus:
        yield bus


async def subjects(mesh: Mesh) -> dict[str, int]:
    async with await mesh.store() as store:
        return await store.blobs.link.subjects(f"{CHUNKS}>")


@pytest.mark.req("FILE-11", "FILE-12")
async def test_content_is_put_and_read_over_the_bus(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        told: list[tuple[int, int]] = []
        source = Bytes(LARGE)
        done = await blob_transfer.put(bus, source, Options(name="large.bin"), lambda *far: told.append(far))
        assert done == TransferResult(manifest_of(LARGE).cid, len(LARGE), bus.peer.node_id, 21)
        assert source.asked == list(range(21))
        assert told[-1] == (21, 21)
        assert await fetch(bus, done.cid, done.node) == LARGE
        # Once more: nothing has to travel.
        again = Bytes(LARGE)
        assert (await put(bus, LARGE, source=again)).chunks == 0
        assert again.asked == []
        listed = await ask(bus, "list")
        assert listed["cids"] == [done.cid]
        assert listed["blobs"][0]["name"] == "large.bin"
        assert (listed["blobs"][0]["mine"], listed["blobs"][0]["shared"], listed["more"]) == (
            True,
            False,
            False,
        )


@pytest.mark.req("FILE-12")
async def test_content_of_every_size(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        for size in (0, 1, CHUNK_BYTES, CHUNK_BYTES + 1):
            done = await put(bus, LARGE[:size])
            assert await fetch(bus, done.cid, done.node) == LARGE[:size]
            unary = await ask(bus, "read", cid=done.cid)
            assert unary["size_bytes"] == min(size, CHUNK_BYTES)
            assert unary["cid"] == content_hash(LARGE[: min(size, CHUNK_BYTES)])
        last = await ask(bus, "read", cid=done.cid, start=1)
        assert last["data_b64"] == b64(LARGE[CHUNK_BYTES : CHUNK_BYTES + 1])
        beyond = await refusal(ask(bus, "read", cid=done.cid, start=2))
        assert (beyond.code, beyond.details["path"]) == ("bad_request", "/input/start")


@pytest.mark.req("FILE-12")
async def test_many_hashes_are_asked_for_in_pages(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.bus.blob_transfer._FIRST_HASHES", 3)
    monkeypatch.setattr("hearthnet.bus.blob_transfer._MORE_HASHES", 4)
    monkeypatch.setattr("hearthnet_file.service._PAGE", 5)
    sent: list[int] = []
    hashes = blob_transfer._hashes

    def counted(manifest: Manifest, start: int, stop: int) -> list[dict[str, Any]]:
        page = hashes(manifest, start, stop)
        sent.append(len(page))
        return page

    monkeypatch.setattr(blob_transfer, "_hashes", counted)
    async with running(mesh) as bus:
        done = await put(bus, LARGE)
        assert sent == [3, 4, 4, 4, 4, 2]
        assert await fetch(bus, done.cid, done.node) == LARGE
        body = {"params": {}, "input": {"cid": done.cid, "count": 1}}
        async with bus.stream("file.read@1.0", body) as stream:
            pages = [len(frame.data["chunks"]) async for frame in stream if frame.event == "manifest"]
        assert pages == [5, 5, 5, 5, 1]


@pytest.mark.req("FILE-5", "FILE-13")
async def test_a_put_that_broke_off_goes_on_where_it_was(mesh: Mesh) -> None:
    source, service = Bytes(LARGE), FileService()

    async def leave(index: int) -> None:
        if index == 12:
            raise asyncio.CancelledError

    source.before = leave
    async with running(mesh, service) as bus:
        with pytest.raises(asyncio.CancelledError):
            await put(bus, LARGE, source=source)
        assert (await ask(bus, "list"))["cids"] == []
        assert (await refusal(ask(bus, "read", cid=source.manifest.cid))).code == "not_found"
        again = Bytes(LARGE)
        done = await put(bus, LARGE, source=again)
        assert 0 < done.chunks < 21
        assert again.asked == list(range(21 - done.chunks, 21))
        assert await fetch(bus, done.cid, done.node) == LARGE


@pytest.mark.req("FILE-6", "FILE-13")
async def test_the_server_restarts_in_the_middle_of_both_ways(mesh: Mesh) -> None:
    restarted: list[int] = []

    async def restart(index: int) -> None:
        if index == 9 and not restarted:
            restarted.append(index)
            await asyncio.to_thread(mesh.restart_server)

    source, sink = Bytes(LARGE), Bytes()
    async with running(mesh) as bus:
        source.before = restart
        done = await put(bus, LARGE, source=source)
        assert restarted == [9]
        restarted.clear()
        sink.before = restart
        await blob_transfer.fetch(bus, done.cid, [done.node], sink, silent)
        assert bytes(sink.data) == LARGE
        assert restarted == [9]


@pytest.mark.req("FILE-13")
async def test_a_server_that_stays_away_is_not_waited_for_without_end(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_transfer, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(blob_transfer, "_LONGEST_PAUSE_SECONDS", 0.2)

    async def stop(index: int) -> None:
        if index == 9:
            await asyncio.to_thread(mesh.server.stop)

    source, sink = Bytes(LARGE), Bytes()
    async with running(mesh) as bus:
        done = await put(bus, OTHER)
        source.before = stop
        async with asyncio.timeout(20):
            away = await refusal(put(bus, LARGE, source=source))
            gone = await refusal(blob_transfer.fetch(bus, done.cid, [done.node], sink, silent))
    assert (away.code, gone.code) == ("partition", "partition")
    assert "repeat the command" in away.message
    assert "repeat the command" in gone.message


@pytest.mark.req("FILE-4")
async def test_two_put_the_same_at_once(mesh: Mesh) -> None:
    async with running(mesh) as bus, await mesh.bus() as other:
        both = await asyncio.gather(put(bus, LARGE, name="a"), put(other, LARGE, name="b"))
        assert both[0].cid == both[1].cid
        assert await fetch(bus, both[0].cid, both[0].node) == LARGE
    assert len(await subjects(mesh)) == 2


class Tampering:
    """A source that sends something else for one chunk."""

    def __init__(self, index: int, data: bytes) -> None:
        self.manifest = manifest_of(LARGE)
        self._index, self._data = index, data

    async def chunk(self, index: int) -> bytes:
        true = LARGE[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        return self._data if index == self._index else true


@pytest.mark.req("FILE-2", "FILE-14")
@pytest.mark.parametrize("data", [b"", b"short", LARGE[:CHUNK_BYTES]], ids=["empty", "short", "another"])
async def test_a_wrong_chunk_is_refused_when_it_comes(mesh: Mesh, data: bytes) -> None:
    async with running(mesh) as bus:
        wrong = await refusal(blob_transfer.put(bus, Tampering(5, data), Options(), silent))
        assert (wrong.code, wrong.details["chunk"]) == ("bad_request", 5)
        assert (await ask(bus, "list"))["cids"] == []
        # What came before it was right, and is not sent again.
        assert (await put(bus, LARGE)).chunks == 16


async def said(bus: Bus, body: dict[str, Any], *inputs: dict[str, Any]) -> HearthNetError:
    """What is answered to a put that sends just these inputs."""

    async def ask_for() -> None:
        async with bus.stream("file.put@1.0", {"params": {}, "input": body}) as stream:
            for one in inputs:
                await stream.send_input(one)
            async for _ in stream:
                pass

    return await refusal(ask_for())


@pytest.mark.req("FILE-14")
async def test_bad_input_is_said(mesh: Mesh) -> None:
    whole = manifest_of(OTHER)
    chunks = [{"i": index, "cid": cid} for index, cid in enumerate(whole.cids(0, 9))]
    good = {"cid": whole.cid, "size_bytes": whole.size, "chunks": chunks}
    async with running(mesh) as bus:
        short = {"manifest": {**good, "chunks": chunks[:1]}}
        for manifest, inputs, words in (
            ({**good, "cid": content_hash(OTHER)}, (), "these chunks and this size are not those of"),
            ({**good, "size_bytes": whole.size - 1}, (), "these chunks and this size are not those of"),
            ({**good, "size_bytes": 1}, (), "1 bytes are 1 chunks, not 3"),
            ({**good, "chunks": chunks[::-1]}, (), "the hashes of chunks come in order; 0 is next"),
            ({**good, "chunks": [*chunks, {"i": 3, "cid": whole.cid}]}, (), "are 3 chunks, not 4"),
            (short["manifest"], ({"chunks": []},), "hashes of chunks were asked for, and none came"),
            (short["manifest"], ({"i": 0},), "not what was asked for: "),
            (good, ({"i": 1, "cid": whole.cid, "data_b64": ""},), "was asked for, and something else came"),
            (good, ({"i": 0, "cid": "", "data_b64": "*"},), "not base64url: "),
            (good, ({},), "not what was asked for: "),
        ):
            wrong = await said(bus, {"manifest": manifest}, *inputs)
            assert wrong.code == "bad_request"
            assert words in wrong.message
        # Without a stream nothing can be sent.
        for unary in (good, {**good, "chunks": []}):
            wrong = await refusal(ask(bus, "put", manifest=unary))
            assert (wrong.code, "chunks are put in a stream" in wrong.message) == ("bad_request", True)
        assert (await ask(bus, "list"))["cids"] == []


@pytest.mark.req("FILE-9", "FILE-15")
async def test_who_may_read_list_and_remove(mesh: Mesh) -> None:
    async with running(mesh) as bus, await mesh.guest_bus() as guest:
        own, shared = await put(bus, OTHER, name="own"), await put(bus, LARGE, name="ours", share=True)
        async with await mesh.store() as store:
            theirs = await store.blobs.put([b"made by a call of the guest"], Hold(by=guest.peer.node_id))
        listed = await ask(guest, "list")
        assert set(listed["cids"]) == {shared.cid, theirs}
        ours = next(blob for blob in listed["blobs"] if blob["cid"] == shared.cid)
        assert (ours["name"], ours["mine"], ours["shared"]) == ("ours", False, True)
        assert set((await ask(bus, "list"))["cids"]) == {own.cid, shared.cid, theirs}
        node = bus.peer.node_id
        assert await fetch(guest, shared.cid, node) == LARGE
        assert await fetch(guest, theirs, node) == b"made by a call of the guest"
        for cid in (own.cid, content_hash(b"never stored")):
            assert (await refusal(fetch(guest, cid, node))).code == "not_found"
            assert (await refusal(ask(guest, "remove", cid=cid))).code == "not_found"
        assert (await refusal(ask(guest, "remove", cid=shared.cid))).code == "not_found"
        assert (await refusal(ask(guest, "remove", cid=shared.cid, all=True))).code == "unauthorized"
        # The guest is a plain member: it may not put.
        assert (await refusal(put(guest, OTHER))).code == "unauthorized"
        assert (await refusal(ask(bus, "remove", cid=theirs))).code == "not_found"
        assert await ask(bus, "remove", cid=theirs, all=True) == {"cid": theirs, "deleted": True}
        assert await ask(bus, "remove", cid=own.cid) == {"cid": own.cid, "deleted": True}
        assert (await ask(bus, "list"))["cids"] == [shared.cid]


@pytest.mark.req("FILE-9")
async def test_the_name_of_content_is_no_way_to_it(mesh: Mesh) -> None:
    """Who knows a CID, and even the hashes of its chunks, has to send the content to hold it."""
    roster, guest_id = keyring.load_roster(mesh.home.roster, mesh.identity.node_id), mesh.guest.device_key
    raised = raise_to(roster, mesh.identity, keyring.load_identity(guest_id), "trusted")
    write_roster(raised, mesh.home, mesh.guest)
    async with running(mesh) as bus, await mesh.guest_bus() as guest:
        done = await put(bus, LARGE, name="private")
        whole = manifest_of(LARGE)
        chunks = [{"i": index, "cid": cid} for index, cid in enumerate(whole.cids(0, 99))]
        body = {"manifest": {"cid": whole.cid, "size_bytes": whole.size, "chunks": chunks}}
        nothing = {"i": 0, "cid": chunks[0]["cid"], "data_b64": ""}
        assert (await said(guest, body, nothing)).code == "bad_request"
        assert (await refusal(fetch(guest, done.cid, done.node))).code == "not_found"
        # Who has it sends all of it, as if it were not there, and it is kept once.
        before = await subjects(mesh)
        assert (await put(guest, LARGE)).chunks == 21
        assert await subjects(mesh) == before
        assert await fetch(guest, done.cid, done.node) == LARGE
        assert await ask(bus, "remove", cid=done.cid) == {"cid": done.cid, "deleted": False}
        assert await ask(guest, "remove", cid=done.cid) == {"cid": done.cid, "deleted": True}


@pytest.mark.req("FILE-15")
async def test_a_long_list_comes_in_pages(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet_file.service._PAGE", 2)
    async with running(mesh) as bus:
        async with await mesh.store() as store:
            cids = sorted([await store.put_blob(b"%d" % number) for number in range(7)])
        first = await ask(bus, "list", limit=4)
        assert (first["cids"], first["more"]) == (cids[:4], True)
        second = await ask(bus, "list", limit=4, after=cids[3])
        assert (second["cids"], second["more"]) == (cids[4:], False)
        assert (await ask(bus, "list", prefix=cids[2][:20]))["cids"] == [cids[2]]


@pytest.mark.req("FILE-10", "FILE-16")
async def test_the_quota_and_the_disk_refuse_what_is_too_much(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(mesh, quota_mb=2)
    async with running(mesh) as bus:
        passing = await put(bus, OTHER, keep_seconds=3600)
        assert (await ask(bus, "list"))["blobs"][0]["until"] is not None
        full = await refusal(put(bus, LARGE))
        assert (full.code, full.details["quota_bytes"]) == ("capacity_exceeded", 2 * MB)
        # What is kept for a while only goes for what is new; what somebody holds for good stays.
        kept = await put(bus, LARGE[: 4 * CHUNK_BYTES])
        assert (await ask(bus, "list"))["cids"] == [kept.cid]
        assert (await refusal(put(bus, OTHER + OTHER))).code == "capacity_exceeded"
        assert (await refusal(ask(bus, "read", cid=passing.cid))).code == "not_found"
        monkeypatch.setattr(Home, "free_bytes", lambda home: 1000)
        little = await refusal(put(bus, b"little"))
        assert (little.code, "quota_bytes" in little.details) == ("capacity_exceeded", False)
        assert "disk" in little.message
        assert await fetch(bus, kept.cid, kept.node) == LARGE[: 4 * CHUNK_BYTES]


@pytest.mark.req("FILE-16")
async def test_two_at_once_do_not_take_the_same_room(mesh: Mesh) -> None:
    settings(mesh, quota_mb=1)
    first, refusals = Bytes(OTHER), list[HearthNetError]()
    async with running(mesh) as bus, await mesh.bus() as other:

        async def meanwhile(index: int) -> None:
            if index == 1:
                refusals.append(await refusal(put(other, os.urandom(CHUNK_BYTES))))

        first.before = meanwhile
        await put(bus, OTHER, source=first)
        assert [error.code for error in refusals] == ["capacity_exceeded"]
        assert re.fullmatch(
            r"[12] MB more are too much: this node keeps 1, and has 1; "
            r"remove something, or raise quota_mb in \[file\] there",
            refusals[0].message,
        )
        assert (await put(bus, b"little")).chunks == 1


@pytest.mark.req("FILE-17")
async def test_what_nobody_needs_is_cleared_away(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        # Left by processes that died: a broken upload, and one that was taken away by halves.
        await store.js.publish(f"{CHUNKS}put-{'0' * 64}", LARGE[:CHUNK_BYTES])
        foreign = await store.js.object_store("blobs")
        await foreign.put("somebody else's", b"object")
        service = FileService()
        async with running(mesh, service) as bus:
            passing = await put(bus, b"for a second", keep_seconds=1)
            kept = await put(bus, OTHER)
            await put(bus, b"taken away")
            assert (await ask(bus, "remove", cid=content_hash(b"taken away")))["deleted"]
            there = await subjects(mesh)
            removed = meta_subject(content_hash(b"taken away"))
            await service._sweeper.sweep(now_ms() + 30 * MINUTE_MS)
            assert set(await subjects(mesh)) < set(there)  # what was kept for a second
            assert f"{CHUNKS}put-{'0' * 64}" in await subjects(mesh)
            assert (await refusal(ask(bus, "read", cid=passing.cid))).code == "not_found"
            await service._sweeper.sweep(now_ms() + 61 * MINUTE_MS)
            assert f"{CHUNKS}put-{'0' * 64}" not in await subjects(mesh)
            await service._sweeper.sweep(now_ms() + 23 * 60 * MINUTE_MS)
            assert await store.blobs.link.last(removed) is not None, "it is told for a day"
            await service._sweeper.sweep(now_ms() + 25 * 60 * MINUTE_MS)
            assert await store.blobs.link.last(removed) is None
            assert await store.blobs.link.last(meta_subject(passing.cid)) is None
            assert await fetch(bus, kept.cid, kept.node) == OTHER
            assert (await foreign.get("somebody else's")).data == b"object"
            assert (await ask(bus, "list"))["cids"] == [kept.cid]


@pytest.mark.req("FILE-17")
async def test_the_sweeper_goes_on_after_trouble(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []

    async def trouble(blobs: Blobs, after: int = 0) -> AsyncIterator[Any]:
        times.append(after)
        raise HearthNetError("partition", "the store does not answer")
        yield

    class Hasty(FileService):
        sweep_seconds = 0.01

    monkeypatch.setattr(Blobs, "entries", trouble)
    async with running(mesh, Hasty()):
        await wait_for(lambda: len(times) > 2, 20, "the sweeper to try again")


@pytest.mark.req("FILE-18")
async def test_who_lacks_it_names_those_who_have_it(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    cid = content_hash(b"elsewhere")
    async with running(mesh) as bus, await mesh.guest_bus() as guest:
        assert await ask(guest, "advertise", cids=[cid, cid]) == {"recorded": 1}
        missing = await refusal(ask(bus, "read", cid=cid))
        assert missing.details == {"alt_nodes": [guest.peer.node_id]}
        monkeypatch.setattr("hearthnet_file.replicas.MOST_OF_A_NODE", 1)
        many = await refusal(ask(guest, "advertise", cids=[cid, content_hash(b"x")]))
        assert many.code == "capacity_exceeded"
    async with running(mesh) as bus:  # it is known after a restart, too, for a day
        assert (await refusal(ask(bus, "read", cid=cid))).details == {"alt_nodes": [guest.peer.node_id]}
        monkeypatch.setattr("hearthnet_file.service.now_ms", lambda: now_ms() + 25 * PARTIAL_MS)
        assert (await refusal(ask(bus, "read", cid=cid))).details == {}


class Liar(FileService):
    """Says it has everything, and sends something else from one chunk on."""

    name = "file"
    lie: str = "chunk"

    @capability("file.read@1.0")
    async def read(self, call: Call[Any, ReadInput], stream: Stream) -> Reply:
        manifest = manifest_of(LARGE if self.lie != "manifest" else OTHER)
        said_chunks = [{"i": index, "cid": cid} for index, cid in enumerate(manifest.cids(0, 1024))]
        said = {"cid": call.input.cid, "size_bytes": manifest.size, "chunk_size_bytes": CHUNK_BYTES}
        if self.lie != "silence":
            await stream.send("manifest", {**said, "chunks": said_chunks})
        for index in range(call.input.start, call.input.start + (call.input.count or 21)):
            data = LARGE[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
            if index >= 3 and self.lie == "end":
                break
            if index >= 3:
                data = {"chunk": os.urandom(len(data)), "garbage": b""}.get(self.lie, data)
            text = "*" if self.lie == "garbage" and index >= 3 else b64(data)
            cid = content_hash(data)
            await stream.send("chunk", {"i": index, "cid": cid, "size_bytes": 1, "data_b64": text})
        return Reply({}, {"chunks": 21})


@pytest.mark.req("FILE-7", "FILE-19")
@pytest.mark.parametrize("lie", ["chunk", "manifest", "garbage", "end", "silence"])
async def test_a_node_that_sends_wrong_bytes_is_found_out_at_the_chunk(mesh: Mesh, lie: str) -> None:
    liar = Liar()
    liar.lie = lie
    cid, sink = manifest_of(LARGE).cid, Bytes()
    async with mesh.hosting(liar, at=mesh.guest), await mesh.bus() as bus, await mesh.guest_bus() as guest:
        node = guest.peer.node_id
        wrong = await refusal(blob_transfer.fetch(bus, cid, [node], sink, silent))
        assert wrong.code == "internal_error"
        # What was handed on is right, and no more than what was.
        assert bytes(sink.data) == LARGE[: len(sink.data)]
        assert len(sink.data) == (0 if lie in ("manifest", "silence") else 3 * CHUNK_BYTES)
        async with running(mesh) as own:
            await put(own, LARGE)
            both = Bytes()
            done = await blob_transfer.fetch(bus, cid, [node, bus.peer.node_id], both, silent)
            assert bytes(both.data) == LARGE
            assert done.node == bus.peer.node_id


@pytest.mark.req("FILE-19")
async def test_a_node_that_wants_what_is_not_gets_nothing(mesh: Mesh) -> None:
    class Greedy(FileService):
        @capability("file.put@1.0")
        async def put(self, call: Call[Any, PutInput], stream: Stream) -> Reply:
            await stream.send("ready", {"needed": [9999]})
            await stream.receive()
            raise AssertionError

    async with running(mesh, Greedy()) as bus:
        greedy = await refusal(put(bus, OTHER))
        # The words of who puts: that it sent something, the other one would have said as `internal_error`.
        assert (greedy.code, greedy.message.endswith(" asks for what is not")) == ("internal_error", True)


@pytest.mark.req("FILE-13")
async def test_what_breaks_off_again_and_again_is_said(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_transfer, "PATIENCE_SECONDS", 0.0)
    asked: list[str] = []

    class Broken(FileService):
        @capability("file.read@1.0")
        async def read(self, call: Call[Any, ReadInput], stream: Stream) -> Reply:
            asked.append(call.id)
            await stream.progress("reading", 0, 1)
            raise HearthNetError("partition", "it broke off")

    async with running(mesh, Broken()) as bus:
        broken = await refusal(fetch(bus, content_hash(b"x"), bus.peer.node_id))
        assert (broken.code, len(asked)) == ("partition", 3)
        assert (await refusal(fetch(bus, content_hash(b"x")))).code == "not_found"


@pytest.mark.req("FILE-11", "CONTRACT-2")
@pytest.mark.parametrize("verb", ["read", "list", "put", "advertise", "remove"])
async def test_the_examples_of_the_contracts(mesh: Mesh, verb: str) -> None:
    async with running(mesh) as bus:
        for example in contracts().get(f"file.{verb}@1.0").examples:
            if document := example.get("given", {}).get("document"):
                async with await mesh.store() as store:
                    await store.put_blob(document.encode())
            call = bus.call(f"file.{verb}@1.0", example["request"])
            if "error" in example:
                error = await refusal(call)
                path = error.details.get("path")
                assert (error.code, path) == (example["error"], example.get("path", path))
                continue
            output = (await call).output
            events = []
            if verb in ("read", "put"):
                async with bus.stream(f"file.{verb}@1.0", example["request"]) as stream:
                    events = [frame.event async for frame in stream]
            assert missing_from_output(example["expect"], output, events) == []


async def test_nothing_of_the_bucket_is_left_over(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        done = await put(bus, LARGE)
        assert (await ask(bus, "remove", cid=done.cid))["deleted"]
    async with await mesh.store() as store:
        assert (await store.js.stream_info(STREAM)).state.messages == 1
