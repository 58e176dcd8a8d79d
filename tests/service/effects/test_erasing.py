"""Erasing messages of a stream."""

from __future__ import annotations

import asyncio

import pytest

from hearthnet.service.effects import jetstream_records
from tests.helpers.mesh import Mesh

pytestmark = pytest.mark.asyncio


@pytest.mark.req("MARKET-17")
async def test_what_is_gone_already_counts_as_erased(mesh: Mesh) -> None:
    """The server names a message that is gone in two ways: its block may be there or not."""
    async with await mesh.store() as store:
        for name in "abc":
            await store.js.publish(f"mk.post.me.{name}", b"", stream="MARKET")
        for number in (2, 2, 1, 3, 3, 1):
            await jetstream_records.erase(store, "MARKET", number, "the log")
        for name in "def":
            await store.js.publish(f"mk.post.me.{name}", b"", stream="MARKET")
        await asyncio.gather(*(jetstream_records.erase(store, "MARKET", 6, "the log") for _ in range(3)))
        assert (await store.js.stream_info("MARKET")).state.messages == 2
