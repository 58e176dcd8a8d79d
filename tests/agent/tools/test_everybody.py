"""Tools that every home answers, over a real bus: which corpora there are, and a search in all of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hearthnet import Call, Reply, capability
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools import everybody
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import ToolCall, ToolResult
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.shelf import Shelf

pytestmark = pytest.mark.asyncio
QUERY, LIST = "rag.query@1.0", "rag.list_corpora@1.0"


class Shut(Shelf):
    """A library that is out of order."""

    @capability(LIST)
    async def corpora(self, call: Call[Any, Any]) -> Reply:
        """Nothing."""
        raise HearthNetError("internal_error", "the private diary cannot be read")

    @capability(QUERY)
    async def query(self, call: Call[Any, Any]) -> Reply:
        """Nothing."""
        raise HearthNetError("internal_error", "the private diary cannot be read")


@contextlib.asynccontextmanager
async def shelves(mesh: Mesh, here: Shelf, there: Shelf) -> AsyncIterator[Bus]:
    async with mesh.hosting(here), mesh.hosting(there, at=mesh.guest), await mesh.bus() as bus:
        await offered(bus, LIST, 2)
        yield bus


async def result(bus: Bus, name: str, params: dict[str, Any] | None = None, **arguments: Any) -> ToolResult:
    tools = builtin_tools([name], {name: params or {}})
    return await ToolExecutor(bus, tools).dispatch(ToolCall("a", name, arguments))


async def content(bus: Bus, name: str, params: dict[str, Any] | None = None, **arguments: Any) -> Any:
    answered = await result(bus, name, params, **arguments)
    assert not answered.is_error, answered.content
    return answered.content


@pytest.mark.req("GATHER-3")
async def test_corpora_of_every_home_are_listed_by_names_that_can_be_searched(mesh: Mesh) -> None:
    here = Shelf(("recipes",), has_documents=True)
    there = Shelf(("manuals", "recipes"), has_documents=True)
    async with shelves(mesh, here, there) as bus:
        listed = [row["name"] for row in (await content(bus, "list_corpora"))["corpora"]]
        assert listed == ["recipes", "manuals@guest", "recipes@guest"]
        for name, text in (("recipes@guest", "1 in recipes"), ("manuals@guest", "1 in manuals")):
            found = await content(bus, "search_corpus", corpus=name, query="water", k=1)
            assert found["chunks"][0]["text"] == text
            # A corpus that is fixed for the tool is of its home, too.
            fixed = await content(bus, "search_corpus", {"corpus": name}, query="water", k=1)
            assert fixed["chunks"] == found["chunks"]
        by_id = f"manuals@{ids.short_id(bus.peer.roster.nodes_called('guest')[0])}"
        assert (await content(bus, "search_corpus", corpus=by_id, query="water"))["chunks"]
        for corpus in ("manuals@nobody", "Manuals", 7):
            assert (await result(bus, "search_corpus", corpus=corpus, query="water")).is_error


@pytest.mark.req("GATHER-3", "ATTACK-110")
async def test_a_search_without_a_corpus_takes_of_each_home_its_best_passages(mesh: Mesh) -> None:
    """A home with many corpora pushes nobody out."""
    here, there = Shelf(("recipes",), has_documents=True), Shelf(tuple("abcdefgh"), has_documents=True)
    async with shelves(mesh, here, there) as bus:
        await offered(bus, QUERY, 9)
        found = (await content(bus, "search_corpus", query="water", k=4))["chunks"]
        fewer = (await content(bus, "search_corpus", query="water"))["chunks"]
    assert [one["rank"] for one in found] == [1, 2, 3, 4]
    assert [one["text"] for one in found if one["corpus"] == "recipes"] == ["1 in recipes", "2 in recipes"]
    assert found[0]["corpus"] == "recipes"
    theirs = [one for one in found if one["corpus"].endswith("@guest")]
    assert len(theirs) == 2
    assert all(one["text"].startswith("1 in") for one in theirs)
    assert [one["corpus"] == "recipes" for one in fewer] == [True, False, True, False, True]


@pytest.mark.req("GATHER-3", "ATTACK-112")
async def test_homes_that_did_not_answer_are_named_without_their_words(mesh: Mesh) -> None:
    here = Shelf(("recipes",), has_documents=True)
    async with shelves(mesh, here, Shut(("manuals",))) as bus:
        listed = await content(bus, "list_corpora")
        for output in (listed, await content(bus, "search_corpus", query="water")):
            (line,) = output["missing"]
            assert line.startswith("guest (ed25519:")
            assert line.endswith(": failed")
    async with shelves(mesh, Shut(()), Shut(("manuals",))) as bus:
        nothing = await result(bus, "list_corpora")
        assert (nothing.is_error, str(nothing.content).partition(":")[0]) == (True, "internal_error")


@pytest.mark.req("GATHER-3", "ATTACK-110")
async def test_a_home_adds_a_bounded_number_of_corpora(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everybody, "MOST_CORPORA", 2)
    async with shelves(mesh, Shelf(("own-1", "own-2", "own-3")), Shelf(tuple("abc"))) as bus:
        listed = [row["name"] for row in (await content(bus, "list_corpora"))["corpora"]]
    assert listed == ["own-1", "own-2", "own-3", "a@guest", "b@guest"]


@pytest.mark.req("GATHER-3")
async def test_a_tool_of_one_corpus_or_one_home_asks_nobody_else() -> None:
    free = builtin_tools(["search_corpus"])[0]
    assert free.parameters_schema["required"] == ["query"]
    fixed = builtin_tools(["search_corpus"], {"search_corpus": {"corpus": "mine"}})[0]
    assert "corpus" not in fixed.parameters_schema["properties"]
    body = {"params": {}, "input": {"query": "water"}}
    assert everybody.is_for_everybody(Toolbox([free]).bound("search_corpus"), body)
    given = {**body, "params": {"corpus": "mine"}}
    assert not everybody.is_for_everybody(Toolbox([fixed]).bound("search_corpus"), given)
