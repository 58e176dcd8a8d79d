"""The mesh service on a real bus, beside the market, the library and a neighbour."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, ClassVar

import pytest

from hearthnet import Call, Offer, Reply, Service, capability
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls import gathering
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.service.hosting.main import load
from hearthnet.supervisor.services.specs import installed
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet_market import MarketService
from hearthnet_mesh import MeshService, sources
from hearthnet_rag import RagService
from hearthnet_rag.ingest.document_import import starter_files
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.mesh import Mesh
from tests.helpers.shelf import Shelf
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out because this computer is busy, and nothing is kept for the next question."""
    monkeypatch.setattr(sources, "ANSWER_SECONDS", 20.0)
    monkeypatch.setattr(sources, "CACHE_SECONDS", 0.0)


class BrokenLibrary(Service):
    """Lists one corpus, and fails when it is asked for its documents."""

    name: ClassVar[str] = "broken"

    def offers(self) -> list[Offer]:
        """Both lists."""
        return [Offer(capability=f"rag.list_{what}@1.0") for what in ("corpora", "documents")]

    @capability("rag.list_corpora@1.0")
    async def corpora(self, call: Call[Any, Any]) -> Reply:
        """One."""
        figures = {"docs": 1, "chunks": 1, "size_bytes": 1, "language_majority": None}
        return Reply({"corpora": [{"name": "broken", **figures}]})

    @capability("rag.list_documents@1.0")
    async def documents(self, call: Call[Any, Any]) -> Reply:
        """None."""
        raise HearthNetError("capacity_exceeded", "too busy with other things")


@contextlib.asynccontextmanager
async def everything(mesh: Mesh) -> AsyncIterator[Bus]:
    """The node with its library, market and mesh service, and another process of it."""
    async with (
        mesh.hosting(MarketService()),
        mesh.hosting(RagService()),
        mesh.hosting(MeshService()),
        await mesh.bus() as bus,
    ):
        yield bus


async def ask(bus: Bus, verb: str, given: dict[str, Any], **options: Any) -> Any:
    reply = await bus.call(f"mesh.{verb}@1.0", {"params": {}, "input": given}, timeout_seconds=60, **options)
    return reply.output


async def answer(
    bus: Bus, verb: str, given: dict[str, Any], wanted: Callable[[Any], Any], **options: Any
) -> Any:
    """The first answer that is as it is wanted: on a busy computer an offer may be heard a bit later."""

    async def once() -> Any:
        output = await ask(bus, verb, given, **options)
        return output if wanted(output) else None

    return await wait_for(once, 60, f"mesh.{verb} to answer as wanted")


async def rows(bus: Bus, sql: str, wanted: list[list[Any]], **options: Any) -> None:
    """Waits for the rows that are wanted."""
    output = await answer(bus, "query", {"sql": sql}, lambda output: output["rows"] == wanted, **options)
    assert (output["truncated"], output["incomplete"]) == (False, [])


async def post(bus: Bus, title: str) -> None:
    given = {"client_id": ids.new_ulid(), "category": "offer", "title": title, "body": "To lend."}
    await bus.call("market.post@1.0", {"params": {}, "input": given})


def fits(expect: dict[str, Any], output: dict[str, Any]) -> bool:
    """Whether an answer is as an example of a contract expects it."""
    return not missing_from_output(expect, output)


@pytest.mark.req("MESH-30")
async def test_the_service_is_installed_and_offers_its_five_capabilities() -> None:
    assert "mesh" in installed()
    service = load("mesh")
    assert isinstance(service, MeshService)
    assert [offer.capability for offer in service.offers()] == [
        "mesh.describe@1.0", "mesh.neighbours@1.0", "mesh.query@1.0", "mesh.relations@1.0", "mesh.search@1.0",
    ]  # fmt: skip


@pytest.mark.req("MESH-1", "MESH-2", "MESH-3", "MESH-5", "MESH-20")
async def test_the_examples_of_the_contracts(mesh: Mesh) -> None:
    async with mesh.hosting(RagService()), mesh.hosting(MeshService()), await mesh.bus() as bus:
        for verb in ("search", "describe", "relations", "query", "neighbours"):
            for example in contracts().get(f"mesh.{verb}@1.0").examples:
                if "error" in example:
                    with pytest.raises(HearthNetError) as caught:
                        await bus.call(f"mesh.{verb}@1.0", request_of(example, None), timeout_seconds=60)
                    assert caught.value.code == example["error"]
                    path = caught.value.details.get("path")
                    assert path == example.get("path", path)
                else:
                    expect, given = example["expect"], example["request"]["input"]
                    await answer(bus, verb, given, partial(fits, expect))


@pytest.mark.req("MESH-20", "MESH-26", "MESH-6")
async def test_a_query_reads_what_the_services_of_the_node_know(mesh: Mesh) -> None:
    async with everything(mesh) as bus, await mesh.guest_bus() as guest:
        await post(bus, "Ladder")
        member = bus.peer.roster.member(bus.peer.node_id)
        assert member is not None
        joined = "select title, display_name from posts join nodes on node = author"
        await rows(bus, joined, [["Ladder", member.display_name]])
        shipped = len(list(starter_files()))
        documents = "select count(*), max(corpus), count(distinct doc_cid) from documents"
        await rows(bus, documents, [[shipped, "system", shipped]])
        await rows(bus, "select name, docs from corpora", [["system", shipped]])
        called = "select count(*) from calls where capability = :c"
        given = {"sql": called, "bindings": {"c": "market.post@1.0"}}
        await answer(bus, "query", given, lambda output: output["rows"] == [[1]])
        assert (await ask(guest, "query", given))["rows"] == [[0]]
        await rows(guest, "select title from posts", [["Ladder"]])


