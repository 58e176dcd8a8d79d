"""Content of a person who has several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import b64
from hearthnet.protocol.manifest import manifest_of
from hearthnet_file import FileService
from tests.helpers.mesh import Mesh, start_mesh, write_roster
from tests.helpers.residents import Resident, resident
from tests.services.file.test_service import ask, fetch, refusal
from tests.trust.people import settled

CONTENT = b"made by a call of the first node"


async def sent(who: Resident, data: bytes, name: str) -> str:
    """Puts content in that person's name, and returns its hash."""
    whole = manifest_of(data)
    chunks = [{"i": 0, "cid": whole.cids(0, 1)[0]}]
    given = {"manifest": {"cid": whole.cid, "size_bytes": whole.size, "chunks": chunks}, "name": name}
    body = {"params": {}, "input": given}
    consent = who.approval("file.put@1.0", body)
    async with who.bus.stream("file.put@1.0", body, token=who.token, approval=consent) as stream:
        async for frame in stream:
            if frame.event == "ready":
                await stream.send_input({**chunks[0], "data_b64": b64(data)})
    return whole.cid


@pytest.mark.asyncio
@pytest.mark.req("PERSON-62", "ATTACK-68", "FILE-9")
async def test_content_of_a_person_is_for_nobody_else_of_the_home(mesh: Mesh) -> None:
    async with mesh.hosting(FileService()), await mesh.bus() as bus:
        ada, ben = (resident(mesh.identity, bus, name) for name in ("ada", "ben"))
        cid, both = await sent(ada, b"a letter of Ada", "letter"), await sent(ada, b"the same", "hers")
        async with await mesh.store() as store:
            await store.blobs.put([b"the same"], Hold(name="ours"))
        listed = (await ada.call("file.list@1.0"))["blobs"]
        assert {one["name"] for one in listed} == {"letter", "hers"}
        assert (await ben.call("file.list@1.0"))["cids"] == []
        # The owner keeps the same content, and learns nothing of hers.
        (shown,) = (await ask(bus, "list"))["blobs"]
        assert (shown["cid"], shown["name"], shown["holders"]) == (both, "ours", 1)
        for attempt in (ben.call("file.read@1.0", {}, cid=cid), ben.call("file.remove@1.0", {}, cid=cid)):
            assert (await refusal(attempt)).code == "not_found"
        for verb in ("read", "remove"):
            unknown = await refusal(ask(bus, verb, cid=content_hash(b"unknown")))
            error = await refusal(ask(bus, verb, cid=cid))
            assert error.message.replace(cid[:23], "") == unknown.message.replace(
                content_hash(b"unknown")[:23], ""
            )
        assert (await ada.call("file.read@1.0", {}, cid=cid))["data_b64"] == b64(b"a letter of Ada")
        keyless = Resident(mesh.identity, bus, "program")
        with pytest.raises(HearthNetError, match="trusted members only"):
            await sent(keyless, b"from a program", "x")
        assert (await ada.call("file.remove@1.0", {}, cid=cid)) == {"cid": cid, "deleted": True}


@pytest.mark.asyncio
@pytest.mark.req("PERSON-20", "FILE-9")
async def test_content_is_read_and_removed_by_any_node_of_its_person(tmp_path: Path) -> None:
    mesh = await start_mesh(tmp_path, "second", "other", stores=False)
    first, second = (keyring.load_identity(home.device_key) for home in (mesh.guest, mesh.others[0]))
    held = settled(keyring.load_roster(mesh.home.roster, mesh.identity.node_id), first, second)
    write_roster(held, mesh.home, mesh.guest, *mesh.others)
    founder = mesh.identity.node_id
    try:
        async with (
            mesh.hosting(FileService()),
            await Bus.join(mesh.others[0], mesh.server.url, "second") as there,
            await Bus.join(mesh.others[1], mesh.server.url, "other") as stranger,
            await mesh.store() as store,
        ):
            cid = await store.blobs.put([CONTENT], Hold(by=first.node_id))
            assert (await ask(stranger, "list"))["cids"] == []
            assert (await refusal(fetch(stranger, cid, founder))).code == "not_found"
            (listed,) = (await ask(there, "list"))["blobs"]
            assert (listed["cid"], listed["mine"], listed["holders"]) == (cid, True, 1)
            assert await fetch(there, cid, founder) == CONTENT
            removed = await there.call("file.remove@1.0", {"params": {}, "input": {"cid": cid}}, node=founder)
            assert removed.output == {"cid": cid, "deleted": True}
    finally:
        mesh.server.stop()
