"""Call ids that are missing, equal or too long.

See: docs/protocol/failures.md#bad-call-ids.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import wire
from tests.agent.bench import QUERY, Bench, paired
from tests.pains.strict import TARGETS


@pytest.mark.req("TOOL-12")
def test_absent_repeated_and_94_character_ids_work_over_several_turns() -> None:
    bench = Bench()
    for turn in range(3):
        for number, given in enumerate(["", "", "same", "same", "x" * 94, "call_1"]):
            bench.call("search_corpus", {**QUERY, "k": 1 + number + 6 * turn}, given)
        for call in list(bench.loop.state.calls):
            bench.returned(call.id, {"turn": turn})
        bench.model_done("tool_calls")
    messages = bench.asked_model().messages
    paired(messages)
    used = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len(set(used)) == len(used) == 18
    assert all(0 < len(name) <= 40 for name in used), "the ids are ours, and every vendor takes them"


@pytest.mark.req("PAIN-15", "LLM-25")
@pytest.mark.parametrize("vendor", ["anthropic", "bedrock-anthropic", "bedrock-converse"])
def test_another_vendors_ids_are_made_to_fit_after_a_change_of_the_vendor(vendor: str) -> None:
    """Letters, digits, `_` and `-`, 64 at most, and two that differ stay two."""
    given = ["toolu_01AbC", "functions.search:0", "functions_search_0", "ö", "x" * 94, "x" * 95]
    called = [{"id": one, "name": "search", "arguments": {}} for one in given]
    results = [{"role": "tool", "tool_call_id": one, "content": "found"} for one in given]
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": called}, *results]
    request = msgspec.convert({"messages": messages, "tools": [{"name": "search"}]}, ChatRequest)
    _, asked, answered = wire(vendor).encode(request, TARGETS[vendor]).body["messages"]
    ids = [[_id(block) for block in turn["content"]] for turn in (asked, answered)]
    assert ids[0] == ids[1]
    assert ids[0][0] == given[0]
    assert len(set(ids[0])) == len(given)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in ids[0])


def _id(block: dict[str, Any]) -> str:
    held = next((block[name] for name in ("toolUse", "toolResult") if name in block), block)
    return str(next(held[name] for name in ("id", "tool_use_id", "toolUseId") if name in held))
