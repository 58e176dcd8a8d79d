"""The rag service on a real node: its offers, its three capabilities, and who may do what."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.bus.bus import Bus
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash, digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol.header import Header
from hearthnet.trust.authorization.approval import SKEW_MS, Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity
from hearthnet_rag import RagService
from hearthnet_rag.index.chunking import cut
from hearthnet_rag.index.database import FILE
from hearthnet_rag.index.journal import FILE as JOURNAL
from hearthnet_rag.ingest import document_import as starter
from hearthnet_rag.ingest.document_import import LARGEST_BYTES, starter_files
from hearthnet_rag.readers import read_document
from hearthnet_rag.readers.documents import Document
from hearthnet_rag.schemas import DocumentsInput, IngestInput, QueryInput, SearchedParams
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
SOUP = b"# Soup\n\nBoil the soup.\n"


@contextlib.asynccontextmanager
async def running(mesh: Mesh, service: RagService | None = None) -> AsyncIterator[Bus]:
    """The service on the mesh, with its changes of offers announced, and another process to call it from."""
    rag = service or RagService()
    tasks: list[asyncio.Task[None]] = []
    async with mesh.hosting(rag) as host, await mesh.bus() as bus:
        rag.on_offers_changed(lambda: tasks.append(asyncio.create_task(host.refresh())))
        yield bus
        await asyncio.gather(*tasks)


async def ingest(bus: Bus, corpus: str, cid: str, **given: Any) -> Any:
    body = {"params": {"corpus": corpus}, "input": {"doc_cid": cid, **given}}
    return await bus.call("rag.ingest@1.0", body)


async def query(bus: Bus, corpus: str, text: str, **given: Any) -> Any:
    return await bus.call("rag.query@1.0", {"params": {"corpus": corpus}, "input": {"query": text, **given}})


async def put(mesh: Mesh, data: bytes) -> str:
    async with await mesh.store() as store:
        return await store.put_blob(data)


async def refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    assert "\n" not in caught.value.message
    return caught.value


async def offered(bus: Bus, capability: str) -> list[dict[str, Any]]:
    """What the offers of the one process say."""
    views = await wait_for(lambda: bus.offers(capability), what=f"offers of {capability}")
    return sorted((view.params for view in views), key=str)


def call_by(identity: Identity, capability: str, params: Any, given: Any) -> Call[Any, Any]:
    """A call as the service library would hand it over, from a member with `identity`."""
    header = Header(
        kind="call",
        id=ids.new_ulid(),
        sender=identity.node_id,
        community=identity.node_id,
        from_instance="testtest",
        time=now_ms(),
    )
    return Call(
        header=header, contract=contracts().get(capability), body={}, params=params, input=given,
        principal=identity.node_id, approval=None, evidence=None, until=0.0,
    )  # fmt: skip


def lent(bus: Bus, holder: str) -> str:
    """A token of the node for `holder`, for what rag offers, less removal and the list of documents."""
    return mint(
        bus.peer.identity,
        subject=holder,
        audience=bus.peer.community,
        scope=Scope(("rag.query", "rag.ingest", "rag.progress", "rag.list_corpora")),
        now_ms=now_ms(),
        ttl_seconds=60,
    )


def approval_until(bus: Bus, actor: str, body: dict[str, Any], expires: int) -> Approval:
    """The node's yes to this ingestion by `actor`."""
    node = bus.peer.node_id
    return sign_approval(
        bus.peer.identity,
        Approval(
            id=ids.new_ulid(), community=bus.peer.community, approver=node, actor=actor, provider=node,
            capability="rag.ingest@1.0", arguments_digest=digest(body), idempotency_key="", run="",
            tool_call_id="", time=now_ms() - 3 * SKEW_MS, expires=expires,
        ),
    )  # fmt: skip