@pytest.mark.req("MESH-6")
async def test_a_token_shows_what_it_covers_and_says_what_it_does_not(mesh: Mesh) -> None:
    async with everything(mesh) as bus, await mesh.guest_bus() as guest:
        await post(bus, "Ladder")

        def under(*names: str) -> str:
            scope = Scope(("mesh.query", *names))
            return mint(
                mesh.identity, subject=guest.peer.node_id, audience=bus.peer.community, scope=scope,
                now_ms=now_ms(), ttl_seconds=60,
            )  # fmt: skip

        sql = (
            "select title from posts union all select name from corpora union all select title from documents"
        )
        narrow = await ask(guest, "query", {"sql": sql, "limit": 500}, token=under())
        assert narrow["rows"] == []
        assert narrow["incomplete"] == [
            "corpora: the token does not cover rag.list_corpora@1.0",
            "documents: the token does not cover rag.list_documents@1.0",
            "posts: the token does not cover market.list@1.0",
        ]
        wide = under("market.list", "rag.list_corpora", "rag.list_documents", "rag.query")
        count = 2 + len(list(starter_files()))
        given = {"sql": sql, "limit": 500}
        output = await answer(guest, "query", given, lambda output: len(output["rows"]) == count, token=wide)
        assert output["incomplete"] == []


@pytest.mark.req("MESH-27")
async def test_what_cannot_be_asked_is_said(mesh: Mesh) -> None:
    async with (
        mesh.hosting(BrokenLibrary(), mesh.guest),
        mesh.hosting(MeshService()),
        await mesh.bus() as bus,
    ):
        given = {"sql": "select corpus from documents union select name from corpora"}
        output = await answer(bus, "query", given, lambda output: output["incomplete"])
        assert output["rows"] == [["broken"]]
        assert len(output["incomplete"]) == 1
        assert output["incomplete"][0].startswith("documents of ed25519:")
        await rows(bus, "select title from posts", [])


@pytest.mark.req("ATTACK-46")
async def test_what_is_missing_does_not_show_private_corpora(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_CALLS", 2)
    answers = []
    for private in ((), ("divorce", "taxes")):
        async with (
            mesh.hosting(Shelf(("recipes",), private)),
            mesh.hosting(Shelf(("songs", "tools", "walks")), mesh.guest),
            mesh.hosting(MeshService()),
            await mesh.bus() as bus,
            await mesh.guest_bus() as guest,
        ):
            given = {"sql": "select corpus from documents"}

            def is_whole(output: Any) -> bool:
                lines = " ".join(output["incomplete"])
                return "1 more were" in lines and f"documents of {bus.peer.node_id}" in lines

            told = await answer(guest, "query", given, is_whole)
            answers.append(told["incomplete"])
            assert f"documents of {bus.peer.node_id}: not answered" in told["incomplete"]
            own = await answer(bus, "query", given, is_whole)
            assert any("recipes" in line for line in own["incomplete"])
    assert answers[0] == answers[1]
    assert "documents: 1 more were not asked" in answers[0]


@pytest.mark.req("GATHER-5")
async def test_private_corpora_do_not_push_shared_ones_out(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come first by name, and are more than are asked for."""
    monkeypatch.setattr(gathering, "MOST_CALLS", 2)
    shelf = Shelf(("recipes",), ("accounts", "divorce", "letters"), has_documents=True)
    given = {"sql": "select corpus from documents order by corpus"}
    async with (
        mesh.hosting(shelf),
        mesh.hosting(MeshService()),
        await mesh.bus() as bus,
        await mesh.guest_bus() as guest,
    ):
        own = await answer(bus, "query", given, lambda output: len(output["rows"]) == 3)
        assert ["recipes"] in own["rows"]
        assert own["incomplete"] == ["documents: 1 more of this node were not asked"]
        assert await ask(guest, "query", given) == {**own, "rows": [["recipes"]], "incomplete": []}


@pytest.mark.req("MESH-5", "MESH-3")
async def test_who_is_here_is_seen_over_the_bus(mesh: Mesh) -> None:
    async with mesh.hosting(MeshService()), await mesh.bus() as bus:
        own, everybody = bus.peer.node_id, {"online_only": False}
        async with mesh.hosting(BrokenLibrary(), mesh.guest):
            here = await answer(bus, "neighbours", {}, lambda output: len(output["nodes"]) == 2)
            [guest] = [node for node in here["nodes"] if node["node_id"] != own]
            assert guest["capabilities"] == ["rag.list_corpora@1.0", "rag.list_documents@1.0"]
            given = {"name": guest["node_id"]}
            found = await answer(bus, "relations", given, lambda output: output["edges"])
            assert {edge["relation"] for edge in found["edges"]} == {"offers"}
        alone = await answer(bus, "neighbours", {}, lambda output: len(output["nodes"]) == 1)
        assert alone["nodes"][0]["node_id"] == own
        known = (await ask(bus, "neighbours", everybody))["nodes"]
        [away] = [node for node in known if node["node_id"] != own]
        assert (away["online"], away["last_seen"] is None, away["capabilities"]) == (False, False, [])


@pytest.mark.req("MESH-28")
async def test_who_asks_at_once_waits_for_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def slowly() -> int:
        asked.append(1)
        await asyncio.sleep(0)
        return len(asked)

    monkeypatch.setattr(sources, "CACHE_SECONDS", 600.0)
    cached = sources.CachedAnswer(slowly)
    assert await asyncio.gather(*(cached.get() for _ in range(10))) == [1] * 10
    assert await sources.CachedAnswer(slowly).get() == 2
