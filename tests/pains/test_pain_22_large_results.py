"""50 MB passes through the object store; the model gets head, tail and a bounded reader.

See: docs/protocol/failures.md#oversized-result.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.result_store import HOLD_MS, HomeResults
from hearthnet.agent.tools.result_text import MOST_READ, READ_RESULT
from hearthnet.core.times import now_ms
from hearthnet.protocol.manifest import manifest_of
from tests.agent.bench import QUERY
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import ScriptedBus, calls, done, gives, says
from tests.helpers.mesh import Mesh

SIZE = 50_000_000
BODY = {"params": {}, "input": {"messages": [{"role": "user", "content": "What is in it?"}]}}


@pytest.mark.asyncio
@pytest.mark.req("TOOL-52", "TOOL-53")
async def test_fifty_megabytes_are_kept_and_read_in_parts(mesh: Mesh) -> None:
    words = "".join(f"{number:09d}\n" for number in range(SIZE // 10))
    text = json.dumps({"text": words}, separators=(",", ":"))
    cid = manifest_of(text.encode()).cid
    middle = len(text) // 2
    ask: dict[str, Any] = {"cid": cid, "offset": middle, "length": MOST_READ}
    bus = ScriptedBus(
        [calls("search_corpus", QUERY, "a"), done("tool_calls")],
        [calls(READ_RESULT, ask, "b"), done("tool_calls")],
        [says("Numbers."), done()],
        tools={"rag.query@1.0": gives({"text": words})},
    )
    with mesh.published():
        async with HomeResults(mesh.home) as results:
            executor = ToolExecutor(bus, tools("search_corpus"), results=results)
            outcome = await executor.open_run(BODY).drive()
    large, part = [json.loads(one["content"]) for one in outcome.messages if one["role"] == "tool"]
    assert (large["bytes"], large["cid"]) == (len(text), cid)
    assert text.startswith(large["head"])
    assert text.endswith(large["tail"])
    assert part["text"] == text[middle : middle + MOST_READ]
    assert part["next_offset"] == middle + MOST_READ
    shown = [one["content"] for one in bus.requests[2]["messages"] if one["role"] == "tool"]
    assert sum(map(len, shown)) < 2 * 32_768 + 1024, "the model is never given more than it can take"


@pytest.mark.asyncio
@pytest.mark.req("TOOL-52")
async def test_a_home_keeps_results_of_its_running_node(mesh: Mesh) -> None:
    with mesh.published():
        async with HomeResults(mesh.home) as results:
            before = now_ms()
            cid = await results.put(b"0123456789", "somebody")
            assert await results.read(cid, 4, 3) == (b"456", 10)
            assert await results.read(cid, 99, 3) == (b"", 10)
            async with await mesh.store() as store:
                (hold,) = (await store.blobs.entry(cid)).notes.holds
        assert (hold.by, hold.shared) == ("somebody", False)
        assert before + HOLD_MS <= hold.until <= now_ms() + HOLD_MS
    async with HomeResults(mesh.home):
        pass  # nothing was kept, so nothing was connected
