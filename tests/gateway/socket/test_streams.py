"""Streams through a real socket: from the first frame to the last, and over breaks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.gateway import House
from tests.helpers.socket_client import complete, line

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORDS = "one two three four five six seven eight nine ten eleven twelve"


def numbered(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["seq"] for frame in frames]


@pytest.mark.req("SOCK-1", "SOCK-2")
async def test_a_stream_comes_in_order_and_ends_once(shared: House) -> None:
    guest = shared.guest()
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.complete", complete(WORDS))
        frames = await one.rest()
    assert numbered(frames) == list(range(len(frames)))
    assert frames[0]["event"] == "opened"
    assert "".join(frame["data"]["text"] for frame in frames if frame["event"] == "token") == WORDS + " "
    assert [frame["event"] for frame in frames].count("done") == 1
    assert (frames[-1]["event"], one.close_code) == ("done", 1000)


@pytest.mark.req("SOCK-1")
async def test_a_call_that_does_not_stream_answers_with_its_result(shared: House) -> None:
    guest = shared.guest()
    body = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
    async with line(shared, guest) as one:
        await one.call(shared, guest, "rag.query", body)
        frames = await one.rest()
    assert [frame["event"] for frame in frames] == ["opened", "result", "done"]
    assert frames[1]["data"]["output"]["chunks"][0]["text"] == "about water"
