"""Cancelling what sends: the client library swallows that while it flushes, and the link does not."""

from __future__ import annotations

import asyncio

import pytest

from tests.helpers.mesh import Mesh


@pytest.mark.asyncio
@pytest.mark.req("BUS-33")
async def test_work_that_is_cancelled_while_it_sends_ends(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        link = bus.peer.link
        client = link._client
        unread: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue(maxsize=1)
        unread.put_nowait(asyncio.get_running_loop().create_future())
        flushed, client._flush_queue = client._flush_queue, unread

        async def send() -> str:
            await link.publish("nobody.listens", b"x")
            return "went on"

        sending = asyncio.create_task(send())
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending], timeout=5)
        client._flush_queue = flushed
        assert sending.cancelled()
