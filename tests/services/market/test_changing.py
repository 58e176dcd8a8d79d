"""Posts that change, and posts that are ended by others than their authors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339, now_ms
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.services.market.trade import Guest, do, found, listed, post, refused

pytestmark = pytest.mark.asyncio


@pytest.mark.req("MARKET-14")
async def test_a_change_is_seen_searched_and_told_to_who_follows(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        first = await post(bus, "Water filter", tags=["water"])
        second = await post(bus, "Firewood")
        made = await do(
            bus, "update", event_id=first, fields={"title": "Sleeping bag", "tags": [], "category": "info"}
        )
        posts = (await do(bus, "list"))["posts"]
        assert [one["event_id"] for one in posts] == [second, first]
        changed = posts[1]
        assert (changed["title"], changed["body"], changed["tags"]) == ("Sleeping bag", "To lend.", [])
        assert (changed["lamport"], changed["category"]) == (made["lamport"], "info")
        assert "updated_at" in changed
        assert "updated_at" not in posts[0]
        assert await found(bus, "filter water") == []
        assert await found(bus, "bag") == ["Sleeping bag"]
        since = await do(bus, "list", since_lamport=2)
        assert [one["event_id"] for one in since["posts"]] == [first]
        assert since["max_lamport"] == 3
        await do(bus, "expire", event_id=first, reason="fulfilled")
        # Who read it before it was changed is told of its end, too.
        assert (await do(bus, "list", since_lamport=2))["removed"] == [first]


@pytest.mark.req("MARKET-14")
async def test_a_change_may_move_the_place_and_the_end(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        place = {"lat": 52.28, "lng": 8.05, "label": "Mill Lane 4"}
        moved = {"lat": 52.3, "lng": 8.1, "label": "Bakery"}
        with monkeypatch.context() as earlier:
            earlier.setattr("hearthnet.service.effects.event_log.now_ms", lambda: now_ms() - 100_000)
            one = await post(bus, ttl_seconds=7200, location=place)
        before = (await listed(bus))[one]
        assert before["location"] == place
        changes: list[tuple[dict[str, Any] | None, int]] = [(moved, 86_400), (None, 3600)]  # later, earlier
        for location, seconds in changes:
            await do(bus, "update", event_id=one, fields={"location": location, "ttl_seconds": seconds})
            after = (await listed(bus))[one]
            assert after["location"] == location
            updated = from_rfc3339(after["updated_at"])
            assert updated >= from_rfc3339(before["created_at"]) + 100_000
            assert from_rfc3339(after["expires_at"]) == updated + seconds * 1000
            assert after["created_at"] == before["created_at"]


@pytest.mark.req("MARKET-14")
async def test_only_the_author_changes_a_post_and_only_what_it_has_read(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.guest_bus() as guest:
        one = await post(guest)
        fields = {"body": "Not to lend."}
        assert (await refused(bus, "update", event_id=one, fields=fields)).code == "unauthorized"
        await do(guest, "update", event_id=one, expected_lamport=1, fields=fields)
        late = await refused(guest, "update", event_id=one, expected_lamport=1, fields={"body": "Gone."})
        assert late.code == "bad_request"
        assert late.details == {"path": "/input/expected_lamport", "rule": "changed", "lamport": 2}
        assert (await listed(bus))[one]["body"] == "Not to lend."
        gone = await refused(guest, "update", event_id=ids.new_ulid(), fields=fields)
        assert gone.code == "not_found"


@pytest.mark.req("MARKET-14", "MARKET-12")
async def test_of_changes_at_once_that_expect_the_same_one_happens(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), mesh.hosting(MarketService()), await mesh.bus() as bus:
        one = await post(bus)

        async def change(number: int) -> str:
            try:
                await do(
                    bus, "update", event_id=one, expected_lamport=1, fields={"title": f"number {number}"}
                )
            except HearthNetError as error:
                return error.code
            return f"number {number}"

        said = await asyncio.gather(*(change(number) for number in range(4)))
        winners = [word for word in said if word.startswith("number")]
        assert len(winners) == 1
        assert sorted(set(said) - set(winners)) == ["bad_request"]
        assert (await do(bus, "list"))["max_lamport"] == 2
        assert (await listed(bus))[one]["title"] == winners[0]


@pytest.mark.req("MARKET-12")
async def test_repeated_changes_and_ends_get_their_first_outcome(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        one = await post(bus)
        change = {
            "client_id": ids.new_ulid(),
            "event_id": one,
            "expected_lamport": 1,
            "fields": {"body": "x"},
        }
        end = {"client_id": ids.new_ulid(), "event_id": one, "reason": "fulfilled"}
        changed, ended = await do(bus, "update", **change), await do(bus, "expire", **end)
        assert await do(bus, "update", **change) == changed
        assert await do(bus, "expire", **end) == ended
        other = await refused(bus, "update", **{**change, "fields": {"body": "y"}})
        assert (other.code, other.details) == ("bad_request", {"path": "/input/client_id", "rule": "reused"})
        assert (await do(bus, "list"))["max_lamport"] == 3


@pytest.mark.req("MARKET-15")
async def test_a_moderator_ends_a_post_says_why_and_who_is_told(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as anchor, await mesh.guest_bus() as member:
        one, own = await post(member, "Snake oil"), await post(anchor, "Honest oil")
        assert (await refused(member, "expire", event_id=own, reason="stale")).code == "unauthorized"
        words = await refused(anchor, "expire", event_id=one, reason="user_request")
        assert words.code == "unauthorized"
        await do(anchor, "expire", event_id=one, reason="withdrawn", note="This cures nothing.")
        since = await do(member, "list", since_lamport=1)
        assert since["removed"] == [one]
        (end,) = since["ended"]
        assert end | {"at": ""} == {
            "event_id": one,
            "lamport": 3,
            "reason": "withdrawn",
            "by": mesh.identity.node_id,
            "moderated": True,
            "note": "This cures nothing.",
            "at": "",
        }
        (mine,) = (await do(member, "export"))["posts"]
        assert mine["end"] == end
        assert (await refused(member, "update", event_id=one, fields={"body": "x"})).code == "not_found"


@pytest.mark.req("MARKET-15", "MARKET-13")
async def test_what_a_guest_wrote_is_ended_by_its_member_as_its_own(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.guest_bus() as member:
        anna = Guest(mesh, bus)
        made = await anna.do("post", category="offer", title="Kites", body="To fly.")
        one = made["event_id"]
        for verb, given in (("expire", {"reason": "stale"}), ("update", {"fields": {"body": "x"}})):
            assert (await refused(member, verb, event_id=one, **given)).code == "unauthorized"
        assert (await refused(bus, "update", event_id=one, fields={"body": "x"})).code == "unauthorized"
        await anna.do("update", event_id=one, fields={"body": "To fly high."})
        await do(bus, "expire", event_id=one, reason="withdrawn")
        (end,) = (await do(bus, "list", since_lamport=1))["ended"]
        assert (end["by"], end.get("guest"), end.get("moderated")) == (mesh.identity.node_id, None, None)
