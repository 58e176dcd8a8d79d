"""Calls that were seen, and what is tied to what."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet_mesh import describe, relations, trace_queries
from hearthnet_mesh.relations import Edge
from tests.services.mesh.worlds import ATTIC, CELLAR, KITCHEN, SNAPSHOT, step, token, viewer

STEPS = [
    step("caller", "rag.query@1.0", CELLAR, "1", parent="h" * 16, run="R1", ms=4.0),
    step("caller", "rag.query@1.0", CELLAR, "2", code="timeout", ms=8.0, run="R1", at=2_000_000),
    step("provider", "market.post@1.0", ATTIC, "3", handler="h" * 16),
    step("provider", "market.list@1.0", KITCHEN, "4", ms=1.0),
    step("caller", "market.list@1.0", KITCHEN, "4", ms=2.0),
    step("run", "ask", KITCHEN, "5"),
]


def around(name: str, depth: int = 1, **seen_by: Any) -> set[tuple[str, str, str]]:
    looking = viewer(**seen_by)
    every = relations.edges(
        SNAPSHOT, looking, trace_queries.calls(STEPS, looking), trace_queries.call_edges(STEPS, looking)
    )
    output = relations.neighbours_of(every, describe.find(SNAPSHOT, looking, name), depth)
    assert not output["truncated"]
    return {(edge["from"], edge["relation"], edge["to"]) for edge in output["edges"]}


@pytest.mark.req("MESH-6")
def test_calls_are_shown_to_the_node_that_made_them() -> None:
    own = trace_queries.calls(STEPS, viewer())
    assert [(one.id, one.provider) for one in own] == [
        ("2", CELLAR.node_id), ("1", CELLAR.node_id), ("4", KITCHEN.node_id),
    ]  # fmt: skip
    assert own[-1].ms == 2.0, "its own word, not the provider's"
    assert [(one.id, one.caller) for one in trace_queries.calls(STEPS, viewer(ATTIC))] == [
        ("3", ATTIC.node_id)
    ]
    assert trace_queries.calls(STEPS, viewer(CELLAR)) == []


@pytest.mark.req("MESH-6")
def test_a_guest_and_the_holder_of_anothers_token_see_no_calls() -> None:
    for claims in (
        token(KITCHEN, KITCHEN, "mesh.query", principal="anna"),
        token(ATTIC, KITCHEN, "mesh.query"),
    ):
        looking = viewer(KITCHEN, claims)
        assert (trace_queries.calls(STEPS, looking), trace_queries.call_edges(STEPS, looking)) == ([], set())


@pytest.mark.req("MESH-2")
def test_health_is_the_share_that_worked_and_the_median_time() -> None:
    health = trace_queries.health(trace_queries.calls(STEPS, viewer()))
    assert health[CELLAR.node_id, "rag.query@1.0"] == (0.5, 6.0)


@pytest.mark.req("MESH-26")
def test_runs_are_put_together_from_their_calls() -> None:
    [(run, calls)] = trace_queries.runs(trace_queries.calls(STEPS, viewer())).items()
    assert (run, len(calls), sum(one.code != "ok" for one in calls)) == ("R1", 2, 1)
    assert calls[0].at < calls[-1].at


@pytest.mark.req("MESH-3")
def test_what_is_tied_to_a_capability() -> None:
    assert around("rag.query@1.0") == {
        (KITCHEN.node_id, "offers", "rag.query@1.0"),
        (CELLAR.node_id, "offers", "rag.query@1.0"),
        (KITCHEN.node_id, "calls", "rag.query@1.0"),
        ("market.post@1.0", "calls", "rag.query@1.0"),
        ("rag.query@1.0", "requires", "self"),
        ("rag.query@1.0", "bound_by_tool", "search_corpus"),
    }
    assert ("market.post@1.0", "calls", "rag.query@1.0") not in around("rag.query@1.0", by=ATTIC)
    assert ("rag.query@1.0", "requires", "self") not in around("rag.query@1.0", by=ATTIC)


@pytest.mark.req("MESH-3")
def test_who_trusts_whom_by_the_roster() -> None:
    assert (KITCHEN.node_id, "trusts", CELLAR.node_id) in around("Cellar")
    assert not [edge for edge in around("Attic") if edge[1] == "trusts"]


@pytest.mark.req("MESH-3")
def test_further_steps_reach_further() -> None:
    near, further = around("search_corpus"), around("search_corpus", 2)
    assert near == {("rag.query@1.0", "bound_by_tool", "search_corpus")}
    assert further == around("rag.query@1.0")
    assert around("search_corpus", 3) > further


@pytest.mark.req("MESH-3")
def test_a_corpus_is_tied_to_what_it_is_searched_with() -> None:
    assert around("manuals") == around("rag.query@1.0")


@pytest.mark.req("MESH-3")
def test_the_token_that_a_call_carries_is_shown_to_its_holder() -> None:
    lent = token(KITCHEN, ATTIC, "mesh.relations", "rag.query")
    assert (KITCHEN.node_id, "issued_token_to", ATTIC.node_id) in around("Attic", by=ATTIC, claims=lent)
    assert not [edge for edge in around("Attic", by=ATTIC) if edge[1] == "issued_token_to"]


@pytest.mark.req("MESH-7")
def test_there_are_so_many_relations_at_most() -> None:
    thing = describe.find(SNAPSHOT, viewer(), "Kitchen")
    many = [Edge(KITCHEN.node_id, "offers", f"a.b{number}@1.0") for number in range(501)]
    output = relations.neighbours_of(many, thing, 1)
    assert (len(output["edges"]), output["truncated"]) == (500, True)
    assert output["edges"][0]["to"] == "a.b0@1.0"
