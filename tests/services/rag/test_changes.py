"""The rag service on a real node: documents of all kinds, newer versions, removal, and how far it is."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.cli.commands import ingest as command
from hearthnet.cli.input.text_files import TextFile, find
from hearthnet.core.canonical_json import content_hash
from hearthnet.trust.keys import Identity
from hearthnet_rag import RagService
from hearthnet_rag.ingest.progress import Ingestions
from hearthnet_rag.library import Library
from hearthnet_rag.readers.documents import HTML, PDF
from hearthnet_rag.schemas import CorpusParams, IngestInput, OneDocument
from tests.helpers.mesh import Mesh
from tests.services.rag.made import IMAGE, pdf
from tests.services.rag.test_service import call_by, ingest, lent, put, query, refusal, running

pytestmark = pytest.mark.asyncio
BOOK = pdf(["Chapter one. Wells and pumps.", "Chapter two. Cisterns keep rain."], outline=[("Cisterns", 1)])


async def remove(bus: Bus, corpus: str, cid: str) -> Any:
    return await bus.call("rag.remove@1.0", {"params": {"corpus": corpus}, "input": {"doc_cid": cid}})


async def titles(bus: Bus, corpus: str) -> list[str]:
    reply = await bus.call("rag.list_documents@1.0", {"params": {"corpus": corpus}, "input": {}})
    return [one["title"] for one in reply.output["documents"]]


@pytest.mark.req("RAG-31", "RAG-34")
async def test_a_pdf_answers_with_page_and_heading(mesh: Mesh) -> None:
    long = "\n".join(f"Line {line}: keep the cover of the shaft closed at night." for line in range(40))
    book = pdf([f"Wells\n{long}", f"Cisterns\n{long}"], outline=[("Wells", 0), ("Cisterns", 1)])
    cid = await put(mesh, book)
    async with running(mesh) as bus:
        made = (await ingest(bus, "home", cid, metadata={"path": "water.pdf"}, language="en")).output
        assert {name: made[name] for name in ("title", "media_type", "pages", "language", "replaced")} == {
            "title": "Wells",
            "media_type": PDF,
            "pages": 2,
            "language": "en",
            "replaced": [],
        }
        [found] = (await query(bus, "home", "cisterns")).output["chunks"]
    shown = found["metadata"]
    assert (shown["page"], shown["heading"], shown["chunk_index"]) == (2, "Cisterns", 1)
    assert shown["language"] == "en"


@pytest.mark.req("RAG-35")
async def test_pages_without_text_are_named_when_it_is_added_and_when_it_is_listed(mesh: Mesh) -> None:
    cid = await put(mesh, pdf(["Chapter one. Wells and pumps.", IMAGE, IMAGE]))
    runs = [{"first": 2, "last": 3}]
    async with running(mesh) as bus:
        assert (await ingest(bus, "home", cid)).output["pages_without_text"] == runs
        reply = await bus.call("rag.list_documents@1.0", {"params": {"corpus": "home"}, "input": {}})
        assert [one["pages_without_text"] for one in reply.output["documents"]] == [runs]


@pytest.mark.req("RAG-35")
async def test_after_documents_that_cannot_be_read_the_next_one_is(mesh: Mesh) -> None:
    bad = {
        "scan.pdf": (pdf([IMAGE]), "ocrmypdf"),
        "locked.pdf": (pdf(["x"], password="y"), "qpdf"),
        "broken.pdf": (b"%PDF-1.7", "is broken"),
        "photo.pdf": (b"\x89PNG\r\n\x1a\n\0", "is a PNG image"),
    }
    async with running(mesh) as bus:
        for name, (data, words) in bad.items():
            error = await refusal(ingest(bus, "home", await put(mesh, data), metadata={"path": name}))
            assert error.code == "bad_request"
            assert error.message.startswith(name)
            assert words in error.message
        assert (await ingest(bus, "home", await put(mesh, BOOK))).output["pages"] == 2
        assert len(await titles(bus, "home")) == 1


@pytest.mark.req("RAG-32")
async def test_a_newer_version_replaces_what_came_under_the_same_path(mesh: Mesh) -> None:
    old, new = [await put(mesh, f"# Soup\n\nBoil {what}.\n".encode()) for what in ("turnips", "carrots")]
    given: dict[str, Any] = {"metadata": {"path": "cook/soup.md"}, "media_type": "text/markdown"}
    async with running(mesh) as bus:
        await ingest(bus, "home", old, **given)
        assert (await ingest(bus, "home", new, update=True, **given)).output["replaced"] == [old]
        chunks = (await query(bus, "home", "soup turnips carrots")).output["chunks"]
        assert [chunk["metadata"]["doc_cid"] for chunk in chunks] == [new]
        again = (await ingest(bus, "home", new, update=True, **given)).output
        assert ("title" in again, again["chunks_indexed"]) == (False, 1)
        assert (await ingest(bus, "home", old, update=True, **given)).output["replaced"] == [new]
    async with running(mesh) as bus:
        assert len(await titles(bus, "home")) == 1
        assert "turnips" in (await query(bus, "home", "soup")).output["chunks"][0]["text"]


@pytest.mark.req("RAG-37")
async def test_update_of_what_is_unchanged_writes_nothing(mesh: Mesh) -> None:
    journal = mesh.home.service("rag") / "documents.jsonl"
    named: dict[str, Any] = {"metadata": {"path": "soup.md"}, "media_type": "text/markdown", "update": True}
    plain: dict[str, Any] = {"media_type": "text/markdown", "update": True}
    soup, bread = [await put(mesh, f"# {what}\n\nBoil it.\n".encode()) for what in ("Soup", "Bread")]
    async with running(mesh) as bus:
        await ingest(bus, "home", soup, **named)
        await ingest(bus, "home", bread, **plain)
        before = journal.read_bytes()
        for cid, given in ((soup, named), (bread, plain)):
            again = (await ingest(bus, "home", cid, **given)).output
            assert set(again) == {"doc_cid", "chunks_indexed", "tokens_indexed"}
        assert journal.read_bytes() == before
        # The same content in place of another version under its new name is a change.
        old = await put(mesh, b"# Old bread\n\nBake it.\n")
        await ingest(bus, "home", old, metadata={"path": "b.md"})
        moved = await ingest(bus, "home", bread, **{**plain, "metadata": {"path": "b.md"}})
        assert moved.output["replaced"] == [old]


@pytest.mark.req("CLI-41")
async def test_files_of_a_folder_are_read_in_together(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each ingestion waits until three others are under way: one after the other, none would end."""
    together, whole = threading.Barrier(4), Library.ingest

    def waiting(library: Library, *given: Any, **more: Any) -> Any:
        together.wait(60)
        return whole(library, *given, **more)

    monkeypatch.setattr(Library, "ingest", waiting)
    for number in range(8):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n\nBoil water {number} times.\n")
    summary: dict[str, Any] = {"ingested": [], "failed": []}
    lines: list[str] = []
    async with running(mesh) as bus:
        with mesh.published():
            order, texts = command._Order("book", False), find([tmp_path]).texts
            await command._ingest(mesh.home, order, texts, summary, command.ProgressDisplay(lines.append))
        assert len(await titles(bus, "book")) == 8
    assert [Path(one["path"]).name for one in summary["ingested"]] == [f"{number}.md" for number in range(8)]
    assert (summary["failed"], summary["not_tried"], len(lines)) == ([], [], 8)


