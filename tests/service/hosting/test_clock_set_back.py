"""A service whose home's time was moved back by other homes."""

from __future__ import annotations

import asyncio

import pytest

from hearthnet import HearthNetError
from hearthnet.core.times import CLOCK
from hearthnet.service.hosting import main
from hearthnet.service.hosting.status import Status
from tests.helpers.mesh import Mesh
from tests.helpers.probe import ProbeService
from tests.helpers.waiting import wait_for

DAY = 24 * 3_600_000


class _Heard(Status):
    """The status of a service, as a supervisor would hear it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.is_ready = False

    def ready(self, offers: list[str], note: str | None, address: str = "") -> None:
        self.is_ready = True


@pytest.mark.req("CLOCK-10", "ATTACK-128")
@pytest.mark.asyncio
async def test_a_service_ends_to_begin_as_another_instance(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "_CLOCK_SECONDS", 0.05)
    status = _Heard()
    with mesh.published():
        CLOCK.follow(mesh.home)
        serving = asyncio.create_task(main.serve(ProbeService(), mesh.home, status, asyncio.Event()))
        await wait_for(lambda: status.is_ready, what="the service")
        CLOCK.learn(DAY)
        done, _ = await asyncio.wait({serving}, timeout=0.3)
        assert not done, "ahead is no reason"
        CLOCK.learn(0)
        with pytest.raises(HearthNetError, match="set back") as caught:
            await asyncio.wait_for(serving, 10)
    assert caught.value.details["rule"] == "clock_set_back"
