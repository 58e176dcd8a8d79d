"""Blobs by their CID in the home's own object store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.blobs import stream
from hearthnet.bus.blobs.blob_store import Blobs
from hearthnet.bus.blobs.metadata import (
    MOST_HOLDS,
    STREAM,
    BlobRecord,
    Hold,
    index_subject,
    joined_holds,
    meta_subject,
)
from hearthnet.bus.blobs.stream import BlobLink, SequenceChanged
from hearthnet.bus.blobs.writer import Writer
from hearthnet.bus.store import HomeStore
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import ROOM_BYTES, Home
from hearthnet.core.ids import new_ulid
from hearthnet.protocol.manifest import CHUNK_BYTES, LARGEST_BYTES, manifest_of
from tests.helpers.mesh import Mesh

pytestmark = pytest.mark.asyncio
LARGE = os.urandom(3 * CHUNK_BYTES + 1000)


async def refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    assert "\n" not in caught.value.message
    return caught.value


async def messages(store: HomeStore) -> int:
    return int((await store.js.stream_info(STREAM)).state.messages)


def most_mb(pid: int) -> float:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


async def visible(blobs: Blobs) -> set[str]:
    return {entry.name async for entry, _ in blobs.entries() if not entry.deleted}


@pytest.mark.req("FILE-1", "FILE-3")
async def test_content_in_pieces_is_read_in_parts(mesh: Mesh) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(LARGE), 100_000):
            yield LARGE[at : at + 100_000]

    async with await mesh.store() as store:
        blobs = store.blobs
        cid = await blobs.put(pieces(), Hold(name="large"))
        assert cid == manifest_of(LARGE).cid
        blob = await blobs.open(cid)
        assert (blob.cid, blob.size, blob.manifest.count) == (cid, len(LARGE), 4)
        assert b"".join([chunk async for chunk in blob.chunks()]) == LARGE
        assert b"".join([chunk async for chunk in blob.chunks(2)]) == LARGE[2 * CHUNK_BYTES :]
        for offset, length in (
            (0, 10),
            (CHUNK_BYTES - 5, 10),
            (len(LARGE) - 3, 100),
            (len(LARGE), 5),
            (7, 0),
        ):
            assert await blob.read(offset, length) == LARGE[offset : offset + length]
        assert await blobs.read(cid) == LARGE
        # NATS's own clients read the same object.
        assert (await (await store.js.object_store("blobs")).get(cid)).data == LARGE


@pytest.mark.req("FILE-1")
async def test_no_content_is_content_too(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        cid = await store.blobs.put([])
        assert cid == content_hash(b"")
        assert await store.blobs.read(cid) == b""
        assert await store.put_blob(b"") == cid


@pytest.mark.req("FILE-4")
async def test_the_same_content_at_once_is_kept_once(mesh: Mesh) -> None:
    async with await mesh.store() as store, await mesh.store() as other:
        cids = await asyncio.gather(
            *(
                place.blobs.put([LARGE], Hold(by=f"m{number}"))
                for number, place in enumerate([store, other] * 3)
            )
        )
        assert set(cids) == {manifest_of(LARGE).cid}
        # Four chunks, their list, the entry: what the others wrote is gone.
        assert await messages(store) == 6
        entry = await store.blobs.entry(cids[0])
        assert {hold.by for hold in entry.notes.holds} == {f"m{number}" for number in range(6)}
        assert await store.blobs.read(cids[0]) == LARGE


@pytest.mark.req("FILE-5")
async def test_an_upload_that_broke_off_is_not_visible_and_goes_on(mesh: Mesh) -> None:
    manifest = manifest_of(LARGE)
    async with await mesh.store() as store:
        first = Writer(store.blobs.link, "upload")
        for index in range(2):
            await first.append(LARGE[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])
        assert await visible(store.blobs) == set()
        assert (await refusal(store.blobs.read(manifest.cid))).code == "not_found"
    mesh.restart_server()
    async with await mesh.store() as store:
        second = Writer(store.blobs.link, "upload")
        while await second.check_next(manifest):
            pass
        assert (second.count, second.size) == (2, 2 * CHUNK_BYTES)
        for index in range(2, 4):
            await second.append(LARGE[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])
        await second.entry()  # as if it had died between the list of chunks and the entry
        assert await visible(store.blobs) == set()
        assert await store.blobs.commit(second, Hold()) == manifest.cid
        assert await store.blobs.commit(second, Hold()) == manifest.cid
        assert await store.blobs.read(manifest.cid) == LARGE


@pytest.mark.req("FILE-5")
async def test_of_an_upload_with_other_chunks_nothing_is_taken_over(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        first = Writer(store.blobs.link, "upload")
        await first.append(bytes(CHUNK_BYTES))
        second = Writer(store.blobs.link, "upload")
        assert not await second.check_next(manifest_of(LARGE))
        assert await messages(store) == 0
        # The first one notices that its place is no longer its own.
        await first.append(b"next")
        assert (await refusal(first.entry())).code == "capacity_exceeded"


@pytest.mark.req("FILE-5")
async def test_chunks_of_two_writers_between_each_other_make_no_blob(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        first, second = Writer(store.blobs.link, "upload"), Writer(store.blobs.link, "upload")
        await first.append(bytes(CHUNK_BYTES))
        assert (await refusal(second.append(b"other"))).code == "capacity_exceeded"
        assert await second.check_next(manifest_of(bytes(2 * CHUNK_BYTES)))
        await second.append(b"of the second")
        await first.append(b"of the first")
        for writer in (first, second):
            assert (await refusal(writer.entry())).code == "capacity_exceeded"


@pytest.mark.req("FILE-21")
async def test_server_memory_stays_flat_during_a_put(mesh: Mesh) -> None:
    """It held all that was written in the last ten seconds: 3 times the size of this content."""

    def pieces() -> Iterator[bytes]:
        for index in range(600):
            yield index.to_bytes(8, "big") + bytes(CHUNK_BYTES - 8)

    before = most_mb(mesh.server.process.pid)
    async with await mesh.store() as store:
        cid = await store.blobs.put(pieces())
        async for _ in (await store.blobs.open(cid)).chunks():
            pass
        assert most_mb(mesh.server.process.pid) - before < 100


@pytest.mark.req("FILE-5")
async def test_what_fails_on_the_way_is_cleared_away(mesh: Mesh) -> None:
    def pieces() -> Iterator[bytes]:
        yield LARGE
        raise OSError("the disk it came from is gone")

    async with await mesh.store() as store:
        with pytest.raises(OSError, match="is gone"):
            await store.blobs.put(pieces())
        assert await messages(store) == 0


@pytest.mark.req("FILE-6")
async def test_the_server_may_restart_while_content_is_put_and_read(mesh: Mesh) -> None:
    def pieces() -> Iterator[bytes]:
        for at in range(0, len(LARGE), CHUNK_BYTES):
            if at == 2 * CHUNK_BYTES:
                mesh.restart_server()
            yield LARGE[at : at + CHUNK_BYTES]

    async with await mesh.store() as store:
        cid = await store.blobs.put(pieces())
        read = []
        async for chunk in (await store.blobs.open(cid)).chunks():
            read.append(chunk)
            if len(read) == 1:
                mesh.restart_server()
        assert b"".join(read) == LARGE


@pytest.mark.req("FILE-6")
async def test_a_store_that_stays_away_is_said(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        blobs = Blobs(BlobLink(store.js, store.link, patience=0.2))
        cid = await blobs.put([b"content"])
        mesh.server.kill()
        assert (await refusal(blobs.read(cid))).code == "partition"
        mesh.server = mesh.server.again()


@pytest.mark.req("FILE-10")
async def test_a_server_that_is_silent_on_a_full_disk_is_not_waited_for(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await mesh.store() as store:
        blobs = Blobs(BlobLink(store.js, store.link), mesh.home)
        writer = Writer(blobs.link, "x")
        monkeypatch.setattr(stream, "ATTEMPT_SECONDS", 0.5)
        monkeypatch.setattr(Home, "free_bytes", lambda home: ROOM_BYTES - 1)
        with mesh.server.paused():
            full = await refusal(writer.append(b"content"))
        assert (full.code, full.message) == (
            "capacity_exceeded",
            "the disk has too little room for this content; free 1 MB, then try again",
        )


@pytest.mark.req("FILE-6")
async def test_an_answer_that_was_lost_is_found_again(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        link = store.blobs.link
        first = await link.append("$O.blobs.C.x", b"one", 0)
        assert await link.append("$O.blobs.C.x", b"one", 0) == first
        with pytest.raises(SequenceChanged):
            await link.append("$O.blobs.C.x", b"two", 0)
        with pytest.raises(SequenceChanged):
            await link.append("$O.blobs.C.y", b"two", 7)
        assert await link.subjects("$O.blobs.C.>") == {"$O.blobs.C.x": 1}
        assert await link.used_bytes() > 0


@pytest.mark.req("FILE-7")
async def test_what_is_stored_wrongly_is_noticed_at_the_chunk(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        cid = await store.blobs.put([LARGE])
        entry = await store.blobs.entry(cid)
        kept = await store.blobs.link.last(index_subject(entry.nuid))
        assert kept is not None
        # The third line points to the place of the first chunk.
        places = kept.data[4 * 32 :]
        lying = kept.data[: 4 * 32] + places[:16] + places[:8] + places[24:]
        await store.js.publish(index_subject(entry.nuid), lying, headers={"Nats-Rollup": "sub"})
        blob = await store.blobs.open(cid)
        chunks = blob.chunks()
        read = [await anext(chunks), await anext(chunks)]
        assert (await refusal(anext(chunks))).code == "internal_error"
        assert b"".join(read) == LARGE[: 2 * CHUNK_BYTES]
        for spoilt in (kept.data[:-8], bytes(len(kept.data)), kept.data[:40]):
            await store.js.publish(index_subject(entry.nuid), spoilt, headers={"Nats-Rollup": "sub"})
            assert (await refusal(store.blobs.open(cid))).code == "internal_error"


@pytest.mark.req("FILE-7")
async def test_what_is_removed_while_it_is_read(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        for data in (LARGE, b"short"):
            cid = await store.blobs.put([data])
            blob = await store.blobs.open(cid)
            assert await store.blobs.remove(cid)
            assert not await store.blobs.remove(cid)
            assert (await refusal(blob.chunk(0))).code == "not_found"
            assert (await refusal(store.blobs.read(cid))).code == "not_found"
            assert await store.blobs.put([data]) == cid
            assert await store.blobs.read(cid) == data


@pytest.mark.req("FILE-8")
async def test_a_blob_goes_with_the_last_who_holds_it(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        blobs = store.blobs
        cid = await blobs.put([LARGE], Hold(by="ada", name="a.txt"))
        assert await blobs.hold(cid, Hold(by="bob", until=1))
        assert await blobs.put_bytes(LARGE, Hold(by="eve")) == cid
        assert not await blobs.release(cid, {"ada"})
        assert await blobs.release(cid, {"eve"})  # what bob held has run out
        assert await blobs.release(cid, {"eve"})
        assert not await blobs.hold(cid, Hold())
        assert await visible(blobs) == set()
        # Only the entry that says so is left.
        assert await messages(store) == 1


@pytest.mark.req("FILE-9")
async def test_who_may_read() -> None:
    holds = (Hold(by="ada"), Hold(by="bob", until=5, shared=True))
    entry = BlobRecord(name="x").with_notes(BlobRecord(name="x").notes.__class__(holds, 1))
    assert entry.readable_by({"ada"}, 9)
    assert entry.readable_by({"eve"}, 4)
    assert not entry.readable_by({"eve"}, 9)
    assert not entry.readable_by({"bob"}, 9)
    # What says nothing, or what is unreadable, is the home's own.
    for old in (BlobRecord(name="x"), BlobRecord(name="x", metadata={"hearthnet": "?"})):
        assert old.notes.holds == (Hold(),)
        assert not old.readable_by({"ada"}, 9)


@pytest.mark.req("FILE-8")
async def test_what_one_holds_twice_is_held_as_much_as_ever() -> None:
    one = joined_holds((), Hold(by="ada", name="a", until=5, shared=True))
    assert joined_holds(one, Hold(by="ada", until=9)) == (Hold("ada", "a", 9, True),)
    assert joined_holds(one, Hold(by="ada", name="b")) == (Hold("ada", "b", 0, True),)
    many = tuple(Hold(by=str(number)) for number in range(MOST_HOLDS))
    assert len(joined_holds(many, Hold(by="7", name="new"))) == MOST_HOLDS
    with pytest.raises(HearthNetError) as caught:
        joined_holds(many, Hold(by="one more"))
    assert caught.value.code == "capacity_exceeded"


@pytest.mark.req("STORE-1")
async def test_open_blob_without_its_chunk_list_is_damaged(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        bucket = await store.js.object_store("blobs")
        for data in (LARGE[:CHUNK_BYTES], b""):
            cid = content_hash(data)
            await bucket.put(cid, data)
            assert await store.blobs.read(cid) == data
            blob = await store.blobs.open(cid)
            assert b"".join([chunk async for chunk in blob.chunks()]) == data
            assert await blob.read(5, 7) == data[5:12]
        cid = content_hash(LARGE)  # one hash over all, and no list of chunks
        await bucket.put(cid, LARGE)
        assert (await refusal(store.blobs.read(cid))).code == "internal_error"
        await bucket.put("no cid", b"x")
        assert (await refusal(store.blobs.read("no cid"))).code == "bad_request"
        assert await visible(store.blobs) >= {"no cid", cid}


@pytest.mark.req("FILE-10")
async def test_a_full_disk_takes_nothing(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await mesh.store() as store:
        monkeypatch.setattr(Home, "free_bytes", lambda home: 1_000_000)
        full = await refusal(store.put_blob(b"content"))
        assert (full.code, full.details["free_bytes"]) == ("capacity_exceeded", 1_000_000)

        def gone(home: Home) -> int:
            raise OSError

        monkeypatch.setattr(Home, "free_bytes", gone)
        assert await store.put_blob(b"content")


async def test_too_large_is_refused_at_the_chunk(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.bus.blobs.writer.LARGEST_BYTES", CHUNK_BYTES)
    taken: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(4):
            taken.append(number)
            yield bytes(CHUNK_BYTES)

    async with await mesh.store() as store:
        error = await refusal(store.blobs.put(pieces()))
        assert (error.code, error.message) == ("bad_request", f"content has at most {CHUNK_BYTES} bytes")
        assert taken == [0, 1]
        assert await messages(store) == 0
    assert LARGEST_BYTES == 4 << 30


async def test_a_damaged_entry_is_said(mesh: Mesh) -> None:
    cid, other = (content_hash(new_ulid().encode()) for _ in range(2))
    async with await mesh.store() as store:
        await store.js.publish(meta_subject(cid), b'{"name": 7}')
        error = await refusal(store.blobs.read(cid))
        assert error.code == "internal_error"
        assert error.message.startswith("an entry of the blob store is damaged: Expected `str`, got `int`")
        assert (await refusal(store.blobs.read(other))).code == "not_found"
