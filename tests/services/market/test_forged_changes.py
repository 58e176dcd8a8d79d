"""What another home writes to stop a market: it is refused, or has no effect on the posts of others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.service.effects.event_log import Event, EventLog, Recorded
from hearthnet_market.following import apply_events
from hearthnet_market.incoming import check_incoming
from hearthnet_market.lending import ReserveInput, reservation_of
from hearthnet_market.read_model import View
from hearthnet_market.schemas import CREATED, EXPIRED, HIDDEN, MOST_TAKEN_BACK, UNHIDDEN, UPDATED
from tests.helpers.waiting import DEADLINE_SECONDS
from tests.services.market.test_any_order import (
    ALL,
    ANNA,
    BERTA,
    START,
    changed,
    concerned,
    deleted,
    ended,
    event,
    made,
    reserved,
    step,
)

pytestmark = pytest.mark.req("ATTACK-100")
ID: Final = ids.new_ulid(START)
POST: Final = {"category": "offer", "title": "Ladder", "body": "b", "ttl_seconds": 9_999}


def told(event_type: str, data: dict[str, Any], author: str = ANNA, digest: str = "d") -> Event:
    """An event as Anna's home tells it."""
    one = event(1, event_type, data, author)
    return msgspec.structs.replace(one, client_id=ID, arguments_digest=digest)


def shown(view: View, *events: tuple[Event, str]) -> list[tuple[str, str]]:
    """Author and title of the posts, after events with the homes where they happened."""
    view.follow("log", len(events))
    for place, (one, home) in enumerate(events, start=1):
        view.apply([Recorded(one, place, home=home)])
    view.settle("log", len(events))
    return titles(view)


def titles(view: View) -> list[tuple[str, str]]:
    """Author and title of the posts."""
    return sorted((one["author"], one["title"]) for one in view.current(ALL, START)[0])


@pytest.mark.parametrize(
    "forged",
    [
        told(UPDATED, {"event_id": ID, "fields": {"title": "no target"}}),
        told(EXPIRED, {"event_id": ID, "reason": "stale"}),
        told(CREATED, POST, author=f"{ANNA}/" + "x" * 65),
        told(CREATED, POST, author=f"{ANNA}/"),
        told(CREATED, POST, digest="d" * 129),
        told(HIDDEN, {"target_event_id": ID}),
        told(HIDDEN, {"target_event_id": ID, "reason": "a\u202eb"}),
        told(UNHIDDEN, {"target_event_id": ID, "reason": "r"}),
        told(UNHIDDEN, {"target_event_id": ID, "reason": "r", "hidings": []}),
        told(UNHIDDEN, {"target_event_id": ID, "reason": "r", "hidings": [{"a": 1}]}),
        told(UNHIDDEN, {"target_event_id": ID, "reason": "r", "hidings": [ID] * (MOST_TAKEN_BACK + 1)}),
    ],
)
def test_what_the_view_could_not_apply_or_show_is_refused(forged: Event) -> None:
    with pytest.raises(HearthNetError):
        check_incoming(ANNA, forged)


@pytest.mark.req("MARKET-37")
def test_the_largest_unhiding_is_kept_by_homes_that_do_not_know_its_kind() -> None:
    largest = {"target_event_id": ID, "reason": "\U0001f600" * 280, "hidings": [ID] * MOST_TAKEN_BACK}
    check_incoming(ANNA, told(UNHIDDEN, {**largest, "client_id": ID}))
    check_incoming(ANNA, told("market.post.later", {**largest, "client_id": ID}))


def test_members_that_nobody_knows_are_not_read() -> None:
    end = {"target_event_id": ID, "reason": "stale"}
    for unknown in ({"title": 5}, {"location": "here"}, {"tags": 1}, {"fields": 3}):
        check_incoming(ANNA, told(EXPIRED, {**end, **unknown}))
        check_incoming(ANNA, told(UPDATED, {**end, **unknown, "fields": {"title": "t"}}))
    check_incoming(ANNA, told(CREATED, {**POST, "note": 5, "fields": 3}))


def test_a_post_with_a_foreign_id_takes_no_change_of_the_other(tmp_path: Path) -> None:
    """The change of a call here, by the author; Berta's home has given its own post that id."""
    view = View(tmp_path / "view.db", lambda one, author: one.author == author)
    events = (made(1, BERTA), BERTA), (made(1), ""), (changed(10, 1, 1, title="changed"), "")
    assert shown(view, *events) == [(ANNA, "changed"), (BERTA, "post 1")]
    view.close()


def test_one_event_that_ends_two_posts_with_one_id_ends_both(tmp_path: Path) -> None:
    """A home answers for its guests, so its end of an id is of a guest's post too."""
    view = View(tmp_path / "view.db", lambda one, author: author.startswith(one.author))
    events = (made(1), ANNA), (made(1, f"{ANNA}/guest"), ANNA), (ended(2, 1, "stale", 3), ANNA), (made(3), "")
    assert shown(view, *events) == [(ANNA, "post 3")]
    view.close()


