"""16. Streamed arguments assembled wrongly, on what vendors send: recorded and written streams, whole and cut
off, from their bytes through the loop. Truncated JSON never runs, and two calls never merge.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.events import AskClient, Start
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, new_run
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.frames import Done, Frame, ToolCall, to_event
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import ResponseInfo
from tests.agent.bench import LOOK, QUESTION, RUN, Bench
from tests.conformance.exchanges import write
from tests.conformance.providers.recording import Recording, recordings
from tests.conformance.providers.wires import facts
from tests.helpers.leaving import RECORDINGS
from tests.services.llm.asking import events

pytestmark = pytest.mark.req("PAIN-16", "TOOL-4")
WIRES = {"anthropic", "bedrock-anthropic", "bedrock-converse", "gemini", "ollama", "openai"}
Called = list[tuple[str, dict[str, Any]]]


def heard(recording: Recording, data: bytes) -> list[Frame]:
    """The frames of an answer that comes in one piece; those before it broke off."""
    decoder = wire(recording.wire).decoder(ResponseInfo("m", 70))
    found: list[Frame] = []
    try:
        for part in (decoder.feed(data), decoder.finish()):
            found.extend(part)
    except HearthNetError:
        pass
    return found


def called(frames: list[Frame]) -> Called:
    """The complete calls of an answer."""
    return [(frame.name, frame.arguments) for frame in frames if isinstance(frame, ToolCall)]


def ran(frames: list[Frame]) -> Called:
    """What a loop hands out when a model sends this: the client's own tools, which take any arguments."""
    names = sorted({name for name, _ in called(frames)})
    anything = {"type": "object"}
    tools = [msgspec.structs.replace(LOOK, name=name, parameters_schema=anything) for name in names]
    bench, toolbox = Bench(start=False), Toolbox(tools)
    bench.loop = ToolLoop(new_run(RUN, QUESTION, "auto", Limits(max_calls=200, max_equal_calls=200)), toolbox)
    bench.feed(Start(now=bench.now))
    for frame in frames:
        if isinstance(frame, Done):
            continue
        event, data = to_event(frame)
        if event in ("tool_call", "tool_call_delta", "token"):
            bench.heard(event, json.loads(msgspec.json.encode(data)))
    wanted = [action.wanted for action in bench.actions if isinstance(action, AskClient)]
    assert len({one.tool_call_id for one in wanted}) == len(wanted)
    return [(one.name, one.arguments) for one in wanted]


@cache
def calling(folder: Path) -> tuple[tuple[Recording, Called], ...]:
    """The answers in `folder` that call something, and their calls."""
    found = [
        (one, called(heard(one, one.response.data)))
        for one in recordings(folder)
        if isinstance(one, Recording) and one.response.status == 200
    ]
    return tuple(pair for pair in found if pair[1])


def check_meaning(exchanges: Iterable[tuple[Recording, Called]]) -> None:
    """A second reading of the same bytes says what was meant (tests/conformance/providers/wires)."""
    for recording, calls in exchanges:
        frames = heard(recording, recording.response.data)
        meant = [(call.name, call.arguments) for call in facts(recording.wire).expect(recording).calls]
        assert ran(frames) == calls == meant, recording.id


def check_cut_off(exchanges: Iterable[tuple[Recording, Called]], most: int) -> int:
    """Cut each answer off at up to `most` places of its own; the number of cuts."""
    cuts = 0
    for recording, calls in exchanges:
        whole = recording.response.data
        places = random.Random(recording.id).sample(range(1, len(whole)), min(most, len(whole) - 1))
        for place in sorted(places):
            found = called(heard(recording, whole[:place]))
            assert found == calls[: len(found)], f"{recording.id} after {place} bytes"
            cuts += 1
    return cuts


def test_recorded_calls_run_as_meant() -> None:
    check_meaning(calling(RECORDINGS))
    assert len(calling(RECORDINGS)) > 200
    assert sum(len(calls) > 1 for _, calls in calling(RECORDINGS)) > 20


def test_recorded_calls_cut_off_run_as_meant() -> None:
    assert check_cut_off(calling(RECORDINGS), 16) > 3_000


def test_written_calls_of_each_wire_run_as_meant(tmp_path: Path) -> None:
    exchanges = calling(write(tmp_path))
    check_meaning(exchanges)
    assert {one.wire for one, calls in exchanges if len(calls) > 1} == WIRES


def test_written_calls_cut_off_run_as_meant(tmp_path: Path) -> None:
    assert check_cut_off(calling(write(tmp_path)), 200) > 3_000


# --- habits of servers of which no recording is there ---


def _delta(index: int | None, piece: str, call_id: str = "", name: str = "") -> dict[str, Any]:
    function = {"arguments": piece} | ({"name": name} if name else {})
    call: dict[str, Any] = {"function": function} | ({"id": call_id} if call_id else {})
    call |= {} if index is None else {"index": index}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


_END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
_TWO = [("search", {"query": "rain"}), ("post", {"title": "x"})]
ALWAYS_0 = [
    _delta(0, '{"query"', "a", "search"),
    _delta(0, ': "rain"}'),
    _delta(0, '{"title"', "b", "post"),
    _delta(0, ': "x"}'),
    _END,
]
INTERLEAVED = [
    _delta(0, '{"que', "a", "search"),
    _delta(1, '{"ti', "b", "post"),
    _delta(0, 'ry": "rain"}'),
    _delta(1, 'tle": "x"}'),
    _END,
]
NO_INDEX = [
    _delta(None, '{"query": "rain"}', "a", "search"),
    _delta(None, '{"title": "x"}', "b", "post"),
    _END,
]
TRUNCATED = [
    _delta(0, '{"query": "rain"}', "a", "search"),
    _delta(1, '{"title": "x', "b", "post"),
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
]


@pytest.mark.parametrize(
    ("stream", "meant"), [(ALWAYS_0, _TWO), (INTERLEAVED, _TWO), (NO_INDEX, _TWO), (TRUNCATED, _TWO[:1])]
)
def test_written_streams_of_openais_wire(stream: list[dict[str, Any]], meant: Called) -> None:
    decoder = wire("openai").decoder(ResponseInfo("m", 70))
    frames = [*decoder.feed(events(*stream) + b"data: [DONE]\n\n"), *decoder.finish()]
    assert ran(frames) == meant
