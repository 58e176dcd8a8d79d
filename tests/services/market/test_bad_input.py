"""What people and programs send that is no good: the market says what, where and what to do, and lives."""

from __future__ import annotations

from typing import Any, Final

import pytest

from hearthnet.core import ids
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.services.market.trade import body, do, found, post, refused

pytestmark = pytest.mark.asyncio

_USUAL: Final[dict[str, dict[str, Any]]] = {
    "post": {"category": "offer", "title": "Saw", "body": "To lend."},
    "update": {"event_id": "01JZZZZZZZZZZZZZZZZZZZZZ99"},
    "expire": {"event_id": "01JZZZZZZZZZZZZZZZZZZZZZ99"},
    "list": {},
    "search": {},
}
_BAD: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("post", {"title": "a\u202eb"}, "/input/title"),
    ("post", {"title": "a\nb"}, "/input/title"),
    ("post", {"body": "a\x00b"}, "/input/body"),
    ("post", {"body": " \n\t "}, "/input/body"),
    ("post", {"tags": ["a", "\u2066"]}, "/input/tags/1"),
    ("post", {"location": {"lat": 1, "lng": 1, "label": "\x1b[2J"}}, "/input/location/label"),
    ("post", {"location": {"lat": 91, "lng": 1, "label": "x"}}, "/input/location/lat"),
    ("post", {"location": {"lat": 1, "lng": -180.5, "label": "x"}}, "/input/location/lng"),
    ("post", {"tags": ["x"] * 10_000}, "/input/tags"),
    ("post", {"title": "x" * 121}, "/input/title"),
    ("post", {"body": "x" * 1_000_000}, "/input/body"),
    ("post", {"ttl_seconds": 0}, "/input/ttl_seconds"),
    ("post", {"ttl_seconds": 2_592_001}, "/input/ttl_seconds"),
    ("update", {"fields": {"title": "\u202e"}}, "/input/fields/title"),
    ("update", {"fields": {}}, "/input/fields"),
    ("update", {"fields": {"price": 3}}, "/input/fields"),
    ("update", {"fields": {"location": {"lat": 1, "lng": 181, "label": "x"}}}, "/input/fields/location/lng"),
    ("update", {"fields": {"tags": ["x"] * 10_000}}, "/input/fields/tags"),
    ("list", {"tags": ["x"] * 10_000}, "/input/tags"),
    ("expire", {"reason": "stale", "note": "\x07"}, "/input/note"),
    ("list", {"limit": 0}, "/input/limit"),
    ("list", {"limit": 501}, "/input/limit"),
    ("list", {"since_lamport": -1}, "/input/since_lamport"),
    ("search", {"query": "x", "k": 51}, "/input/k"),
]


@pytest.mark.req("MARKET-16")
async def test_bad_input_is_refused_with_its_place(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        for verb, given, path in _BAD:
            error = await refused(bus, verb, **{**_USUAL[verb], **given})
            assert (error.code, error.details["path"]) == ("bad_request", path), given
            assert len(error.message) < 300
        assert (await do(bus, "list"))["max_lamport"] == 0


@pytest.mark.req("MARKET-16")
async def test_odd_questions_have_plain_answers(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        await post(bus, "Zither strings", body="Ein Satz\n\tSaiten.", tags=["music"])
        future = await do(bus, "list", since_lamport=10**15)
        assert (future["posts"], future["removed"], future["max_lamport"]) == ([], [], 1)
        for query in _QUERIES:
            assert await found(bus, query) == ["Zither strings"], query
        assert await found(bus, '"*()^:-') == []
        assert await found(bus, " ".join(f"word{number}" for number in range(120))) == []


_QUERIES: Final = (
    'zither" OR "',
    "zither*",
    "NEAR(zither strings)",
    "title:zither",
    "-zither",
    "zither AND (",
    "\x00 zither",
)


@pytest.mark.req("MARKET-16")
async def test_a_post_is_changed_so_often_and_not_more(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet_market.schemas.MOST_UPDATES", 2)
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        one = await post(bus)
        for _ in range(2):
            await do(bus, "update", event_id=one, fields={"body": "x"})
        error = await refused(bus, "update", event_id=one, fields={"body": "y"})
        assert (error.code, error.details["rule"]) == ("bad_request", "updates")
        request = body(client_id=ids.new_ulid(), event_id=one, reason="fulfilled")
        assert (await bus.call("market.expire@1.0", request)).output["lamport"] == 4
