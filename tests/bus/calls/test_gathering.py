"""A question to every home at once: whoever answers counts, and whoever does not is named."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet import Call, NodeContext
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls import gathering
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.offers import offered
from tests.helpers.probe import POST, QUERY, ProbeService, post, query
from tests.helpers.shelf import Shelf
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
LIST: dict[str, Any] = {"params": {}, "input": {}}


@pytest_asyncio.fixture
async def three(tmp_path: Path) -> AsyncIterator[Mesh]:
    """Three members on one server."""
    mesh = await start_mesh(tmp_path, "third")
    yield mesh
    mesh.server.stop()


class Leaving(ProbeService):
    """Leaves without a word."""

    async def start(self, node: NodeContext) -> None:
        """As usual."""
        self.node_id, self.leave = node.bus.peer.node_id, node.bus.peer.link.close
        await super().start(node)


async def fails(call: Call[Any, Any]) -> None:
    raise HearthNetError("internal_error", "out of order")


async def hangs(call: Call[Any, Any]) -> None:
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def everywhere(mesh: Mesh) -> AsyncIterator[tuple[Bus, list[ProbeService], list[str]]]:
    """A process of the founder's node, and the service and id of each home, the founder's first."""
    homes = [mesh.home, mesh.guest, *mesh.others]
    services = [ProbeService() for _ in homes]
    async with contextlib.AsyncExitStack() as stack:
        for home, service in zip(homes, services, strict=True):
            await stack.enter_async_context(mesh.hosting(service, at=home))
        bus = await stack.enter_async_context(await mesh.bus())
        await offered(bus, QUERY, len(homes))
        yield bus, services, [keyring.load_identity(home.device_key).node_id for home in homes]


@pytest.mark.req("GATHER-1", "ATTACK-112")
async def test_every_home_is_asked_and_who_fails_or_is_silent_is_named(three: Mesh) -> None:
    async with everywhere(three) as (bus, services, nodes):
        services[1].answer, services[2].answer = fails, hangs
        watch = Stopwatch()
        found = await bus.gather(QUERY, query(), timeout_seconds=4)
        assert watch.seconds() < 10
        await wait_for(lambda: services[2].stopped, what="the place to be given back")
    assert found.providers[0].node == nodes[0], "this home comes first"
    by_node = {one.node: one for one in found.providers}
    assert {node: one.state for node, one in by_node.items()} == dict(
        zip(nodes, ("answered", "failed", "silent"), strict=True)
    )
    assert [reply.provider for reply in found.replies] == [nodes[0]]
    failed = by_node[nodes[1]]
    assert failed.error is not None
    assert (failed.error.code, failed.reason) == ("internal_error", "out of order")
    assert by_node[nodes[2]].reason == "no answer in time"
    assert {one.node for one in found.missing} == set(nodes[1:])


@pytest.mark.req("GATHER-1")
async def test_the_best_of_them_alone_are_asked(three: Mesh) -> None:
    """What failed before is asked last."""
    async with everywhere(three) as (bus, services, nodes):
        services[1].answer = fails
        for node in nodes[1:]:
            for _ in range(3):
                with contextlib.suppress(HearthNetError):
                    await bus.call(QUERY, query(), node=node)
        found = await bus.gather(QUERY, query(), best=2, timeout_seconds=20)
    assert [(one.node, one.state) for one in found.providers] == [
        (nodes[0], "answered"),
        (nodes[2], "answered"),
    ]


@pytest.mark.req("GATHER-1")
async def test_a_home_that_is_known_and_silent_is_asked_and_named(mesh: Mesh) -> None:
    """It answers no search for providers either, and is not forgotten for that."""
    async with mesh.hosting(there := Leaving(), at=mesh.guest), await mesh.bus() as bus:
        await bus.call(QUERY, query())
        await there.leave()
        found = await bus.gather(QUERY, query(), timeout_seconds=20)
    (one,) = found.missing
    assert (one.node, one.state) == (there.node_id, "failed")
    assert one.error is not None
    assert one.error.code == "partition"


@pytest.mark.req("GATHER-1")
async def test_a_search_without_an_end_leaves_time_for_those_that_are_known(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(*_: object, **options: object) -> list[OfferView]:
        await asyncio.Event().wait()
        return []

    async with mesh.hosting(ProbeService(), at=mesh.guest), await mesh.bus() as bus:
        await bus.call(QUERY, query())
        monkeypatch.setattr(Discovery, "listed", endless)
        found = await bus.gather(QUERY, query(), timeout_seconds=4)
    assert [one.state for one in found.providers] == ["answered"]


@pytest.mark.req("GATHER-2", "ATTACK-110")
async def test_what_is_left_open_is_asked_of_each_home_in_turn(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home with many corpora takes no place of one that has a single one."""
    monkeypatch.setattr(gathering, "MOST_CALLS", 3)
    many, one = Shelf(tuple(f"a{number}" for number in range(9))), Shelf(("mine",))
    async with mesh.hosting(many, at=mesh.guest), mesh.hosting(one), await mesh.bus() as bus:
        await offered(bus, QUERY, 10)
        found = await bus.gather(QUERY, {"params": {}, "input": {"query": "water"}}, timeout_seconds=20)
        own = bus.peer.node_id
        corpora = {one.body["params"]["corpus"] for one in found.providers}
    assert len(corpora) == len(found.providers) == 10
    assert found.providers[0].node == own
    assert [one.state for one in found.providers] == ["answered"] * 3 + ["not_asked"] * 7
    assert found.missing[0].reason.startswith("not asked")


