"""A member that has a model's node read for it: URLs, others' blobs, and images that decode to gigabytes."""

from __future__ import annotations

import asyncio
import base64
import itertools
import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from PIL import Image

from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.bus.store import HomeStore
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.trust.community import roster as rosters
from tests.helpers.members import raise_to
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.services.llm.model_server import ModelServer

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
CHAT, INGEST, QUERY = "llm.chat@2.0", "rag.ingest@1.0", "rag.query@1.0"
SECRET = b"The key of the house lies under the third flowerpot."
LLM_BYTES, CHILD_BYTES = 64 << 20, 640 << 20


@dataclass(frozen=True)
class Street:
    """A node with a model that sees, on a server near it, and members."""

    server: ModelServer
    shell: Shell
    url: str
    homes: dict[str, Home]
    llm: psutil.Process

    def bus(self, name: str) -> Any:
        """A process of a member."""
        return Bus.join(self.homes[name], self.url, name)

    async def store(self, data: bytes, by: str = "", *, shared: bool = False) -> str:
        """The CID of what the node keeps for itself, or for the member `by`."""
        holder = keyring.load_identity(self.homes[by].device_key).node_id if by else ""
        async with await HomeStore.join(self.homes["owner"], self.url, "owner") as store:
            return await store.blobs.put_bytes(data, Hold(holder, shared=shared))

    def reached(self) -> list[Any]:
        """What the model was asked."""
        return [body for method, _, _, body in self.server.asked if method == "POST"]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def street(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Street]:
    """`hearthnet up` with its processes; carol is trusted, mallory is a plain member."""
    folder: Path = tmp_path_factory.mktemp("street")
    patience = "[limits]\ncapability_soft = 0\ncapability_hard = 0\ntotal_soft = 0\ntotal_hard = 0\n"
    async with ModelServer(**{"far-1": {}}) as server:
        settings = patience + server.config(vision=True)
        neighbourhood = settle_in(
            folder, "mallory", "carol", services=("llm", "rag", "file"), settings=settings
        )
        homes = {"owner": neighbourhood.founder, **neighbourhood.members}
        _trust(homes, "carol")
        shell = Shell(neighbourhood.founder.path)
        node = shell.node()
        state = await asyncio.to_thread(node.__enter__)
        try:
            services = (await asyncio.to_thread(shell.json, "status", "--json"))["services"]
            llm = next(one["pid"] for one in services if one["name"] == "llm")
            yield Street(server, shell, str(state["server"]["url"]), homes, psutil.Process(llm))
        finally:
            await asyncio.to_thread(node.__exit__, None, None, None)


def _trust(homes: dict[str, Home], name: str) -> None:
    owner, raised = (keyring.load_identity(homes[one].device_key) for one in ("owner", name))
    roster = raise_to(keyring.load_roster(homes["owner"].roster), owner, raised, "trusted")
    for home in homes.values():
        home.roster.unlink()
        own = keyring.load_identity(home.device_key)
        keyring.write_new(home.roster, rosters.encode(rosters.seal(roster, own)))


def asked(*parts: dict[str, Any]) -> dict[str, Any]:
    """A question with media."""
    content = [{"type": "text", "text": "What is it?"}, *parts]
    return {"params": {}, "input": {"messages": [{"role": "user", "content": content}], "max_tokens": 5}}


async def refusal(bus: Bus, capability: str, body: dict[str, Any], node: str = "") -> HearthNetError:
    """The error of a call that must fail."""
    with pytest.raises(HearthNetError) as caught:
        await bus.call(capability, body, node=node, timeout_seconds=60)
    return caught.value


PLACES = (
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1:{port}/v1/models",
    "http://[::1]/",
    "http://2130706433/",
    "https://192.168.1.1/",
    "https://localhost/x.png",
    "https://printer.local/x.png",
    "https://example.org/x.png",
    "data:text/html,hello",
    "gopher://169.254.169.254/",
    "//169.254.169.254/",
)
OTHERS: tuple[dict[str, Any], ...] = (
    {"type": "document", "file_id": "file-secret"},
    {"type": "audio", "data": "file:///etc/passwd", "media_type": "audio/wav"},
    {"type": "document", "data": "http://169.254.169.254/", "media_type": "application/pdf"},
    {"type": "server_result", "name": "web_fetch", "id": "s", "result": {"url": "file:///etc/passwd"}},
)


