"""Content that the disk has damaged: named, found by reading slowly, and mended by putting it again."""

from __future__ import annotations

import os

import pytest

from hearthnet.bus import blob_transfer
from hearthnet.bus.blob_transfer import Options
from hearthnet.bus.blobs.metadata import CHUNKS, Hold
from hearthnet.bus.blobs.writer import Writer
from hearthnet.cli.workflows import file_verify
from hearthnet.core.times import now_ms
from hearthnet.protocol.manifest import CHUNK_BYTES, manifest_of
from hearthnet_file.garbage_collector import PARTIAL_MS
from hearthnet_file.scrubber import PASS_MS
from hearthnet_file.service import FileService
from tests.helpers.damage import flip
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.file.test_service import Bytes, fetch, put, refusal, running, silent

pytestmark = pytest.mark.asyncio
LARGE = os.urandom(6 * CHUNK_BYTES + 7)
CID = manifest_of(LARGE).cid
SMALL = b"Boil it for three minutes." * 40


class Quick(FileService):
    """Reads all it keeps in three seconds."""

    scrub_ms = 3_000


def note_of(service: FileService) -> str:
    """What `hearthnet status` shows beside the service."""
    return service.note or ""


async def first_chunk(service: FileService) -> None:
    await wait_for(lambda: service._scrubber.state.index == 1, 90, "the first chunk to be read")


def damage_on_disk(mesh: Mesh, *needles: bytes) -> None:
    """Flips a bit in each message that holds one of `needles`, while the server is down."""
    mesh.server.stop()
    for needle in needles:
        flip(mesh.home.jetstream, needle)
    mesh.server = mesh.server.again()


@pytest.mark.req("FILE-22")
async def test_damaged_chunk_is_named_and_mended_by_put(mesh: Mesh) -> None:
    service = FileService()
    async with running(mesh, service) as bus:
        await put(bus, LARGE, name="large.bin")
        damage_on_disk(mesh, LARGE[2 * CHUNK_BYTES : 2 * CHUNK_BYTES + 64])
        refused = await refusal(fetch(bus, CID, bus.peer.node_id))
        assert (refused.code, "damaged" in refused.message) == ("internal_error", True)
        assert service.note == "1 file is damaged on the disk; hearthnet file verify names it"
        source = Bytes(LARGE)
        assert (await put(bus, LARGE, source=source)).chunks == 7
        assert source.asked == list(range(7))
        assert note_of(service) == "", "at once"
        assert await fetch(bus, CID, bus.peer.node_id) == LARGE
        async with await mesh.store() as store:
            assert (await (await store.js.object_store("blobs")).get(CID)).data == LARGE
            assert [hold.name for hold in (await store.blobs.entry(CID)).notes.holds] == ["large.bin"]
        # And once more, now that it lies in the other of its two places.
        damage_on_disk(mesh, LARGE[5 * CHUNK_BYTES : 5 * CHUNK_BYTES + 64])
        assert (await put(bus, LARGE)).chunks == 7
        assert await fetch(bus, CID, bus.peer.node_id) == LARGE
        assert (await put(bus, LARGE)).chunks == 0


