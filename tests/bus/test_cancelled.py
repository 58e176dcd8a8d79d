"""Cancelling what waits for the server: an answer that comes at the same moment does not undo it."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.mesh import Mesh


@pytest.mark.asyncio
@pytest.mark.req("BUS-33")
async def test_work_that_is_cancelled_as_its_answer_comes_ends(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        link = bus.peer.link
        connection = link._connection
        assert connection is not None
        answers = connection._pongs
        settling = asyncio.create_task(link.flush_subscriptions())
        for _ in range(1000):  # the real one is there within a millisecond
            if answers:
                break
            await asyncio.sleep(0)
        answers.popleft().set_result(None)
        settling.cancel()
        await asyncio.wait([settling], timeout=20)
        assert settling.cancelled()
