"""One failing tool destroys its siblings.

See: docs/protocol/failures.md#failing-sibling.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from tests.agent.bench import QUERY, paired
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import ScriptedBus, calls, done, gives, raises, says

BODY = {"params": {}, "input": {"messages": [{"role": "user", "content": "All of it."}]}}


async def hangs(_body: dict[str, Any]) -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


async def is_no_json(_body: dict[str, Any]) -> dict[str, Any]:
    return {"what": object()}


@pytest.mark.asyncio
@pytest.mark.req("TOOL-2", "TOOL-14")
async def test_of_five_calls_one_raises_one_hangs_one_gives_no_json() -> None:
    wanted = [
        calls("search_corpus", QUERY, "good"),
        calls("list_corpora", {}, "raises"),
        calls("list_marketplace", {}, "hangs"),
        calls("search_marketplace", {"query": "axe"}, "odd"),
        calls("search_corpus", {"query": "fire"}, "also good"),
    ]
    bus = ScriptedBus(
        [*wanted, done("tool_calls")],
        [says("Three failed."), done()],
        tools={
            "rag.query@1.0": gives({"chunks": []}),
            "rag.list_corpora@1.0": raises(RuntimeError("boom")),
            "market.list@1.0": hangs,
            "market.search@1.0": is_no_json,
        },
    )
    names = ("search_corpus", "list_corpora", "list_marketplace", "search_marketplace")
    executor = ToolExecutor(bus, tools(*names), per_tool_timeout_seconds=1.5)
    outcome = await executor.open_run(BODY).drive()
    assert outcome.message["content"] == "Three failed."
    paired(outcome.messages)
    results = [message for message in outcome.messages if message["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == ["good", "raises", "hangs", "odd", "also good"]
    assert [result["is_error"] for result in results] == [False, True, True, True, False]
    assert [result["content"].partition(":")[0] for result in results if result["is_error"]] == [
        "internal_error",
        "timeout",
        "internal_error",
    ]