def test_a_deletion_waits_for_the_right_to_be_made(tmp_path: Path) -> None:
    """Another device of the same person deletes, and its home hears of the device later."""
    devices = {ANNA}
    view = View(tmp_path / "view.db", lambda one, author: {one.author, author} <= devices)
    assert shown(view, (made(1), ANNA), (deleted(2, 1, author=BERTA), BERTA)) == [(ANNA, "post 1")]
    devices.add(BERTA)
    view.retry()
    assert titles(view) == []
    assert view.erasing(9) == [1]
    view.close()


def test_changes_of_posts_that_never_come_displace_those_of_their_own_home_alone(tmp_path: Path) -> None:
    view = View(tmp_path / "view.db", lambda one, author: one.author == author)
    early = (changed(10, 1, 1, title="changed"), ANNA)
    flood = [
        (msgspec.structs.replace(changed(number, number + 50_000, 1, title="x"), author=BERTA), BERTA)
        for number in range(11, 600)
    ]
    view.follow("log", 3_000)
    view.apply(
        [Recorded(one, place, home=home) for place, (one, home) in enumerate([early, *flood], start=1)]
    )
    view.apply([Recorded(made(1), 2_999, home=ANNA)])
    view.settle("log", 2_999)
    assert titles(view) == [(ANNA, "changed")]
    view.close()


def test_an_event_that_cannot_be_applied_leaves_those_beside_it(tmp_path: Path) -> None:
    view = View(tmp_path / "view.db", lambda one, author: True)
    broken = msgspec.structs.replace(changed(2, 1, 2, title="new"), data={"target_event_id": {"a": []}})
    batch = [
        Recorded(one, place, home=ANNA)
        for place, one in enumerate((made(1), broken, made(3), changed(4, 3, 2, title="later")), start=1)
    ]
    view.follow("log", 4)
    view.apply(batch)
    view.settle("log", 4)
    assert titles(view) == [(ANNA, "later"), (ANNA, "post 1")]
    view.close()


@pytest.mark.asyncio
async def test_batches_are_applied_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each while the next one is read, and no other one."""
    view, loop = View(tmp_path / "view.db"), asyncio.get_running_loop()
    read, applied = list[int](), list[tuple[int, list[int]]]()
    arrived, apply = {place: threading.Event() for place in (1, 2, 3)}, view.apply

    class Log:
        async def read(self, after: int) -> AsyncIterator[list[Recorded]]:
            for place in range(after + 1, 4):
                read.append(place)
                arrived[place].set()
                yield [Recorded(made(place), place)]

    async def turns() -> None:
        """Let the loop read and start whatever it may before this batch is applied."""
        for _ in range(20):
            await asyncio.sleep(0)

    def watched(batch: list[Recorded]) -> None:
        (one,) = batch
        assert arrived[min(one.lamport + 1, 3)].wait(DEADLINE_SECONDS), "nothing is read meanwhile"
        asyncio.run_coroutine_threadsafe(turns(), loop).result(DEADLINE_SECONDS)
        apply(batch)
        applied.append((one.lamport, [*read]))

    monkeypatch.setattr(view, "apply", watched)
    view.follow("log", 3)
    await apply_events(cast("EventLog", Log()), view, 0)
    assert applied == [(1, [1, 2]), (2, [1, 2, 3]), (3, [1, 2, 3])]
    view.settle("log", 3)
    assert titles(view) == [(ANNA, f"post {number}") for number in (1, 2, 3)]
    view.close()


@pytest.mark.req("ATTACK-145")
def test_reservations_without_end_leave_those_of_others(tmp_path: Path) -> None:
    """Berta's home asks with low ids, as itself and as guests that it makes up, also with closed ones."""
    view, flood = View(tmp_path / "view.db", concerned), list[Event]()
    for number in range(100):
        flood += [reserved(number + 100, 1, author=BERTA), reserved(number + 300, 1, f"{BERTA}/g{number}")]
        withdrawn = step(number + 700, 1, number + 500, "withdraw", of=BERTA, author=BERTA)
        flood += [reserved(number + 500, 1, author=BERTA), withdrawn]
    late = [reserved(9_000 + one, 1, author="ed25519:" + f"{one:043d}") for one in range(20)]
    lent = step(9_900, 1, 9_019, "hand_over", of=late[19].author)
    for place, one in enumerate([made(1), *flood, *late, lent], start=1):
        view.apply([Recorded(one, place, home=one.author.partition("/")[0])])
    view.settle("", 0)
    standing, _ = view.standing(f"{1:026d}")
    assert standing is not None
    asked = [one for one in standing.loans if one.is_open]
    assert [one.by for one in asked if one.home == BERTA] == [BERTA, *(f"{BERTA}/g{n}" for n in range(3))]
    assert {one.author for one in late} < {one.by for one in asked}
    wanted = ReserveInput("c", f"{1:026d}")
    assert reservation_of(wanted, standing, {"ed25519:" + "z" * 43})["step"] == "ask"
    with pytest.raises(HearthNetError, match="persons of one home have at most 4"):
        reservation_of(wanted, standing, {f"{BERTA}/another"})
    [post] = view.current(ALL, START)[0]
    assert (len(post["loans"]), sum(one["by"] == BERTA for one in post["loans"])) == (24, 4)
    assert [one["by"] for one in post["loans"] if one["state"] == "lent"] == [late[19].author]
    view.close()
