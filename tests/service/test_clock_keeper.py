"""A home's time, learned from the answers of other homes on a real bus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from hearthnet import connect
from hearthnet.bus.session import sender
from hearthnet.core.home import Home
from hearthnet.core.times import CLOCK, now_ms, read_record
from hearthnet.protocol.header import Header
from hearthnet.service.community.clock_keeper import ClockKeeper
from hearthnet.service.hosting.host import Host
from hearthnet_auth.service import AuthService
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.off_clock import off_by
from tests.helpers.probe import POST, QUERY, ProbeService

pytestmark = pytest.mark.asyncio
DAY = 24 * 3_600_000
LISTEN_SECONDS = 0.5
"""Answers of homes on this computer come within 0.1 s."""


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and three members: guest, carol and dora."""
    started = await start_mesh(tmp_path, "carol", "dora")
    yield started
    started.server.stop()


@contextlib.asynccontextmanager
async def homes(mesh: Mesh, *ahead_ms: int) -> AsyncIterator[None]:
    """The other homes with their auth services, whose clocks are ahead by so much."""
    places: list[Home] = [mesh.home, *mesh.others]
    async with contextlib.AsyncExitStack() as stack:
        for ahead, place in zip(ahead_ms, places, strict=False):
            set_ahead(await stack.enter_async_context(mesh.hosting(AuthService(), at=place)), ahead)
        yield


def set_ahead(host: Host, ahead_ms: int) -> None:
    """The frames of `host` are of a clock that is ahead."""
    own: Any = host.peer.sender
    make = own.header

    def header(*arguments: Any, **fields: Any) -> Header:
        made: Header = make(*arguments, **fields)
        return msgspec.structs.replace(made, time=made.time + ahead_ms)

    own.header = header


@pytest.mark.req("CLOCK-3", "CLOCK-5")
async def test_a_clock_that_is_days_off_is_learned_from_two_homes(street: Mesh) -> None:
    real = now_ms()
    async with homes(street, -3 * DAY, -3 * DAY), await street.guest_bus() as bus:
        CLOCK.follow(street.guest)
        decision = await ClockKeeper(bus.peer).compare(LISTEN_SECONDS)
    assert decision.homes == 2
    assert abs(now_ms() - (real - 3 * DAY)) < 60_000
    record = read_record(street.guest)
    assert abs(record.ahead_ms + 3 * DAY) < 10_000
    assert (record.set_back, record.is_open) == (1, False)


@pytest.mark.req("CLOCK-3", "CLOCK-4", "ATTACK-125")
async def test_a_clock_that_was_confirmed_is_moved_back_by_nobody(street: Mesh) -> None:
    async with await street.guest_bus() as bus:
        async with homes(street, 1_000):
            CLOCK.follow(street.guest)
            keeper = ClockKeeper(bus.peer)
            assert (await keeper.compare(LISTEN_SECONDS)).is_confirmed
            CLOCK.unfollow()
        before = now_ms()
        async with homes(street, -3 * DAY, -3 * DAY, -3 * DAY):
            CLOCK.follow(street.guest)
            decision = await keeper.compare(LISTEN_SECONDS)
    assert (decision.ahead_ms, decision.homes) == (None, 3)
    assert now_ms() >= before
    assert read_record(street.guest).is_open


@pytest.mark.req("CLOCK-4")
async def test_a_time_before_an_own_event_is_none(street: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    async with homes(street, 9 * DAY), await street.bus(at=street.others[1]) as bus:
        CLOCK.follow(street.others[1])
        decision = await ClockKeeper(bus.peer).compare(LISTEN_SECONDS)
        assert decision.ahead_ms is None, "it may be right, and one home alone says otherwise"
        real = CLOCK.system
        monkeypatch.setattr(CLOCK, "system", lambda: real() - 9 * DAY)
        CLOCK.follow(street.others[1])
        street.others[1].clock.unlink()
        decision = await ClockKeeper(bus.peer).compare(LISTEN_SECONDS)
        assert decision.ahead_ms is not None, "its own events are of later"


@pytest.mark.req("CLOCK-4")
async def test_a_clock_that_jumps_ahead_confirms_nothing(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await street.guest_bus() as bus:
        async with homes(street, 1_000):
            CLOCK.follow(street.guest)
            keeper = ClockKeeper(bus.peer)
            await keeper.compare(LISTEN_SECONDS)
        confirmed, real = CLOCK.record.confirmed_ms, CLOCK.system
        assert abs(confirmed - now_ms()) < 60_000
        with monkeypatch.context() as ahead:
            ahead.setattr(CLOCK, "system", lambda: real() + 3 * DAY)
            await keeper.close()
            assert now_ms() > confirmed + 2 * DAY, "the step is followed"
        assert CLOCK.record.confirmed_ms == confirmed
        CLOCK.unfollow()
        async with homes(street, 1_000):
            CLOCK.follow(street.guest)
            assert now_ms() > confirmed + 2 * DAY
            monkeypatch.setattr(sender, "now_ms", real)
            await keeper.compare(LISTEN_SECONDS)
        assert abs(now_ms() - real()) < 60_000, "and taken back, since another home agrees with the clock"


@pytest.mark.req("CLOCK-5")
async def test_a_program_goes_by_the_time_of_the_home_that_it_joins(street: Mesh) -> None:
    with street.published():
        assert not CLOCK.follows
        async with connect(street.home.path):
            assert CLOCK.follows


@pytest.mark.req("CLOCK-5")
async def test_answers_have_the_time_of_their_home(street: Mesh) -> None:
    async with await street.bus() as bus:
        own, other = bus.peer.sender, street.guest.path.name
        own.clocks._ahead[other] = 3 * DAY
        assert own.header("call", "id", to=other).time > now_ms() + DAY
        for kind in ("reply", "frame", "replies", "offer"):
            assert abs(own.header(kind, "id", to=other).time - now_ms()) < 60_000


async def take_part(mesh: Mesh, place: Home, host: str, days: int) -> None:
    """A process of the home at `place`, whose clock is really off, reads and posts at `host`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.helpers.off_clock", str(place.path), mesh.server.url, host),
        env=off_by(days * 86_400),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    page = json.loads(output)
    assert abs(page["system"] - now_ms() - days * DAY) < 60_000, "the clock is off"
    assert abs(page["now"] - now_ms()) < 60_000, "and was corrected"
    assert page["homes"] == 2
    assert (page[QUERY], page[POST]) == ("ok", "ok")


@pytest.mark.req("CLOCK-5")
async def test_homes_of_other_days_take_part(street: Mesh) -> None:
    async with homes(street, 0, 0), street.hosting(ProbeService()) as host:
        node, places = host.peer.node_id, (street.guest, street.others[1])
        await asyncio.gather(
            *(take_part(street, place, node, days) for place, days in zip(places, (-9, 9), strict=True))
        )
