"""Posts with a place: kept roughly, measured from where somebody is, the nearest first."""

from __future__ import annotations

import pytest

from hearthnet.cli.workflows.market_proofs import problem
from hearthnet.core.ids import unb64
from hearthnet_market.distances import Position, km_between
from tests.helpers.mesh import Mesh
from tests.services.market.stalls import stall
from tests.services.market.trade import do, post, refused

BERLIN = {"lat": 52.52, "lng": 13.405}
MUNICH = {"lat": 48.137, "lng": 11.575}
POTSDAM = {"lat": 52.391, "lng": 13.064}
DOOR = {"lat": 52.39056, "lng": 13.064, "label": "Potsdam"}


@pytest.mark.req("MARKET-47")
def test_distances_are_those_of_the_globe() -> None:
    assert km_between(Position(52.52, 13.405), Position(48.137, 11.575)) == pytest.approx(504.4, abs=0.5)
    assert km_between(Position(0, 179.5), Position(0, -179.5)) == pytest.approx(111.2, abs=0.1)
    assert km_between(Position(90, 0), Position(90, 123)) == pytest.approx(0, abs=1e-6)
    assert km_between(Position(10, 20), Position(-10, -160)) == pytest.approx(20_015, abs=1)


@pytest.mark.asyncio
@pytest.mark.req("MARKET-47")
async def test_the_nearest_posts_come_first_with_their_distances(mesh: Mesh) -> None:
    async with stall(mesh, mesh.home) as home:
        await post(home.bus, "Saw", location={**MUNICH, "label": "Munich"})
        await post(home.bus, "Drill", location={**POTSDAM, "label": "Potsdam"})
        await post(home.bus, "Anvil")
        plain = (await do(home.bus, "list"))["posts"]
        assert [one["title"] for one in plain] == ["Anvil", "Drill", "Saw"]
        assert not any("km" in one for one in plain)
        assert plain[1]["location"] == {"lat": 52.391, "lng": 13.064, "label": "Potsdam"}

        near = (await do(home.bus, "list", near=BERLIN))["posts"]
        assert [one["title"] for one in near] == ["Drill", "Saw", "Anvil"]
        assert [one.get("km") for one in near] == [pytest.approx(27.2, abs=0.3), 504.3, None]
        within = (await do(home.bus, "list", near=BERLIN, within_km=100, category="offer"))["posts"]
        assert [one["title"] for one in within] == ["Drill"]
        assert (await do(home.bus, "list", near=BERLIN, limit=1))["posts"] == near[:1]
        changed = (await do(home.bus, "list", near=MUNICH, since_lamport=1))["posts"]
        assert [one.get("km") for one in changed] == [pytest.approx(484, abs=3), None]
        found = (await do(home.bus, "search", query="saw", near=BERLIN))["posts"]
        assert [one["km"] for one in found] == [504.3]

        drill = near[0]["event_id"]
        await do(home.bus, "update", event_id=drill, fields={"location": {**MUNICH, "label": ""}})
        moved = (await do(home.bus, "list", near=MUNICH))["posts"]
        assert [one.get("km") for one in moved] == [0, 0, None]
        assert (await refused(home.bus, "list", within_km=3)).details["path"] == "/input/near"


@pytest.mark.asyncio
@pytest.mark.req("MARKET-47", "ATTACK-147")
async def test_no_event_says_at_which_door_a_thing_stands(mesh: Mesh) -> None:
    """Not in the signed request either, which every home gets, and of which every export has a digest."""
    async with stall(mesh, mesh.home) as home:
        error = await refused(home.bus, "post", category="offer", title="Saw", body="b", location=DOOR)
        assert (error.rule, error.details["path"]) == ("decimals", "/input/location/lat")
        saw = await post(home.bus, "Saw", location={**POTSDAM, "label": "Potsdam"})
        error = await refused(home.bus, "update", event_id=saw, fields={"location": DOOR})
        assert (error.rule, error.details["path"]) == ("decimals", "/input/fields/location/lat")
        for event in (await do(home.bus, "export", event_id=saw))["events"]:
            assert b"52.391" in unb64(event["frame"])
            assert problem(event, home.bus.peer.roster) == ""