@pytest.mark.req("FILE-22")
@pytest.mark.parametrize("index", [True, False], ids=["list of chunks", "entry"])
async def test_damaged_index_or_entry_is_mended_by_put(
    mesh: Mesh, index: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    needle = manifest_of(LARGE).hashes[:64] if index else f'"name":"{CID}"'.encode()
    async with running(mesh) as bus:
        await put(bus, LARGE)
        damage_on_disk(mesh, needle)
        refused = await refusal(fetch(bus, CID, bus.peer.node_id))
        assert (refused.code, "damaged" in refused.message) == ("internal_error", True)
        with mesh.published():
            found = await file_verify.verified(mesh.home, [CID[7:20]], quiet=True)
        chunks = tuple(range(7)) if index else ()
        assert [(bad.cid, bad.chunks) for bad in found.damaged] == [(CID, chunks)]
        file_verify.show(found)
        assert ("chunk 1, 2" if index else "its entry") in capsys.readouterr().out
        await put(bus, LARGE)
        assert await fetch(bus, CID, bus.peer.node_id) == LARGE
        async with await mesh.store() as store:
            assert await store.blobs.lost() == []
            assert await store.blobs.hold(CID, Hold("somebody"))
            assert await store.blobs.read(CID) == LARGE


@pytest.mark.req("FILE-22", "FILE-17")
async def test_damaged_copies_are_let_alone_by_the_sweep(mesh: Mesh) -> None:
    """Clearing them away would have the server clear away what lies behind them."""
    service = FileService()
    async with running(mesh, service) as bus:
        await put(bus, LARGE)
        damage_on_disk(mesh, LARGE[2 * CHUNK_BYTES : 2 * CHUNK_BYTES + 64])
        await put(bus, LARGE)
        async with await mesh.store() as store:
            await Writer(store.blobs.link, "put-unfinished").append(SMALL)
            later = now_ms() + 2 * PARTIAL_MS
            for _ in range(2):
                await service._sweeper.sweep(later)
            places = {
                subject.removeprefix(CHUNKS) for subject in await store.blobs.link.subjects(f"{CHUNKS}>")
            }
        named = f"put-{CID[7:]}"
        assert places == {named, f"{named}.index", f"{named}-1", f"{named}-1.index"}
        assert await fetch(bus, CID, bus.peer.node_id) == LARGE


@pytest.mark.req("FILE-22", "FILE-17")
async def test_chunks_of_a_lost_entry_are_kept_for_the_next_put(mesh: Mesh) -> None:
    service = FileService()
    async with running(mesh, service) as bus:
        await put(bus, LARGE)
        damage_on_disk(mesh, f'"name":"{CID}"'.encode())
        await service._sweeper.sweep(now_ms() + 2 * PARTIAL_MS)
        assert service._sweeper.lost == [CID]
        assert (await put(bus, LARGE)).chunks == 0
        assert await fetch(bus, CID, bus.peer.node_id) == LARGE


@pytest.mark.req("FILE-22")
async def test_damaged_document_of_the_home_is_put_again(mesh: Mesh) -> None:
    async with await mesh.store() as store:
        cid = await store.put_blob(SMALL)
        damage_on_disk(mesh, SMALL[:60])
        assert (await refusal(store.blobs.read(cid))).code == "internal_error"
        assert await store.put_blob(SMALL) == cid
        assert await store.blobs.read(cid) == SMALL


@pytest.mark.req("FILE-23")
async def test_scrub_finds_damage_and_survives_a_restart(mesh: Mesh) -> None:
    service, after = Quick(), Quick()
    async with running(mesh, service) as bus:
        await put(bus, LARGE)
        await put(bus, SMALL)
        assert note_of(service) == ""
        damage_on_disk(mesh, LARGE[6 * CHUNK_BYTES :], SMALL[:60])
        await wait_for(lambda: "2 files are" in note_of(service), 60, "the damage to be found")
    async with running(mesh, after) as bus:
        assert "2 files are" in note_of(after)
        await blob_transfer.put(bus, Bytes(LARGE), Options(), silent)
        await wait_for(lambda: "1 file is" in note_of(after), 60, "the mended file to be noticed")
        await bus.call("file.remove@1.0", {"params": {}, "input": {"cid": manifest_of(SMALL).cid}})
        await wait_for(lambda: not note_of(after), 60, "the removed file to be noticed")


@pytest.mark.req("FILE-23")
async def test_scrub_goes_on_where_it_was_at_its_rate(mesh: Mesh) -> None:
    """Of seven chunks that are read in three days, one is read at once, and none after a restart."""
    service, after = FileService(), FileService()
    async with await mesh.store() as store:  # a service that finds nothing looks again a minute later
        await store.put_blob(LARGE)
    async with running(mesh, service):
        await first_chunk(service)
        stood = service._scrubber.state
        assert 0 < stood.due - now_ms() - 3_600_000 <= PASS_MS
        await service._scrubber.settle()
        assert service._scrubber.state.index == 1
    async with running(mesh, after):
        # The same chunk is next, at the same time: neither is it read again nor the next one at once.
        assert after._scrubber.state == stood
        assert (stood.cid, stood.index) == (CID, 1)
