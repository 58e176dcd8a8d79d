"""Several processes of the market that start at the same moment."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from tests.helpers.mesh import Mesh
from tests.helpers.service_processes import call_at, processes_of_service
from tests.services.market.trade import body, post

PROCESSES = 4
POSTS = 40

pytestmark = pytest.mark.asyncio


@pytest.mark.req("MARKET-2", "MARKET-7")
async def test_processes_that_start_together_make_one_view(mesh: Mesh) -> None:
    """The first time of a home, and with a log from which the view has to be derived anew."""
    with mesh.published():
        async with await mesh.bus() as bus:
            ids = set[str]()
            for expected in (0, POSTS):
                shutil.rmtree(mesh.home.service("market"), ignore_errors=True)
                async with processes_of_service(bus, mesh.home, "market.list@1.0", PROCESSES) as market:
                    asked = (call_at(bus, view, "market.list@1.0", body(limit=500)) for view in market.views)
                    for reply in await asyncio.gather(*asked):
                        assert reply.output["max_lamport"] == expected
                        assert {one["event_id"] for one in reply.output["posts"]} == ids
                    if not expected:
                        ids = {await post(bus, f"post {number}") for number in range(POSTS)}
                    assert [process.returncode for process in market.processes] == [None] * PROCESSES
