"""What is found by words, what is described, and who is here: as the one who asks may see it."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.token import Claims
from hearthnet_mesh import describe, inventory
from hearthnet_mesh.schemas import Kind
from hearthnet_mesh.snapshot import Snapshot, short
from tests.helpers.members import take_in
from tests.services.mesh.worlds import (
    ATTIC,
    CELLAR,
    KITCHEN,
    ROSTER,
    SEEN,
    SNAPSHOT,
    STRANGER,
    offer,
    token,
    viewer,
)

OF_A_CONTRACT = (
    *("id", "summary", "stability", "trust_required", "side_effects", "idempotent", "timeout_seconds"),
    *("schema_hash", "request_schema", "response_schema", "stream_schema", "errors", "examples"),
)


CELLAR_SHOWN: dict[str, Any] = {
    "node_id": CELLAR.node_id,
    "display_name": "Cellar",
    "profile": None,
    "level": "trusted",
    "online": True,
    "last_seen": "2026-11-21T20:15:00Z",
    "capabilities": ["experimental.weather@1.0", "llm.chat@2.0", "rag.query@1.0", "trans.text@1.0"],
}


def names(query: str, kind: Kind | None = None, **seen_by: Any) -> list[str]:
    found = inventory.items(SNAPSHOT, viewer(**seen_by))
    return [item["name"] for item in inventory.search(found, query, kind, 100)["items"]]


def described(name: str, health: describe.Health | None = None, **seen_by: Any) -> dict[str, Any]:
    looking = viewer(**seen_by)
    thing = describe.find(SNAPSHOT, looking, name)
    return describe.describe(SNAPSHOT, looking, thing, health or {}, 7)


@pytest.mark.req("MESH-1")
@pytest.mark.parametrize(
    ("query", "kind", "first"),
    [
        ("rag.query", None, "rag.query@1.0"),
        ("rag.query@1.0", "capability", "rag.query@1.0"),
        ("search documents", "tool", "search_corpus"),
        ("manuals", None, "manuals"),
        ("Qwen3", "model", "qwen3"),
        ("translate de en", "language_pair", "de-en"),
        ("kitchen", "node", KITCHEN.node_id),
        ("passage", "capability", "rag.query@1.0"),
    ],
)
def test_things_are_found_by_name_or_words(query: str, kind: Kind | None, first: str) -> None:
    assert names(query, kind)[0] == first


@pytest.mark.req("MESH-1")
def test_the_best_comes_first_always_in_the_same_order_and_bounded() -> None:
    found = inventory.items(SNAPSHOT, viewer())
    every = inventory.search(found, "query documents search", None, 100)
    assert every == inventory.search(reversed(found), "query documents search", None, 100)
    scores = [item["score"] for item in every["items"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)
    cut = inventory.search(found, "query documents search", None, 2)
    assert (cut["items"], cut["truncated"], every["truncated"]) == (every["items"][:2], True, False)


@pytest.mark.req("MESH-1")
def test_what_nothing_fits_finds_nothing() -> None:
    assert names("zebra") == []
    assert names("!!!") == []


@pytest.mark.req("MESH-6")
def test_what_is_for_the_own_node_alone_is_shown_to_it_alone() -> None:
    assert "personal" in names("personal")
    assert names("personal", by=ATTIC) == []
    under = token(KITCHEN, ATTIC, "rag.query", "mesh.search")
    assert names("personal", by=ATTIC, claims=under) == []
    guest = token(KITCHEN, KITCHEN, "rag.query", "mesh.search", principal="anna")
    assert names("personal", claims=guest) == []
    assert "llm.models.reload@1.0" in names("reload", "capability")
    assert names("reload", "capability", by=ATTIC) == []


@pytest.mark.req("MESH-6")
def test_a_stranger_that_offers_something_is_not_shown() -> None:
    assert names("stranger") == []
    assert "experimental.weather@1.0" in names("weather")


@pytest.mark.req("MESH-6")
def test_a_token_shows_the_corpora_and_models_that_it_covers() -> None:
    one = token(KITCHEN, ATTIC, "rag.query", "mesh.search", corpus=["manuals"])
    assert names("collection of documents", "corpus", by=ATTIC, claims=one) == ["manuals"]
    assert names("language model", "model", by=ATTIC, claims=one) == []
    assert names("language model", "model", by=ATTIC) == ["big", "qwen3"]


@pytest.mark.req("MESH-1")
def test_a_tool_is_there_where_what_it_calls_is_offered() -> None:
    assert "search_corpus" in names("documents", "tool")
    assert "search_marketplace" not in names("neighbours", "tool")


@pytest.mark.req("MESH-2")
def test_a_capability_is_described_with_contract_offers_and_health() -> None:
    about = described("rag.query@1.0", {(CELLAR.node_id, "rag.query@1.0"): (0.5, 12.0)})
    assert (about["kind"], about["name"], about["allowed"], about["why_not"]) == (
        "capability", "rag.query@1.0", True, None,
    )  # fmt: skip
    contract = contracts().get("rag.query@1.0")
    assert about["contract"] == {name: getattr(contract, name) for name in OF_A_CONTRACT}
    assert about["contract"]["examples"]
    assert (about["manifest"], about["relations"]) == (None, 7)
    at = {"capability": "rag.query@1.0", "in_flight": 1, "max_concurrent": 4}
    manuals = {"node": CELLAR.node_id, "params": {"corpus": "manuals"}, "health": 0.5, "p50_ms": 12.0}
    own = {"node": KITCHEN.node_id, "health": None, "p50_ms": None}
    others = [{**at, **own, "params": {"corpus": corpus}} for corpus in ("personal", "system")]
    assert sorted(about["offers"], key=lambda one: str(one["params"])) == [{**at, **manuals}, *others]
    assert described("rag.query") == described("rag.query@1.0")


@pytest.mark.req("MESH-2")
def test_a_node_is_described_by_its_manifest_and_offers() -> None:
    for name in (CELLAR.node_id, "cellar"):
        about = described(name)
        assert (about["kind"], about["name"], about["contract"]) == ("node", CELLAR.node_id, None)
        member, offered = ROSTER.member(CELLAR.node_id), CELLAR_SHOWN["capabilities"]
        assert member is not None
        assert about["manifest"].pop("added_at") == member.added_at
        assert {**about["manifest"], "capabilities": offered} == CELLAR_SHOWN
        assert sorted(one["capability"] for one in about["offers"]) == offered
    away = described("Attic")
    assert (away["manifest"]["online"], away["why_not"]) == (False, "it offers nothing now")


@pytest.mark.req("MESH-2")
@pytest.mark.parametrize(
    ("name", "kind", "contract"),
    [
        ("search_corpus", "tool", "rag.query@1.0"),
        ("manuals", "corpus", "rag.query@1.0"),
        ("big", "model", "llm.chat@2.0"),
        ("de-en", "language_pair", "trans.text@1.0"),
        ("experimental.weather@1.0", "capability", None),
    ],
)
def test_other_things_are_described_by_what_is_called_for_them(
    name: str, kind: str, contract: str | None
) -> None:
    about = described(name)
    assert (about["kind"], about["name"]) == (kind, name)
    assert (about["contract"] or {"id": None})["id"] == contract
    assert about["allowed"]
    assert about["relations"] == 7


@pytest.mark.req("MESH-2")
def test_what_is_not_there_is_not_found() -> None:
    for name, by in (
        ("no.such.thing", KITCHEN),
        ("personal", ATTIC),
        ("x" * 200, KITCHEN),
        ("a\nb", KITCHEN),
    ):
        with pytest.raises(HearthNetError, match=r"mesh\.search") as caught:
            described(name, by=by)
        assert caught.value.code == "not_found"


ONE = token(KITCHEN, ATTIC, "rag.query")
BOUND = token(KITCHEN, ATTIC, "rag.query", corpus=["manuals"])


@pytest.mark.req("MESH-2")
@pytest.mark.parametrize(
    ("name", "claims", "why_not"),
    [
        ("rag.query", None, ""),
        ("llm.models.reload", None, "serves only its own node"),
        ("market.search", None, "nobody offers market.search@1.0 now"),
        ("rag.query", ONE, ""),
        ("rag.query", BOUND, ""),
        ("market.post", ONE, "the token does not cover market.post@1.0"),
        ("manuals", BOUND, ""),
    ],
)
def test_it_is_said_whether_the_caller_may_call_it_and_why_not(
    name: str, claims: Claims | None, why_not: str
) -> None:
    about = described(name, by=ATTIC, claims=claims)
    assert about["allowed"] is not bool(why_not)
    assert about["why_not"] is None if not why_not else why_not in about["why_not"]


@pytest.mark.req("MESH-5")
def test_neighbours_are_listed_by_name_with_what_they_offer() -> None:
    here = SNAPSHOT.neighbours(viewer(ATTIC), online_only=True)
    assert [node["display_name"] for node in here["nodes"]] == ["Cellar", "Kitchen"]
    assert here["nodes"][0] == CELLAR_SHOWN
    everybody = SNAPSHOT.neighbours(viewer(), online_only=False)["nodes"]
    assert [(node["display_name"], node["online"]) for node in everybody] == [
        ("Attic", False), ("Cellar", True), ("Kitchen", True),
    ]  # fmt: skip
    assert everybody[0]["last_seen"] == "2026-11-21T20:14:00Z"
    fresh = Snapshot(KITCHEN.node_id, ROSTER)
    assert fresh.neighbours(viewer(), online_only=False)["nodes"][0]["last_seen"] is None


@pytest.mark.req("MESH-5")
def test_a_name_that_two_members_have_stands_for_neither() -> None:
    assert SNAPSHOT.find_node("ATTIC") == ROSTER.member(ATTIC.node_id)
    assert SNAPSHOT.find_node("nobody") is None
    twice = Snapshot(KITCHEN.node_id, take_in(ROSTER, KITCHEN, STRANGER, "attic"))
    assert twice.find_node("Attic") is None
    assert twice.find_node(ATTIC.node_id) == ROSTER.member(ATTIC.node_id)


@pytest.mark.req("MESH-7")
def test_what_a_peer_says_is_cut_to_a_size_and_one_line() -> None:
    assert short("a\n b") == "a b"
    assert len(short("x" * 100_000)) == 200
    wild = offer(CELLAR, "llm.chat@2.0", model="m" * 5000, models="none")
    crowded = Snapshot(KITCHEN.node_id, ROSTER, (wild,), {CELLAR.node_id: SEEN})
    assert [len(item.name) for item in inventory.items(crowded, viewer()) if item.kind == "model"] == [200]
