"""The views of `mesh.query`: their rows, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_mesh import trace_queries
from hearthnet_mesh.query import sandbox, validator, views
from hearthnet_mesh.service import visible_only
from hearthnet_mesh.sources import Gathered
from tests.services.mesh.test_relations import STEPS
from tests.services.mesh.worlds import ATTIC, CELLAR, KITCHEN, SNAPSHOT, token, viewer

POST = {
    "event_id": "e1", "lamport": 7, "author": CELLAR.node_id, "category": "offer", "title": "Ladder",
    "body": "4 m", "location": None, "tags": ["tool"], "created_at": "2026-11-21T20:15:00Z",
    "expires_at": "2026-11-28T20:15:00Z",
}  # fmt: skip
CORPUS = {"name": "manuals", "docs": 1, "chunks": 2, "size_bytes": 10**20, "language_majority": None}
PERSONAL = {**CORPUS, "name": "personal"}
DOCUMENT = {
    "corpus": "manuals", "doc_cid": "blake3:" + "0" * 64, "title": "x" * 9000, "language": "\ud800",
    "year": True, "chunks": [1], "size_bytes": 1.5,
}  # fmt: skip


def world(**seen_by: Any) -> views.World:
    looking = viewer(**seen_by)
    return views.World(
        snapshot=SNAPSHOT,
        viewer=looking,
        calls=tuple(trace_queries.calls(STEPS, looking)),
        posts=Gathered(((KITCHEN.node_id, POST),)),
        corpora=Gathered(((CELLAR.node_id, CORPUS),)),
        documents=Gathered(((CELLAR.node_id, DOCUMENT),)),
    )


def ask(sql: str, bindings: dict[str, Any] | None = None, **seen_by: Any) -> list[list[Any]]:
    checked = validator.validate(sql, bindings or {})
    tables = {view: views.rows(view, world(**seen_by)) for view in checked.views}
    return sandbox.execute(sql, checked.values, tables, 500).rows


@pytest.mark.req("MESH-26")
@pytest.mark.parametrize("view", sorted(views.VIEWS))
def test_every_view_has_rows_of_its_columns_in_an_order(view: str) -> None:
    rows = views.rows(view, world())
    assert rows
    assert {len(row) for row in rows} == {len(views.VIEWS[view])}
    assert rows == sorted(rows, key=views._order)
    assert ask(f"select * from {view}") == [list(row) for row in rows]


@pytest.mark.req("MESH-26")
def test_views_are_joined() -> None:
    sql = (
        "select title, display_name, tags, location from posts join nodes on node = author where tags like :t"
    )
    assert ask(sql, {"t": "%tool%"}) == [["Ladder", "Cellar", '["tool"]', "null"]]
    sql = (
        "select node from offers o join capabilities c on c.capability = o.capability where side_effects = 1"
    )
    assert ask(sql) == [[KITCHEN.node_id]]


@pytest.mark.req("MESH-26")
def test_offers_models_and_pairs_are_those_that_are_there() -> None:
    assert ask("select distinct corpus from offers where corpus is not null order by 1") == [
        ["manuals"], ["personal"], ["system"],
    ]  # fmt: skip
    assert ask("select model, ctx, backend from models order by 1") == [
        ["big", 8192, "ollama"], ["qwen3", 8192, "ollama"],
    ]  # fmt: skip
    assert ask("select source, target from language_pairs order by 1") == [["de", "en"], ["en", "de"]]
    assert ask("select offers from capabilities where name = :n", {"n": "experimental.weather"}) == [[1]]
    assert ask("select params ->> '$.ctx' from offers where model = :m", {"m": "qwen3"}) == [[8192]]


@pytest.mark.req("MESH-26")
def test_calls_and_runs() -> None:
    assert ask("select capability, code from calls order by ms") == [
        ["market.list@1.0", "ok"], ["rag.query@1.0", "ok"], ["rag.query@1.0", "timeout"],
    ]  # fmt: skip
    assert ask("select run, first_at, calls, failed from runs") == [["R1", "1970-01-01T00:00:02Z", 2, 1]]


@pytest.mark.req("MESH-6")
def test_others_see_less() -> None:
    assert ask("select distinct corpus from offers where corpus is not null order by 1", by=ATTIC) == [
        ["manuals"], ["system"],
    ]  # fmt: skip
    assert ask("select capability from calls", by=ATTIC) == [["market.post@1.0"]]
    assert ask("select count(*) from calls", by=ATTIC, claims=token(KITCHEN, ATTIC, "mesh.query")) == [[0]]
    assert ask("select model from models", by=ATTIC, claims=token(KITCHEN, ATTIC, "mesh.query")) == []


@pytest.mark.req("MESH-6")
def test_corpora_are_those_that_may_be_searched() -> None:
    found = Gathered(((KITCHEN.node_id, PERSONAL), (CELLAR.node_id, CORPUS)), ("one",))
    narrow = token(KITCHEN, ATTIC, "rag.query", corpus=["system"])
    assert visible_only(viewer(), SNAPSHOT, found, "name") == found
    assert visible_only(viewer(ATTIC), SNAPSHOT, found, "name").rows == found.rows[1:]
    assert visible_only(viewer(ATTIC, narrow), SNAPSHOT, found, "name") == Gathered((), ("one",))


@pytest.mark.req("MESH-7")
def test_values_of_peers_are_made_plain() -> None:
    [row] = ask("select length(title), language, year, chunks, size_bytes from documents")
    assert row == [views.LONGEST_TEXT, "?", 1, None, 1.5]
    assert ask("select size_bytes from corpora") == [[None]]


@pytest.mark.req("MESH-7")
def test_a_view_has_so_many_rows_at_most() -> None:
    many = Gathered(tuple((CELLAR.node_id, {**CORPUS, "name": f"c{n}"}) for n in range(views.MOST_ROWS + 1)))
    assert len(views.rows("corpora", views.World(SNAPSHOT, viewer(), corpora=many))) == views.MOST_ROWS


@pytest.mark.req("MESH-20")
def test_a_view_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(HearthNetError, match="there is no view secrets; there are posts, corpora, documents"):
        ask("select * from secrets")
