"""Call ids that are missing, equal or too long (pains.md 15)."""

from __future__ import annotations

import pytest

from tests.tools.bench import QUERY, Bench, paired


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
    assert all(0 < len(name) <= 64 for name in used), "the ids are ours, and every vendor takes them"
