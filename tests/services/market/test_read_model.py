"""The market's view: what it shows follows from the events alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339, rfc3339
from hearthnet.service.effects.event_log import Event, Recorded
from hearthnet_market.database import DamagedView
from hearthnet_market.read_model import View
from hearthnet_market.schemas import (
    CREATED,
    DELETED,
    EXPIRED,
    UPDATED,
    ListInput,
    PostState,
    check_expiry,
    sweep_id,
)

START = 1_700_000_000_000
AUTHOR = ids.node_id(bytes(32))
HOUR = 3_600_000


def _event(kind: str, data: dict[str, Any], lamport: int) -> Recorded:
    event = Event(
        event_id=ids.new_ulid(START + lamport),
        event_type=kind,
        wall_clock=rfc3339(START),
        community_id=AUTHOR,
        author=AUTHOR,
        client_id=ids.new_ulid(),
        data=data,
        arguments_digest="",
        frame="",
        approval=None,
    )
    return Recorded(event, lamport)


def _created(lamport: int, title: str = "Water filter", **data: Any) -> Recorded:
    text = {"category": "offer", "title": title, "body": "To lend.", "ttl_seconds": 3600, **data}
    return _event(CREATED, text, lamport)


def _ended(lamport: int, target: Recorded) -> Recorded:
    return _event(EXPIRED, {"target_event_id": target.event.event_id, "reason": "fulfilled"}, lamport)


def _wanted(**fields: Any) -> ListInput:
    return ListInput(**{"since_lamport": 0, "limit": 50, **fields})


@pytest.fixture
def view(tmp_path: Path) -> Any:
    opened = View(tmp_path / "view.db")
    yield opened
    opened.close()


@pytest.mark.req("MARKET-1")
def test_current_posts_are_listed_newest_first(view: View) -> None:
    first = _created(1, tags=["water", "lend"], location={"lat": 1.5, "lng": 2, "label": "here"})
    view.apply([first, _created(2, category="request", title="Firewood"), _created(3, ttl_seconds=7200)])
    posts, lamport = view.current(_wanted(), START)
    assert [post["lamport"] for post in posts] == [3, 2, 1]
    assert lamport == 3
    assert posts[2]["location"] == {"lat": 1.5, "lng": 2, "label": "here"}
    assert from_rfc3339(posts[0]["expires_at"]) - from_rfc3339(posts[0]["created_at"]) == 2 * HOUR
    assert [post["lamport"] for post in view.current(_wanted(category="request"), START)[0]] == [2]
    assert [post["lamport"] for post in view.current(_wanted(tags=("lend", "water")), START)[0]] == [1]
    assert view.current(_wanted(tags=("lend", "fire")), START)[0] == []
    assert [post["lamport"] for post in view.current(_wanted(limit=1), START)[0]] == [3]
    assert [post["lamport"] for post in view.current(_wanted(), START + HOUR)[0]] == [3]


@pytest.mark.req("MARKET-1")
def test_who_follows_in_small_steps_misses_nothing(view: View) -> None:
    view.apply([_created(lamport) for lamport in range(1, 8)])
    place, seen = 1, []
    while True:
        posts, place = view.current(_wanted(since_lamport=place, limit=2), START)
        seen += [post["lamport"] for post in posts]
        if not posts:
            break
    assert seen == [2, 3, 4, 5, 6, 7]
    assert place == 7


@pytest.mark.req("MARKET-2")
def test_what_ended_is_gone_and_told_to_who_knew_it(view: View) -> None:
    first, second = _created(1), _created(2, title="Firewood")
    view.apply([first, second, _ended(3, first)])
    assert [post["title"] for post in view.current(_wanted(), START)[0]] == ["Firewood"]
    assert view.search("filter", 5, START)[0] == []
    assert [one["event_id"] for one in view.removed(2)] == [first.event.event_id]
    assert view.removed(3) == []
    assert view.standing(first.event.event_id) == (
        PostState(AUTHOR, 1, 0, current=False, category="offer"),
        3,
    )
    assert view.standing(second.event.event_id) == (
        PostState(AUTHOR, 2, 0, current=True, category="offer"),
        3,
    )
    assert view.standing(ids.new_ulid()) == (None, 3)


@pytest.mark.req("MARKET-3")
@pytest.mark.parametrize(
    "query", ["filters", 'WATER "', "lend* OR", "NEAR(filter", "-filter", "title:filter"]
)
def test_search_finds_words_whatever_stands_around_them(view: View, query: str) -> None:
    others = [_created(place, title=f"Firewood {place}", body="Two stacks.") for place in (2, 3, 4)]
    view.apply([_created(1), *others])
    posts, _ = view.search(query, 5, START)
    assert [post["title"] for post in posts] == ["Water filter"]
    assert posts[0]["score"] > 0


@pytest.mark.req("MARKET-1")
def test_a_text_is_shown_whole_whatever_characters_it_has(view: View) -> None:
    odd = 'a\x00b \\u0000 \U0001f6df \u2028 " end'
    place = {"lat": 1.5, "lng": 2, "label": odd}
    view.apply([_created(1, "Plain"), _created(2, odd, body=odd, tags=["x\x00y"], location=place)])
    post, plain = view.current(_wanted(), START)[0]
    assert (post["title"], post["body"], post["tags"], post["location"]) == (odd, odd, ["x\x00y"], place)
    assert plain["title"] == "Plain"


@pytest.mark.req("MARKET-3")
def test_search_for_nothing_finds_nothing(view: View) -> None:
    view.apply([_created(1)])
    assert view.search("?!", 5, START) == ([], 1)


@pytest.mark.req("MARKET-4")
def test_a_damaged_view_or_one_of_another_version_is_derived_anew(tmp_path: Path) -> None:
    path = tmp_path / "view.db"
    path.write_bytes(b"this is no database, however long one looks at it" * 50)
    view = View(path)
    assert view._lamport() == 0
    view.apply([_created(1)])
    view.close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    again = View(path)
    assert again._lamport() == 0
    again.close()


@pytest.mark.req("MARKET-4")
def test_a_view_that_is_derived_anew_says_nothing_before_it_is_whole(view: View) -> None:
    assert view.follow("log 1", 2) == 0
    view.apply([_created(1), _created(2)])
    view.settle("log 1", 2)
    assert view.current(_wanted(), START)[1] == 2
    assert view.follow("log 2", 3) == 0
    view.apply([_created(1)])
    for question in (
        lambda: view.current(_wanted(), START),
        lambda: view.removed(1),
        lambda: view.search("water", 5, START),
        lambda: view.standing(ids.new_ulid()),
        lambda: view.written({AUTHOR}),
        lambda: view.acts({AUTHOR}, "", 0, 5),
        lambda: view.posts([ids.new_ulid()]),
        lambda: view.erased([AUTHOR], ids.new_ulid()),
        lambda: view.overdue(START, 5),
        lambda: view.settle("log 2", 3),
        lambda: view.settle("log 1", 1),
    ):
        with pytest.raises(DamagedView):
            question()
    assert view._lamport() == 1
    view.apply([_created(3)])
    view.settle("log 2", 3)
    assert view.current(_wanted(), START)[1] == 3


def _updated(lamport: int, target: Recorded, **fields: Any) -> Recorded:
    return _event(UPDATED, {"target_event_id": target.event.event_id, "fields": fields}, lamport)


def _deleted(lamport: int, target: Recorded) -> Recorded:
    event = target.event
    act = {
        "lamport": target.lamport,
        "event_id": event.event_id,
        "author": AUTHOR,
        "client_id": event.client_id,
        "digest": "",
    }
    post = {"event_id": event.event_id, "lamport": target.lamport, "author": AUTHOR, "acts": [act]}
    return _event(DELETED, {"posts": [post], "remaining": 0}, lamport)


def _drawn(data: st.DataObject) -> list[Recorded]:
    """A log in which posts are made, changed, ended and deleted, some more than once, and made again."""
    events: list[Recorded] = []
    for lamport in range(1, data.draw(st.integers(1, 14)) + 1):
        created = [event for event in events if event.event.event_type == CREATED]
        kind = data.draw(st.sampled_from(["made", "made", "changed", "ended", "deleted", "repeated"]))
        if kind == "made" or not created:
            events.append(_created(lamport, title=f"post {lamport}", tags=[f"tag{lamport}", 'a "b" c']))
            continue
        one = data.draw(st.sampled_from(created))
        if kind == "changed":
            name, value = data.draw(
                st.sampled_from([("title", "other"), ("tags", ["new"]), ("ttl_seconds", 60)])
            )
            events.append(_updated(lamport, one, **{name: value}))
        elif kind == "ended":
            events.append(_ended(lamport, one))
        elif kind == "deleted":
            events.append(_deleted(lamport, one))
        else:
            again = msgspec.structs.replace(one.event, event_id=ids.new_ulid(START + lamport))
            gone = [event for event in events if event.event.event_type == DELETED]
            taken = {event.event.data["posts"][0]["acts"][0]["client_id"] for event in gone}
            events.append(Recorded(again, lamport) if again.client_id in taken else _created(lamport))
    return events


def _all_of(view: View, path: Path) -> list[Any]:
    """Everything in the view; its index of words must hold the posts that are current, and no others."""
    view.close()
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO post_text (post_text, rank) VALUES ('integrity-check', 1)")
        tables = ("post", "act", "erased", "erasing", "place")
        found = [sorted(database.execute(f"SELECT * FROM {table}"), key=repr) for table in tables]
        found += [database.execute("SELECT rowid FROM post_text WHERE post_text MATCH 'post'").fetchall()]
    database.close()
    return found


@settings(max_examples=60)
@given(st.data())
@pytest.mark.req("MARKET-4")
def test_batches_and_repetitions_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    events = _drawn(data)
    folder = tmp_path_factory.mktemp("view")
    whole, pieces = View(folder / "whole.db"), View(folder / "pieces.db")
    whole.apply(events)
    at = 0
    while at < len(events):
        size = data.draw(st.integers(1, len(events) - at))
        back = data.draw(st.integers(0, at))
        pieces.apply(events[back : at + size])
        at += size
    assert _all_of(whole, folder / "whole.db") == _all_of(pieces, folder / "pieces.db")


@pytest.mark.req("MARKET-5")
@pytest.mark.parametrize(
    ("principal", "level", "reason", "allowed"),
    [
        (AUTHOR, "member", "user_request", True),
        (AUTHOR, "unknown", "stale", True),
        ("other", "member", "stale", False),
        ("other", "trusted", "stale", True),
        ("other", "anchor", "withdrawn", True),
        ("other", "anchor", "user_request", False),
    ],
)
def test_who_may_end_a_post(principal: str, level: str, reason: str, allowed: bool) -> None:
    if allowed:
        check_expiry(AUTHOR, {principal}, level, reason)
        return
    with pytest.raises(HearthNetError) as caught:
        check_expiry(AUTHOR, {principal}, level, reason)
    assert caught.value.code == "unauthorized"


@pytest.mark.req("MARKET-6")
def test_every_sweeper_makes_the_same_client_id() -> None:
    """In every process and version: it is what keeps two sweepers from ending a post twice."""
    assert sweep_id("01JZZZZZZZZZZZZZZZZZZZZZ02") == "3VN3RB29YAENB6B6YV7SGF1J87"
    assert sweep_id("01JZZZZZZZZZZZZZZZZZZZZZ02") != sweep_id("01JZZZZZZZZZZZZZZZZZZZZZ03")
    assert ids.is_ulid("3VN3RB29YAENB6B6YV7SGF1J87")


@pytest.mark.req("MARKET-13")
def test_a_guests_post_names_the_member_who_answers_for_it(view: View) -> None:
    created = _created(1)
    by_guest = Recorded(msgspec.structs.replace(created.event, author=f"{AUTHOR}/anna"), 1)
    view.apply([by_guest])
    (post,), _ = view.current(_wanted(), START)
    assert (post["author"], post["guest"]) == (AUTHOR, "anna")
    standing, _ = view.standing(created.event.event_id)
    assert standing is not None
    assert standing.author == f"{AUTHOR}/anna"


@pytest.mark.req("MARKET-13")
def test_a_guest_ends_its_own_posts_and_its_member_those_of_its_guests() -> None:
    anna = f"{AUTHOR}/anna"
    check_expiry(anna, {anna}, "unknown", "fulfilled")
    check_expiry(anna, {AUTHOR}, "member", "fulfilled")
    for author, principal in ((anna, f"{AUTHOR}/berta"), (anna, f"{AUTHOR}/ann"), (AUTHOR, anna)):
        with pytest.raises(HearthNetError, match="only its author, or a trusted member") as caught:
            check_expiry(author, {principal}, "unknown", "fulfilled")
        assert caught.value.code == "unauthorized"