@pytest.mark.req("RAG-33")
async def test_what_is_removed_is_found_no_more_also_after_damage(mesh: Mesh) -> None:
    soup, bread = [await put(mesh, text) for text in (b"# Soup\n\nBoil it.", b"# Bread\n\nBake it.")]
    async with running(mesh) as bus:
        for cid in (soup, bread):
            await ingest(bus, "home", cid, media_type="text/markdown")
        assert (await remove(bus, "home", soup)).output == {"doc_cid": soup, "chunks_removed": 1}
        assert (await query(bus, "home", "soup")).output["chunks"] == []
        error = await refusal(remove(bus, "home", soup))
        assert (error.code, error.details["path"]) == ("not_found", "/input/doc_cid")
    (mesh.home.service("rag") / "index.db").write_bytes(b"broken" * 1000)
    async with running(mesh) as bus:
        assert await titles(bus, "home") == ["Bread"]
        await remove(bus, "home", bread)
        listed = (await bus.call("rag.list_corpora", {"params": {}, "input": {}})).output["corpora"]
        assert [corpus["name"] for corpus in listed] == ["system"]
        assert (await ingest(bus, "home", bread)).output["chunks_indexed"] == 1


@pytest.mark.req("RAG-8", "RAG-33")
async def test_nothing_is_removed_from_or_replaced_in_the_starter_corpus(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        asked = {"params": {"corpus": "system"}, "input": {}}
        before = (await bus.call("rag.list_documents@1.0", asked)).output["documents"]
        one = before[0]
        cid = await put(mesh, b"# " + one["title"].encode() + b"\n\nx")
        for work in (remove(bus, "system", one["doc_cid"]), ingest(bus, "system", cid, update=True)):
            error = await refusal(work)
            assert (error.code, error.details) == ("unauthorized", {"path": "/params/corpus"})
            assert "is read-only" in error.message
        assert (await bus.call("rag.list_documents@1.0", asked)).output["documents"] == before


@pytest.mark.req("RAG-11", "RAG-33")
async def test_nobody_else_removes_replaces_or_follows_in_personal(mesh: Mesh) -> None:
    cid, service = await put(mesh, b"soup"), RagService()
    async with running(mesh, service) as bus, await mesh.guest_bus() as guest:
        await ingest(bus, "personal", cid)
        stranger, params = Identity.generate(), CorpusParams("personal")
        calls = [
            service.remove(call_by(stranger, "rag.remove@1.0", params, OneDocument(cid))),
            service.ingest(call_by(stranger, "rag.ingest@1.0", params, IngestInput(cid, update=True))),
        ]
        for call in calls:
            error = await refusal(call)
            assert (error.code, error.details["nearest"]) == ("not_found", ["system"])
        body = {"params": {"corpus": "personal"}, "input": {"doc_cid": cid}}
        token = lent(bus, guest.peer.node_id)
        assert (await guest.call("rag.progress@1.0", body, token=token)).output["state"] == "absent"
        # Not even under a token: it is lent for other capabilities.
        error = await refusal(guest.call("rag.remove@1.0", body, token=token, node=bus.peer.node_id))
        assert error.code == "token_scope_insufficient"
        assert len(await titles(bus, "personal")) == 1
        assert (await remove(bus, "personal", cid)).output["chunks_removed"] == 1


Held = tuple[asyncio.Event, asyncio.Event]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Ingestions stop at their first page, which sets the first event, until the second one is set."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    whole, read = Library.ingest, RagService._read

    async def in_loop(service: RagService, *wanted: Any) -> bytes:
        loops.append(asyncio.get_running_loop())
        return await read(service, *wanted)

    def slow(library: Library, record: Any, data: bytes, told: Any, **options: Any) -> Any:
        told("reading pages", 1, 2)
        loops[0].call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loops[0]).result(30)
        return whole(library, record, data, told, **options)

    monkeypatch.setattr(RagService, "_read", in_loop)
    monkeypatch.setattr(Library, "ingest", slow)
    return begun, go_on