@pytest.mark.req("ATTACK-38")
@pytest.mark.parametrize("who", ["mallory", "owner"])
async def test_no_url_reaches_a_server_near_the_node(street: Street, who: str) -> None:
    bus = await street.bus(who)
    port = street.server.host.partition(":")[2]
    kinds = ("image", "document", "video", "audio")
    named = [{"type": kind, "url": url.format(port=port)} for kind, url in itertools.product(kinds, PLACES)]
    try:
        for part in (*named, *OTHERS):
            error = await refusal(bus, CHAT, asked(part))
            assert error.code == "bad_request", part
            assert any(word in error.message for word in ("in data", "base64", "leave their calls")), part
        assert street.reached() == []
        await bus.call(CHAT, asked(), timeout_seconds=60)
        (honest,) = street.reached()
        assert "url" not in str(honest)
    finally:
        await bus.close()
        street.server.asked.clear()


@pytest.mark.req("ATTACK-38")
async def test_a_blob_is_read_with_the_rights_of_the_caller(street: Street) -> None:
    private, shared, carols = photo(400, 300, "red"), photo(400, 300, "green"), photo(400, 300, "blue")
    cids = [
        await street.store(private),
        await street.store(shared, shared=True),
        await street.store(carols, "carol"),
    ]
    may = {"mallory": (False, True, False), "carol": (False, True, True), "owner": (True, True, True)}
    try:
        for who, rights in may.items():
            bus = await street.bus(who)
            street.server.asked.clear()
            for cid, right in zip(cids, rights, strict=True):
                body = asked({"type": "image", "image_cid": cid})
                if right:
                    await bus.call(CHAT, body, timeout_seconds=60)
                else:
                    assert (await refusal(bus, CHAT, body)).code == "not_found"
            assert len(street.reached()) == sum(rights)
            sent = str(street.reached())
            shown = [base64.b64encode(one).decode() in sent for one in (private, shared, carols)]
            assert tuple(shown) == rights
            await bus.close()
    finally:
        street.server.asked.clear()


@pytest.mark.req("ATTACK-38")
async def test_no_other_place_of_a_request_has_anything_read(street: Street) -> None:
    """Media in the messages of other roles, ids in odd forms, and places that only look like text."""
    cid = await street.store(photo(300, 300, "red"))
    private = {"type": "image", "image_cid": cid}
    there = {"type": "image", "url": "file:///etc/passwd"}
    bus, messages = await street.bus("mallory"), list[list[dict[str, Any]]]()
    question = {"role": "user", "content": "What is it?"}
    call = {"id": "c1", "name": "look", "arguments": {}}
    for part in (private, there, {"type": "upload", "file_id": "file-secret"}):
        for role in ("system", "developer", "assistant", "user"):
            messages.append([{"role": role, "content": [part]}, question])
        answer = {"role": "tool", "tool_call_id": "c1", "content": [part]}
        messages.append([question, {"role": "assistant", "tool_calls": [call]}, answer])
    for odd in (cid.upper(), cid + "#", f" {cid}", cid.replace("blake3:", ""), f"../{cid}", f"{cid}\n"):
        messages.append([{"role": "user", "content": [{"type": "image", "image_cid": odd}]}])
    messages.append([{"role": "user", "content": [{**private, "url": "https://example.org/x.png"}]}])
    messages.append([{"role": "user", "content": [{**private, "data": "AAAA", "media_type": "image/png"}]}])
    try:
        for tried in messages:
            body = {"params": {}, "input": {"messages": tried, "max_tokens": 5}}
            assert (await refusal(bus, CHAT, body)).code in ("bad_request", "not_found"), tried
        assert street.reached() == []
    finally:
        await bus.close()
        street.server.asked.clear()