@pytest.mark.req("GATHER-2")
async def test_pages_are_read_to_the_end_or_to_a_bound(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MOST_PAGES", 4)

    def more(reply: ReceivedReply) -> dict[str, Any]:
        return query("again")

    async with mesh.hosting(service := ProbeService()), await mesh.bus() as bus:
        found = await bus.gather_from(QUERY, [(bus.peer.node_id, query())], more=more, timeout_seconds=20)
    assert len(found.replies) == len(service.calls) == 4
    assert [call.body["input"]["query"] for call in service.calls] == ["water", "again", "again", "again"]
    assert [one.reason for one in found.missing] == ["more than 4 pages, not all are read"]


@pytest.mark.req("GATHER-2")
async def test_a_page_that_names_no_next_one_fails_its_own_home_alone(three: Mesh) -> None:
    async with everywhere(three) as (bus, _services, nodes):

        def more(reply: ReceivedReply) -> dict[str, Any] | None:
            cids: list[str] = []
            return query(cids[-1]) if reply.provider == nodes[1] else None

        found = await bus.gather(QUERY, query(), more=more, timeout_seconds=20)
    states = {one.node: one.state for one in found.providers}
    assert states == {nodes[0]: "answered", nodes[1]: "failed", nodes[2]: "answered"}
    assert found.missing[0].reason.startswith("a page names no next one")


@pytest.mark.req("GATHER-1")
async def test_an_effect_and_a_malformed_question_are_refused_before_anybody_is_asked(mesh: Mesh) -> None:
    async with mesh.hosting(service := ProbeService()), await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="has an effect") as refused:
            await bus.gather(POST, post(ids.new_ulid()))
        assert refused.value.code == "bad_request"
        with pytest.raises(HearthNetError, match="has an effect"):
            await bus.gather_from(POST, [(bus.peer.node_id, post(ids.new_ulid()))])
        with pytest.raises(HearthNetError) as malformed:
            await bus.gather(QUERY, {"params": {}, "input": {}})
        assert malformed.value.code == "bad_request"
        nobody = await bus.gather("rag.list_corpora@1.0", LIST)
        assert (nobody.providers, nobody.error("rag.list_corpora").code) == ((), "not_found")
        assert (await bus.gather_from(QUERY, [])).providers == ()
    assert service.calls == []


@pytest.mark.req("GATHER-4")
async def test_a_corpus_of_one_home_is_searched_there_alone(three: Mesh) -> None:
    async with everywhere(three) as (bus, services, nodes):
        shown = bus.peer.roster.shown_name(nodes[2])
        for home in (shown, shown.upper(), nodes[2], ids.short_id(nodes[2])):
            reply = await bus.call(QUERY, query(corpus=f"probe@{home}"))
            assert reply.provider == nodes[2], home
        found = await bus.gather(QUERY, query(corpus=f"probe@{shown}"))
        assert [reply.provider for reply in found.replies] == [nodes[2]]
        assert [call.body["params"] for call in services[2].calls] == [{"corpus": "probe"}] * 5
        for corpus, node, code in (
            ("probe@nobody", "", "not_found"),
            ("probe@", "", "not_found"),
            (f"probe@{shown}", nodes[1], "bad_request"),
        ):
            with pytest.raises(HearthNetError) as refused:
                await bus.call(QUERY, query(corpus=corpus), node=node)
            assert refused.value.code == code, corpus
    assert not services[0].calls


@pytest.mark.req("GATHER-4", "ATTACK-111")
async def test_a_name_of_several_homes_is_refused_with_the_candidates(tmp_path: Path) -> None:
    """Names that look alike count as one, and none of them is taken."""
    mesh = await start_mesh(tmp_path, "kitchen", "k1tchen")
    try:
        async with everywhere(mesh) as (bus, services, nodes):
            for name in ("kitchen", "KITCHEN", "k1tchen"):
                with pytest.raises(HearthNetError, match="name one by its id") as refused:
                    await bus.call(QUERY, query(corpus=f"probe@{name}"))
                assert refused.value.code == "bad_request"
                assert set(refused.value.alt) == set(nodes[2:])
                assert all(ids.short_id(node) in refused.value.message for node in nodes[2:])
            assert not any(service.calls for service in services)
    finally:
        mesh.server.stop()