@pytest.mark.req("RAG-36")
async def test_an_ingestion_can_be_followed(mesh: Mesh, held: Held) -> None:
    begun, go_on = held
    cid = await put(mesh, BOOK)
    body = {"params": {"corpus": "home"}, "input": {"doc_cid": cid}}
    async with running(mesh) as bus:
        seen: list[tuple[str, dict[str, Any]]] = []
        adding = asyncio.create_task(ingest(bus, "home", cid))
        await asyncio.wait_for(begun.wait(), 30)
        assert (await bus.call("rag.progress@1.0", body)).output["state"] == "running"
        async with bus.stream("rag.progress@1.0", body) as stream:
            async for frame in stream:
                seen.append((frame.event, frame.data))
                go_on.set()
        await adding
        assert seen[0] == ("progress", {"stage": "reading pages", "current": 1, "total": 2})
        assert seen[-1][0] == "done"
        assert (await bus.call("rag.progress@1.0", body)).output["state"] == "there"
        other = {**body, "input": {"doc_cid": content_hash(b"other")}}
        assert (await bus.call("rag.progress@1.0", other)).output["state"] == "absent"


@pytest.mark.req("RAG-36")
async def test_who_follows_too_early_waits_for_the_beginning() -> None:
    key = "home", "blake3:1"
    ingestions = Ingestions()
    following = aiter(ingestions.follow(key, 30.0))
    first = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    with ingestions.begin(key) as told:
        assert (await first).stage == "fetching"
        told("reading pages", 1, 2)
        assert (await anext(following)).current == 1
    with pytest.raises(StopAsyncIteration):
        await anext(following)
    told("indexing", 0, 1)
    await asyncio.sleep(0)
    assert ingestions.stage(key) is None
    assert [stage async for stage in ingestions.follow(key, 0.0)] == []


@pytest.mark.req("CLI-40", "RAG-36")
async def test_a_person_who_ingests_sees_how_far_it_is(
    mesh: Mesh, held: Held, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "_FOLLOW_AFTER_SECONDS", 0.0)
    _, go_on = held
    seen: list[str] = []

    def stage(text: str) -> None:
        seen.append(text)
        if text == "reading pages 1/2":
            go_on.set()

    cid = await put(mesh, BOOK)
    async with running(mesh) as bus:
        order, file = command._Order("home", False), TextFile(tmp_path / "b.pdf", "b.pdf")
        added = await command._add(bus, order, file, cid, command.ProgressDisplay(lambda text: None, stage))
        assert "reading pages 1/2" in seen
        assert command._counts([added]).startswith("2 pages, ")


@pytest.mark.req("RAG-34")
async def test_a_language_is_detected_unless_it_is_said(mesh: Mesh) -> None:
    german = "Der Brunnen gibt klares Wasser, wenn er mit Steinen ausgekleidet und gut abgedeckt ist."
    texts = (f"<html>{german}", f"<html lang=fr>{german}", f"<html>{german} Bald.")
    pages = [await put(mesh, text.encode()) for text in texts]
    async with running(mesh) as bus:
        assert (await ingest(bus, "home", pages[0], media_type=HTML)).output["language"] == "de"
        assert (await ingest(bus, "home", pages[1])).output["language"] == "fr"
        assert (await ingest(bus, "home", pages[2], language="en")).output["language"] == "en"
