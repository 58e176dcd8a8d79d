"""What other homes write comes to the same in any order of arrival."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.times import from_rfc3339, rfc3339
from hearthnet.service.effects.event_log import Event, Recorded
from hearthnet_market.lending import BORROWER, LENDER, RESERVED
from hearthnet_market.read_model import View
from hearthnet_market.schemas import CREATED, DELETED, EXPIRED, HIDDEN, UNHIDDEN, UPDATED, ListInput

ANNA: Final = "ed25519:" + "a" * 43
BERTA: Final = "ed25519:" + "b" * 43
START: Final = from_rfc3339("2027-01-01T00:00:00Z")
CARL: Final = "ed25519:" + "c" * 43
DORA: Final = "ed25519:" + "d" * 43
ALL: Final = ListInput(since_lamport=0, limit=500)


def event(number: int, event_type: str, data: dict[str, Any], author: str = ANNA, second: int = 0) -> Event:
    """An event with that number as its id."""
    return Event(
        event_id=f"{number:026d}",
        event_type=event_type,
        wall_clock=rfc3339(START + second * 1000),
        community_id="c",
        author=author,
        client_id=f"{number:026d}",
        data=data,
        arguments_digest="d",
        frame="f",
        approval=None,
    )


def made(number: int, author: str = ANNA) -> Event:
    """A post."""
    data = {"category": "offer", "title": f"post {number}", "body": "b", "ttl_seconds": 9_999, "tags": []}
    return event(number, CREATED, data, author)


def changed(number: int, post: int, revision: int, second: int = 0, **fields: Any) -> Event:
    """A change of a post."""
    data = {"target_event_id": f"{post:026d}", "fields": fields, "revision": revision}
    return event(number, UPDATED, data, second=second)


def ended(number: int, post: int, reason: str, second: int, author: str = ANNA) -> Event:
    """An end of a post."""
    data = {"target_event_id": f"{post:026d}", "reason": reason}
    return event(number, EXPIRED, data, author, second)


def deleted(number: int, post: int, author: str = ANNA, of: str = ANNA) -> Event:
    """A deletion of a post of `of`, which knows one of its events."""
    act = {"lamport": 900, "event_id": f"{post:026d}", "author": of, "client_id": "x", "digest": "d"}
    posts = [{"event_id": f"{post:026d}", "lamport": 900, "author": of, "acts": [act]}]
    return event(number, DELETED, {"posts": posts, "remaining": 0}, author)


def hidden(number: int, post: int, author: str = BERTA) -> Event:
    """A hiding of a post."""
    return event(number, HIDDEN, {"target_event_id": f"{post:026d}", "reason": f"why {number}"}, author)


def unhidden(number: int, post: int, *hidings: int, author: str = BERTA) -> Event:
    """The taking back of hidings of a post."""
    named = [f"{one:026d}" for one in hidings]
    data = {"target_event_id": f"{post:026d}", "reason": "after all", "hidings": named}
    return event(number, UNHIDDEN, data, author)


HISTORY: Final = (
    made(1),
    changed(10, 1, 2, title="second", body="two"),
    changed(11, 1, 1, second=5, title="first", category="info"),
    changed(12, 1, 2, second=1, title="second, later"),
    made(2),
    ended(20, 2, "withdrawn", second=9),
    ended(21, 2, "fulfilled", second=3),
    made(3),
    changed(30, 3, 1, title="words"),
    deleted(31, 3),
    made(4),
    changed(22, 2, 1, title="changed and ended"),
    ended(40, 4, "stale", second=1, author=BERTA),
    made(4, author=BERTA),
    made(5),
    deleted(51, 5, author=BERTA, of=ANNA),
    changed(52, 4, 1, title="Anna's, changed"),
)


def may(one: Event, author: str) -> bool:
    """Each author may change what it wrote."""
    return one.author == author


def outcome(order: list[Event]) -> dict[str, Any]:
    """What a home shows that gets the events in that order; the places are its own."""
    with tempfile.TemporaryDirectory() as folder:
        view = View(Path(folder) / "view.db", may)
        view.follow("log", len(order))
        for place, one in enumerate(order, start=1):
            view.apply([Recorded(one, place, home=one.author)])
        view.settle("log", len(order))
        posts, _ = view.current(ALL, START)
        known = view.posts([f"{number:026d}" for number in range(1, 6)])
        found = view.search("words", 10, START)[0]
        erasing = {order[place - 1].event_id for place in view.erasing(100)}
        view.close()
    ends = [one["end"] for one in known if "end" in one]
    for one in (*posts, *ends):
        del one["lamport"]
    return {
        "posts": sorted(posts, key=lambda one: (one["event_id"], one["author"])),
        "ends": sorted(ends, key=str),
        "erasing": erasing - {f"{31:026d}", f"{51:026d}"},
        "found": found,
    }


EXPECTED: Final = outcome(list(HISTORY))


@pytest.mark.req("MARKET-32")
def test_what_the_events_come_to() -> None:
    shown = [(one["author"], one["title"], one["category"], one["body"]) for one in EXPECTED["posts"]]
    assert shown == [
        (ANNA, "second, later", "info", "two"),
        (ANNA, "Anna's, changed", "offer", "b"),
        (ANNA, "post 5", "offer", "b"),
    ]
    assert {one["reason"] for one in EXPECTED["ends"]} == {"fulfilled", "stale"}
    assert EXPECTED["erasing"] == {f"{3:026d}", f"{30:026d}"}
    assert EXPECTED["found"] == []


@pytest.mark.req("MARKET-32", "MARKET-31")
@given(st.permutations(HISTORY))
def test_any_order_of_arrival_comes_to_the_same(order: list[Event]) -> None:
    assert outcome(order) == EXPECTED


HIDINGS: Final = (
    made(1),
    hidden(10, 1),
    hidden(11, 1, author=CARL),
    unhidden(12, 1, 10, 11, author=CARL),
    made(2),
    hidden(20, 2),
    hidden(21, 2, author=CARL),
    unhidden(22, 2, 20, author=CARL),
    made(3),
    hidden(30, 3, author=CARL),
    unhidden(31, 3, 30, author=ANNA),
    made(4),
    hidden(40, 4),
    deleted(41, 4),
    unhidden(42, 4, 40),
    made(5),
    hidden(50, 5, author=DORA),
    unhidden(51, 5, 50, 52, author=DORA),
    hidden(52, 5, author=CARL),
)


def judges(one: Event, author: str) -> bool:
    """Berta and Carl are trusted; Dora was when she hid something."""
    if one.event_type == HIDDEN:
        return one.author in (BERTA, CARL, DORA)
    if one.event_type == UNHIDDEN:
        return one.author in (BERTA, CARL) and one.author != author
    return one.author == author


def hides(order: list[Event]) -> tuple[dict[str, list[str]], set[str]]:
    """The hidden posts with the reasons, and the words of the others, after events in that order."""
    with tempfile.TemporaryDirectory() as folder:
        view = View(Path(folder) / "view.db", judges)
        view.follow("log", len(order))
        for place, one in enumerate(order, start=1):
            view.apply([Recorded(one, place, home=one.author)])
        view.settle("log", len(order))
        posts, _ = view.current(msgspec.structs.replace(ALL, hidden=True), START)
        shown = {one["title"] for one in view.search("post", 10, START)[0]}
        assert shown == {one["title"] for one in view.current(ALL, START)[0]}
        erasing = {order[place - 1].event_id for place in view.erasing(100)}
        assert erasing == {f"{number:026d}" for number in (4, 40, 42)}
        view.close()
    return {one["title"]: [why["reason"] for why in one["hidden"]] for one in posts}, shown


@pytest.mark.req("MARKET-37")
@given(st.permutations(HIDINGS))
def test_any_order_of_arrival_hides_the_same(order: list[Event]) -> None:
    assert hides(order) == (
        {"post 2": ["why 21"], "post 3": ["why 30"], "post 5": ["why 52"]},
        {"post 1"},
    )


def reserved(number: int, post: int, author: str = BERTA) -> Event:
    """A reservation of a post."""
    data = {"target_event_id": f"{post:026d}", "step": "ask", "note": f"note {number}"}
    return event(number, RESERVED, data, author)


def step(number: int, post: int, reservation: int, word: str, of: str = BERTA, author: str = ANNA) -> Event:
    """A step with a reservation of `of`, by the author of the post or by `author`."""
    data = {"target_event_id": f"{post:026d}", "reservation": f"{reservation:026d}", "borrower": of}
    return event(number, LENDER if author == ANNA else BORROWER, {**data, "step": word}, author)


LOANS: Final = (
    made(1),
    reserved(10, 1),
    reserved(11, 1, author=CARL),
    step(12, 1, 11, "promise", of=CARL),
    step(13, 1, 11, "hand_over", of=CARL),
    step(14, 1, 11, "give_back", of=CARL, author=CARL),
    made(2),
    reserved(20, 2),
    reserved(21, 2, author=CARL),
    step(22, 2, 21, "promise", of=CARL),
    step(23, 2, 20, "promise"),  # by another device of Anna, which had not heard of the first
    step(24, 2, 20, "withdraw", author=CARL),  # of Berta's reservation, which is not Carl's to withdraw
    made(3),
    reserved(30, 3),
    step(31, 3, 30, "withdraw", author=BERTA),
    step(32, 3, 30, "promise"),
    reserved(33, 3),
    step(34, 3, 33, "give_back", author=BERTA),  # of what was never handed over
    made(4),
    reserved(40, 4),
    deleted(41, 4),
    made(5),
    reserved(50, 5),
    reserved(50, 5, author=CARL),  # with the id of Berta's
    step(51, 5, 50, "hand_over"),
    step(52, 5, 50, "take_back"),
    step(53, 5, 50, "refuse", of=CARL),
)


def concerned(one: Event, author: str) -> bool:
    """Everybody may reserve; each one else changes what is theirs."""
    return one.event_type == RESERVED or one.author == author


def lends(order: list[Event]) -> dict[str, list[tuple[str, str, str]]]:
    """The reservations of the posts by their titles, after events in that order."""
    with tempfile.TemporaryDirectory() as folder:
        view = View(Path(folder) / "view.db", concerned)
        view.follow("log", len(order))
        for place, one in enumerate(order, start=1):
            view.apply([Recorded(one, place, home=one.author)])
        view.settle("log", len(order))
        posts, _ = view.current(ALL, START)
        erasing = {order[place - 1].event_id for place in view.erasing(100)}
        assert erasing == {f"{number:026d}" for number in (4, 40)}
        notes = {row[0] for row in view._database.execute("SELECT note FROM reservation")}
        assert "note 40" not in notes, "words of a deleted post"
        view.close()
    return {
        one["title"]: [(loan["event_id"][-2:], loan["by"][-1], loan["state"]) for loan in one["loans"]]
        for one in posts
    }


@pytest.mark.req("MARKET-43", "ATTACK-135")
@given(st.permutations(LOANS))
def test_any_order_of_arrival_lends_the_same(order: list[Event]) -> None:
    assert lends(order) == {
        "post 1": [("10", "b", "asked"), ("11", "c", "returning")],
        "post 2": [("20", "b", "promised"), ("21", "c", "asked")],
        "post 3": [("33", "b", "asked"), ("30", "b", "withdrawn")],
        "post 5": [("50", "b", "returned"), ("50", "c", "refused")],
    }


@pytest.mark.req("MARKET-43", "ATTACK-144")
@given(st.permutations([reserved(40, 4), hidden(41, 4, author=CARL), deleted(42, 4)]))
def test_a_deletion_erases_what_waits_for_a_post_that_never_comes(order: list[Event]) -> None:
    """A home that was away hears of the post when its words are erased everywhere else."""
    with tempfile.TemporaryDirectory() as folder:
        view = View(
            Path(folder) / "view.db", lambda one, author: concerned(one, author) or judges(one, author)
        )
        view.follow("log", len(order))
        for place, one in enumerate(order, start=1):
            view.apply([Recorded(one, place, home=one.author)])
        view.settle("log", len(order))
        erasing = {order[place - 1].event_id for place in view.erasing(100)}
        waiting = view._database.execute("SELECT event FROM waiting").fetchall()
        view.close()
    assert (erasing, waiting) == ({f"{number:026d}" for number in (40, 41)}, [])