@pytest.mark.req("RAG-1", "RAG-8")
async def test_after_the_first_start_the_starter_corpus_answers(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        assert await offered(bus, "rag.query") == [{"corpus": "system", "embedding_model": None, "k_max": 20}]
        assert await offered(bus, "rag.ingest") == [
            {"corpora_available": [], "max_document_bytes": LARGEST_BYTES}
        ]
        reply = await query(bus, "system", "How do I make rainwater safe to drink?", k=3)
    assert reply.meta["corpus"] == "system"
    assert reply.meta["embedding_model"] is None
    assert [chunk["rank"] for chunk in reply.output["chunks"]] == [1, 2, 3]
    best = reply.output["chunks"][0]
    assert best["metadata"]["path"] == "water-rainwater.md"
    assert best["metadata"]["sources"]
    assert "first flush" in best["text"]


@pytest.mark.req("RAG-8")
async def test_a_second_start_reads_nothing_again(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(data: bytes, media_type: str, name: str) -> Document:
        read.append(name)
        return read_document(data, media_type, name)

    monkeypatch.setattr(starter, "read_document", reading)
    async with running(mesh):
        assert len(read) == len(starter_files())
    file = mesh.home.service("rag") / FILE
    before = file.stat().st_mtime_ns
    read.clear()
    async with running(mesh) as bus:
        assert read == []
        assert len((await query(bus, "system", "candles")).output["chunks"]) == 5
    assert file.stat().st_mtime_ns == before


@pytest.mark.req("RAG-1")
async def test_text_can_be_left_out(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        reply = await query(bus, "system", "candles", include_text=False)
    assert reply.output["chunks"]
    assert all("text" not in chunk for chunk in reply.output["chunks"])


@pytest.mark.req("RAG-4")
async def test_a_new_corpus_is_offered_and_searched_at_once(mesh: Mesh) -> None:
    cid = await put(mesh, SOUP)
    async with running(mesh) as bus:
        first = await ingest(bus, "home", cid, media_type="text/markdown", metadata={"path": "soup.md"})
        assert first.output == {
            "doc_cid": cid,
            "chunks_indexed": 1,
            "tokens_indexed": 7,
            "title": "Soup",
            "language": None,
            "media_type": "text/markdown",
            "pages": None,
            "replaced": [],
            "pages_without_text": [],
        }
        assert first.meta["corpus"] == "home"
        assert ids.is_ulid(first.meta["ingest_event_id"])

        async def both() -> bool:
            return [params["corpus"] for params in await offered(bus, "rag.query")] == ["home", "system"]

        await wait_for(both, what="the corpus to be offered")
        found = (await query(bus, "home", "soups")).output["chunks"]
        assert [chunk["metadata"]["path"] for chunk in found] == ["soup.md"]
        again = await ingest(bus, "home", cid, title="Another title")
        assert again.output == {name: first.output[name] for name in again.output}
        assert again.meta["ingest_event_id"] == first.meta["ingest_event_id"]


@pytest.mark.req("RAG-5")
@pytest.mark.parametrize(
    ("data", "words"), [(b"\0\1\2", "is not text"), (b"", "is empty"), (b"\xff", "is not UTF-8")]
)
async def test_a_file_that_is_no_text_is_refused_and_nothing_is_kept(
    mesh: Mesh, data: bytes, words: str
) -> None:
    cid = await put(mesh, data)
    async with running(mesh) as bus:
        error = await refusal(ingest(bus, "home", cid, metadata={"path": "photo.txt"}))
        assert len(await offered(bus, "rag.query")) == 1
    assert not (mesh.home.service("rag") / JOURNAL).exists()
    assert error.code == "bad_request"
    assert error.message.startswith(f"photo.txt {words}")


@pytest.mark.req("RAG-5")
async def test_a_blob_that_is_not_stored(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        error = await refusal(ingest(bus, "home", content_hash(b"nowhere")))
    assert error.code == "not_found"
    assert f"keeps no blob {content_hash(b'nowhere')[:23]}" in error.message


@pytest.mark.req("RAG-8")
async def test_the_starter_corpus_is_read_only(mesh: Mesh) -> None:
    cid = await put(mesh, SOUP)
    async with running(mesh) as bus:
        error = await refusal(ingest(bus, "system", cid))
    assert error.code == "unauthorized"
    assert "choose another name" in error.message


@pytest.mark.req("RAG-7")
async def test_corpora_are_listed(mesh: Mesh) -> None:
    cid = await put(mesh, SOUP)
    async with running(mesh) as bus:
        await ingest(bus, "home", cid)
        listed = (await bus.call("rag.list_corpora", {"params": {}, "input": {}})).output["corpora"]
    home, system = listed
    soup = read_document(SOUP)
    assert (home["name"], home["docs"], home["chunks"]) == ("home", 1, len(cut(soup.body, soup.headings)))
    assert home["size_bytes"] == len(soup.body.encode())
    assert (system["name"], system["language_majority"]) == ("system", "en")
    documents = [read_document(file.data) for file in starter_files()]
    assert system["docs"] == len(documents)
    assert system["chunks"] == sum(len(cut(one.body, one.headings)) for one in documents)
    assert system["size_bytes"] == sum(len(one.body.encode()) for one in documents)


@pytest.mark.req("RAG-11")
async def test_personal_is_offered_to_its_own_node_only(mesh: Mesh) -> None:
    cid = await put(mesh, SOUP)
    service = RagService()
    async with running(mesh, service) as bus:
        await ingest(bus, "personal", cid)
        assert [offer.trust for offer in service.offers() if offer.params.get("corpus") == "personal"] == [
            "home"
        ]
        assert len((await query(bus, "personal", "soup")).output["chunks"]) == 1
        listed = (await bus.call("rag.list_corpora", {"params": {}, "input": {}})).output["corpora"]
        assert [corpus["name"] for corpus in listed] == ["personal", "system"]
        assert await offered(bus, "rag.ingest") == [
            {"corpora_available": [], "max_document_bytes": LARGEST_BYTES}
        ]
        await _check_hidden_from(Identity.generate(), service, cid)


async def _check_hidden_from(stranger: Identity, service: RagService, cid: str) -> None:
    params = SearchedParams("personal")
    error = await refusal(service.query(call_by(stranger, "rag.query@1.0", params, QueryInput("soup"))))
    assert (error.code, error.details["nearest"]) == ("not_found", ["system"])
    error = await refusal(service.ingest(call_by(stranger, "rag.ingest@1.0", params, IngestInput(cid))))
    assert (error.code, error.details["nearest"]) == ("not_found", ["system"])
    reply = await service.list_corpora(call_by(stranger, "rag.list_corpora@1.0", None, None))
    assert [corpus["name"] for corpus in reply.output["corpora"]] == ["system"]


@pytest.mark.req("RAG-10")
async def test_a_damaged_index_is_rebuilt_from_starter_and_journal(mesh: Mesh) -> None:
    cid, lost = await put(mesh, SOUP), await put(mesh, b"bread")
    async with running(mesh) as bus:
        first = await ingest(bus, "home", cid, title="Grandmother's soup")
        await ingest(bus, "home", lost)
    async with await mesh.store() as store:
        await (await store.js.object_store("blobs")).delete(lost)
    file = mesh.home.service("rag") / FILE
    file.write_bytes(b"broken" * 1000)
    service = RagService()
    async with running(mesh, service) as bus:
        [soup] = (await query(bus, "home", "soup")).output["chunks"]
        assert soup["metadata"]["doc_title"] == "Grandmother's soup"
        again = await ingest(bus, "home", cid)
        assert again.meta["ingest_event_id"] == first.meta["ingest_event_id"]
        assert (await query(bus, "system", "candles")).output["chunks"]
    [kept] = file.parent.glob(f"{FILE}.damaged-*")
    assert kept.read_bytes() == b"broken" * 1000
    assert service.note == (
        f"the search index was damaged: kept as {kept.name}, rebuilt with 1 of your documents; "
        "1 could not be read any more; "
        "private until you decide: home; hearthnet corpus share home, or: hearthnet corpus unshare home"
    )


@pytest.mark.req("RAG-11")
async def test_a_token_of_the_node_opens_personal_to_nobody_else(mesh: Mesh) -> None:
    cid = await put(mesh, SOUP)
    async with running(mesh) as bus, await mesh.guest_bus() as guest:
        await ingest(bus, "personal", cid)
        token, other = lent(bus, guest.peer.node_id), await put(mesh, b"bread")
        body = {"params": {"corpus": "personal"}, "input": {"doc_cid": other}}
        yes = approval_until(bus, guest.peer.node_id, body, now_ms() + SKEW_MS)
        error = await refusal(guest.call("rag.ingest@1.0", body, token=token, approval=yes))
        assert (error.code, error.details["nearest"]) == ("not_found", ["system"])
        listed = await guest.call("rag.list_corpora@1.0", {"params": {}, "input": {}}, token=token)
        assert [corpus["name"] for corpus in listed.output["corpora"]] == ["system"]


async def test_an_approval_that_is_too_old_adds_nothing(mesh: Mesh) -> None:
    cid = await put(mesh, SOUP)
    async with running(mesh) as bus:
        body, node = {"params": {"corpus": "home"}, "input": {"doc_cid": cid}}, bus.peer.node_id
        old, fresh = (approval_until(bus, node, body, now_ms() + later) for later in (-2 * SKEW_MS, SKEW_MS))
        error = await refusal(bus.call("rag.ingest@1.0", body, token=lent(bus, node), approval=old))
        assert error.code == "expired"
        assert not (mesh.home.service("rag") / JOURNAL).exists()
        assert len(await offered(bus, "rag.query")) == 1
        reply = await bus.call("rag.ingest@1.0", body, token=lent(bus, node), approval=fresh)
        assert reply.output["title"] == "# Soup", "a document that is there already has none in its reply"


async def test_stop_before_a_start_does_nothing() -> None:
    await RagService().stop()


@pytest.mark.req("RAG-14")
async def test_documents_are_listed_by_title_to_those_who_may_search(mesh: Mesh) -> None:
    cids = [await put(mesh, text) for text in (b"# Soup\n\nBoil.\n", b"# Bread\n\nBake.\n")]
    service = RagService()
    async with running(mesh, service) as bus:
        for cid in cids:
            await ingest(bus, "personal", cid, media_type="text/markdown")
        asked = {"params": {"corpus": "personal"}, "input": {}}
        reply = await bus.call("rag.list_documents@1.0", asked)
        assert [one["title"] for one in reply.output["documents"]] == ["Bread", "Soup"]
        assert not reply.output["truncated"]
        stranger = Identity.generate()
        call = call_by(stranger, "rag.list_documents@1.0", SearchedParams("personal"), DocumentsInput())
        assert (await refusal(service.list_documents(call))).code == "not_found"


@pytest.mark.req("RAG-12", "RAG-14")
@pytest.mark.parametrize(
    "name",
    [
        "rag.query@1.0",
        "rag.ingest@1.0",
        "rag.list_corpora@1.0",
        "rag.list_documents@1.0",
        "rag.remove@1.0",
        "rag.share@1.0",
        "rag.progress@1.0",
    ],
)
async def test_the_examples_of_the_contracts(mesh: Mesh, name: str) -> None:
    async with running(mesh) as bus:
        for example in contracts().get(name).examples:
            cid, document = "", example.get("given", {}).get("document")
            if document is not None:
                cid = await put(mesh, document.encode())
                assert cid == example["request"]["input"]["doc_cid"]
            if (corpus := example.get("given", {}).get("corpus")) not in {None, "system"}:
                await ingest(bus, corpus, cid or await put(mesh, SOUP))
            work = bus.call(name, request_of(example, None))
            if "error" in example:
                error = await refusal(work)
                assert error.code == example["error"]
                assert error.details.get("path") == example.get("path", error.details.get("path"))
            else:
                reply = await work
                assert missing_from_output(example["expect"], reply.output) == []


@pytest.mark.req("RAG-1")
async def test_an_unknown_filter_is_refused_with_the_names_of_those_there_are(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        error = await refusal(query(bus, "system", "water", filter={"author": "Ada"}))
    assert error.code == "bad_request"
    assert 'has no field "author"; it has doc_cid, language, min_year' in error.message
