"""Counts of calls between homes: the book on the disk, and what a process adds to it over a real server."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.session.usage_book import KEPT_DAYS, UsageBook, UsageCount, UsageKey
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

ANNA, BERTA = "ed25519:anna", "ed25519:berta"


def key(day: str, home: str = ANNA, capability: str = QUERY) -> UsageKey:
    return UsageKey(day, "served", home, "rag", capability)


def rows(book: UsageBook) -> dict[UsageKey, UsageCount]:
    return dict(book.rows(""))


@pytest.mark.req("SHARE-8")
def test_book_adds_up_counts_of_several_processes(tmp_path: Path) -> None:
    one, other = UsageBook(tmp_path / "usage"), UsageBook(tmp_path / "usage")
    assert one.rows("") == []
    one.add([(key("2026-06-10"), UsageCount(1, 500, 7, 8)), (key("2026-06-10", BERTA), UsageCount(1, 1))])
    other.add([(key("2026-06-10"), UsageCount(2, 250, 1, 1))])
    assert rows(one) == {
        key("2026-06-10"): UsageCount(3, 750, 8, 9),
        key("2026-06-10", BERTA): UsageCount(1, 1),
    }
    other.add([(key("2026-06-10", capability="rag.list_corpora@1.0"), UsageCount(1, 50))])
    assert one.served_ms("2026-06-10", "rag") == {ANNA: 800, BERTA: 1}
    assert one.served_ms("2026-06-11", "rag") == one.served_ms("2026-06-10", "llm") == {}


@pytest.mark.req("SHARE-9")
def test_book_forgets_old_days_and_homes(tmp_path: Path) -> None:
    book = UsageBook(tmp_path / "usage")
    book.add([(key("2026-01-01"), UsageCount(1, 1)), (key("2026-01-02", BERTA), UsageCount(1, 1))])
    book.add([(key("2026-04-01"), UsageCount(1, 1))])
    assert [one.day for one in rows(book)] == ["2026-04-01", "2026-01-02", "2026-01-01"], KEPT_DAYS
    book.add([(key("2026-04-02"), UsageCount(1, 1))])
    assert [one.day for one in rows(book)] == ["2026-04-02", "2026-04-01", "2026-01-02"]
    assert book.forget([ANNA]) == 2
    assert book.keep_only(lambda home: home == BERTA) == 0
    assert book.keep_only(lambda home: False) == 1
    assert b"anna" not in b"".join(path.read_bytes() for path in (tmp_path / "usage").glob("usage.db"))


@pytest.mark.req("ATTACK-150")
@pytest.mark.asyncio
async def test_calls_of_less_than_a_millisecond_add_up(mesh: Mesh) -> None:
    today = datetime.now().date().isoformat()
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        usage, home = host.peer.usage, guest.peer.node_id
        for _ in range(1_000):
            usage.served(home, QUERY, 0.0009, {})
        assert 899 <= usage.pending_ms(today, home) <= 900
        usage.served(home, "rag.manifest@1.0", 5.0, {})
        assert usage.pending_ms(today, home) <= 900, "homes with copies look every few seconds"


@pytest.mark.req("ATTACK-148")
def test_damaged_book_is_put_aside_and_begun_anew(tmp_path: Path) -> None:
    one, other = UsageBook(tmp_path / "usage"), UsageBook(tmp_path / "usage")
    one.add([(key("2026-06-10"), UsageCount(1, 500))])
    for torn in (b"no database at all" * 1_000, b"SQLite format 3\0" + bytes(range(250)) * 40):
        (tmp_path / "usage" / "usage.db").write_bytes(torn)
        one.add([(key("2026-06-10"), UsageCount(1, 1))])
        other.add([(key("2026-06-10"), UsageCount(1, 1))])
        assert rows(other) == {key("2026-06-10"): UsageCount(2, 2)}
    assert len([*(tmp_path / "usage").glob("usage.db.damaged")]) == 1, "the last one is kept"


@pytest.mark.req("SHARE-8")
@pytest.mark.asyncio
async def test_calls_between_homes_are_counted_on_both_sides(mesh: Mesh) -> None:
    service = ProbeService()

    async def work(call: Call[Any, Any]) -> None:
        await asyncio.sleep(0.02)

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "t"})

    service.answer, service.talk = work, talk
    here, there = UsageBook(mesh.home.usage), UsageBook(mesh.guest.usage)
    async with mesh.hosting(service) as host:
        node = host.peer.node_id
        async with await mesh.guest_bus() as guest, await mesh.bus() as own:
            asker = guest.peer.node_id
            await asyncio.gather(*(guest.call(QUERY, query()) for _ in range(3)))
            async with guest.stream(CHAT, CHAT_BODY) as stream:
                assert [frame.event async for frame in stream][-1] == "done"
            await own.call(QUERY, query())
            await wait_for(lambda: len(rows(here)) == 2, 5, "the counts of the provider, while it runs")
        used = rows(there)
    served = rows(here)
    today = datetime.now().date().isoformat()
    asked, chatted = (UsageKey(today, "served", asker, "probe", name) for name in (QUERY, CHAT))
    assert set(served) == {asked, chatted}, "calls of this home are not counted"
    assert (served[asked].calls, served[chatted].calls) == (3, 1)
    assert served[asked].ms >= 60
    assert served[chatted][2:] == (1, 1)
    worked_ms = served[asked].ms
    asked, chatted = (UsageKey(today, "used", node, "", name) for name in (QUERY, CHAT))
    assert set(used) == {asked, chatted}
    assert (used[asked].calls, used[chatted].calls, used[chatted][2:]) == (3, 1, (1, 1))
    assert 60 <= used[asked].ms <= worked_ms + 30


@pytest.mark.req("SHARE-9", "ATTACK-131")
@pytest.mark.asyncio
async def test_counts_of_strangers_and_of_homes_that_left_are_not_kept(mesh: Mesh) -> None:
    today, gone = datetime.now().date().isoformat(), "ed25519:" + "A" * 43
    UsageBook(mesh.home.usage).add([(key(today, gone), UsageCount(1, 1))])
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        host.peer.usage.served(guest.peer.node_id, QUERY, 1.0, {})
        host.peer.usage.served(gone, QUERY, 1.0, {})
        waiting = [host.peer.usage.pending_ms(today, one) for one in (guest.peer.node_id, gone)]
        assert waiting == [1000, 0], "a stranger leaves nothing"
        await guest.call(QUERY, query())
        await wait_for(
            lambda: guest.peer.node_id in {one.home for one in rows(host.peer.usage.book)}, 5, "it"
        )
        await wait_for(lambda: gone not in {one.home for one in rows(host.peer.usage.book)}, 5, "the removal")


@pytest.mark.req("ATTACK-131")
@pytest.mark.asyncio
async def test_what_a_provider_says_of_its_work_is_bounded_by_the_wait(mesh: Mesh) -> None:
    async with await mesh.guest_bus() as guest:
        node, usage = mesh.identity.node_id, guest.peer.usage
        for meta in (
            {"ms": 10**9, "tokens_in": -1},
            {"ms": "5", "tokens_out": 2**60},
            {"ms": 5, "tokens_in": True},
        ):
            usage.used(node, CHAT, 100, meta)
    (count,) = rows(UsageBook(mesh.guest.usage)).values()
    assert count == UsageCount(3, 205, 0, 0)
