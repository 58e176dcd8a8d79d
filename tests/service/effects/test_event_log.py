"""The event log answers in time, whatever becomes of what it asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hearthnet import Call, Reply, capability
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import FULL_BYTES, Home
from hearthnet.service.effects.event_log import EventLog
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, Anything, ProbeService, post
from tests.helpers.stopwatch import Stopwatch

SECONDS = 4.0
pytestmark = pytest.mark.asyncio


class _Timed(ProbeService):
    """Notes how its appends end, and how many seconds after the call that is."""

    def __init__(self) -> None:
        super().__init__()
        self.watch = Stopwatch()
        self.ends: list[tuple[float, str]] = []
        self.before: Callable[[], None] = lambda: None

    @capability(POST, event_sourced=True)
    async def post(self, call: Call[Anything, Anything]) -> Reply:
        """Appends; tells nobody but the test."""
        if self.events is None:
            raise RuntimeError("not started")
        self.before()
        try:
            await self.events.append(call, "test", {})
        except HearthNetError as error:
            self.ends.append((self.watch.seconds(), error.code))
            raise HearthNetError("not_found", "it did not happen") from error
        return Reply({"event_id": ids.new_ulid(), "lamport": 1}, {"repeated": False})


async def _post(mesh: Mesh, timed: _Timed, **log: Any) -> None:
    async with mesh.hosting(timed), await mesh.bus() as bus, await mesh.store() as store:
        timed.events = EventLog(store, "MARKET", log.pop("prefix", "mk.post"), bus.peer.community, **log)
        timed.watch = Stopwatch(mesh.server.process.pid)
        with pytest.raises(HearthNetError, match="it did not happen"):
            await bus.call(POST, post(ids.new_ulid()), timeout_seconds=SECONDS)


@pytest.mark.req("UP-29")
async def test_an_append_without_answer_ends_before_the_caller_gives_up(mesh: Mesh) -> None:
    timed = _Timed()
    await _post(mesh, timed, prefix="nobody.hears")
    [(took, code)] = timed.ends
    assert code == "partition"
    assert took < SECONDS - 0.5


@pytest.mark.req("UP-29")
async def test_a_full_disk_is_refused_before_the_server_meets_it(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = _Timed()
    timed.before = lambda: monkeypatch.setattr(Home, "free_bytes", lambda home: FULL_BYTES - 1)
    await _post(mesh, timed, home=mesh.home)
    [(took, code)] = timed.ends
    assert code == "capacity_exceeded"
    assert took < 1