@pytest.mark.req("ATTACK-38")
async def test_a_document_is_read_with_the_rights_of_the_caller(street: Street) -> None:
    cid, known = await street.store(SECRET), await street.store(b"# Known\n\nNothing of interest.")
    owner, carol, mallory = [await street.bus(who) for who in ("owner", "carol", "mallory")]
    corpus = {"params": {"corpus": "stolen"}}
    body = {**corpus, "input": {"doc_cid": cid}}
    question = {**corpus, "input": {"query": "key house flowerpot"}}
    try:
        await owner.call(INGEST, {**corpus, "input": {"doc_cid": known}}, timeout_seconds=60)
        await owner.call("rag.share@1.0", {**corpus, "input": {"shared": True}})
        assert (await refusal(carol, INGEST, body, owner.peer.node_id)).code == "not_found"
        assert "flowerpot" not in str((await mallory.call(QUERY, question)).output)
        await street.store(SECRET, "carol")
        ingested = await carol.call(INGEST, body, node=owner.peer.node_id, timeout_seconds=60)
        assert ingested.output["chunks_indexed"] == 1
        assert "flowerpot" in str((await mallory.call(QUERY, question, timeout_seconds=60)).output)
    finally:
        for bus in (owner, carol, mallory):
            await bus.close()


def photo(width: int, height: int, colour: str = "red") -> bytes:
    """A photo as a camera writes it."""
    written = BytesIO()
    Image.new("RGB", (width, height), colour).save(written, "JPEG")
    return written.getvalue()


def webp_bomb(width: int, height: int) -> bytes:
    """A lossless WebP of one colour: each of its five codes has one symbol, so that a pixel takes no bits."""
    fields = [(width - 1, 14), (height - 1, 14), (1, 1), (0, 3), (0, 3), *[(0b0001, 4)] * 5]
    bits = at = 0
    for value, size in fields:
        bits |= value << at
        at += size
    stream = b"\x2f" + bits.to_bytes(-(-at // 8) + 4, "little")
    body = b"WEBPVP8L" + struct.pack("<I", len(stream)) + stream + b"\0" * (len(stream) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def png_bomb(width: int, height: int, frames: int = 1) -> bytes:
    """A grey PNG, deflated; with several frames, an animation."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    pixels = b"".join([packer.compress(bytes(width + 1)) for _ in range(height)]) + packer.flush()
    head = chunk(b"IHDR", struct.pack("!IIBBBBB", width, height, 8, 0, 0, 0, 0))
    animation, more = b"", b""
    if frames > 1:
        animation = chunk(b"acTL", struct.pack("!II", frames, 0))
        control = struct.pack("!IIIIHHBB", width, height, 0, 0, 1, 10, 0, 0)
        numbers = iter(range(1, 2 * frames))
        more = b"".join(
            chunk(b"fcTL", struct.pack("!I", next(numbers)) + control)
            + chunk(b"fdAT", struct.pack("!I", next(numbers)) + pixels)
            for _ in range(frames - 1)
        )
        animation += chunk(b"fcTL", struct.pack("!I", 0) + control)
    body = head + animation + chunk(b"IDAT", pixels) + more
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def _peak(process: psutil.Process) -> int:
    """The most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.req("ATTACK-39")
async def test_an_image_takes_no_memory_of_the_service(street: Street) -> None:
    bombs = {
        "webp": webp_bomb(16383, 16383),
        "webp at the bound": webp_bomb(4000, 3100),
        "png": png_bomb(16000, 16000),
        "png at the bound": png_bomb(4000, 3100),
        "animation": png_bomb(2000, 2000, 20),
    }
    assert len(bombs["webp"]) < 100
    mallory = await street.bus("mallory")
    before, children, peaks = _peak(street.llm), set[int](), [0]

    async def send(data: bytes) -> str:
        part = {"type": "image", "data": base64.b64encode(data).decode()}
        try:
            await mallory.call(CHAT, asked(part), timeout_seconds=100)
        except HearthNetError as error:
            return f"{error.code}: {error.message}"
        finally:
            for child in street.llm.children():
                children.add(child.pid)
                peaks.append(_peak(child))
        return "ok"

    try:
        results = dict(zip(bombs, await asyncio.gather(*map(send, bombs.values())), strict=True))
        assert "16383 x 16383 pixels; send one of at most 12 million" in results["webp"]
        assert "too many pixels; send one of at most 12 million" in results["png"]
        assert {results[name] for name in ("webp at the bound", "png at the bound", "animation")} == {"ok"}
        cid = await street.store(photo(4032, 3024), shared=True)
        await mallory.call(CHAT, asked({"type": "image", "image_cid": cid}), timeout_seconds=60)
        assert len(street.reached()) == 4
        assert len(children) == 1, "one process, which stays for the next image"
        assert max(peaks) < CHILD_BYTES
        assert _peak(street.llm) - before < LLM_BYTES
    finally:
        await mallory.close()
        street.server.asked.clear()
