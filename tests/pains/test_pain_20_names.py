"""Names differ per vendor (pains.md 20): dotted, long and colliding ones go to the model and come back."""

from __future__ import annotations

import re

import msgspec
import pytest

from hearthnet.tools.events import AskClient, Start
from hearthnet.tools.loop import ToolLoop
from hearthnet.tools.state import Limits, new_run
from hearthnet.tools.toolbox import Toolbox
from tests.tools.bench import LOOK, QUESTION, RUN, Bench, only

NAMES = ["rag.query", "rag_query", "rag query", "x" * 128, "x" * 127 + "y", "näh", "read_result"]


@pytest.mark.req("TOOL-19")
def test_every_name_round_trips_through_the_model() -> None:
    toolbox = Toolbox(msgspec.structs.replace(LOOK, name=name) for name in NAMES)
    shown = [tool["name"] for tool in toolbox.native_definitions]
    assert len(set(shown)) == len(NAMES)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in shown)
    bench = Bench(start=False)
    bench.loop = ToolLoop(new_run(RUN, QUESTION, "auto", Limits()), toolbox)
    bench.feed(Start(now=bench.now))
    for name, safe in zip(NAMES, shown, strict=True):
        wanted = only(AskClient, bench.call(safe, {}, "")).wanted
        assert wanted.name == name
        bench.answered(wanted.tool_call_id, {})
    bench.model_done("tool_calls")
    said = next(message for message in bench.asked_model().messages if "tool_calls" in message)
    assert [call["name"] for call in said["tool_calls"]] == shown, "and back to the model as it knows them"
