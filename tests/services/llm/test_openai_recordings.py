"""Recorded exchanges of many vendors, whole and cut anywhere: text intact, calls complete, ids unique, a
reason.
"""

from __future__ import annotations

import json
import random
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hearthnet.errors import CODES, HearthNetError
from hearthnet_llm.frames import Done, Frame, Notice, Token, ToolCall, ToolCallDelta
from hearthnet_llm.openai_compatible.incoming import Incoming
from hearthnet_llm.vendors import failures
from hearthnet_llm.vendors.sse import EventLines
from tests.helpers.leaving import leave_out

FOLDER = Path(__file__).parents[3].parent / "shared" / "data" / "providers"
CUTS = 5


@cache
def recordings() -> list[dict[str, Any]]:
    """All recordings of this wire format."""
    files = sorted(FOLDER.glob("openai*/*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def payload(recorded: dict[str, Any]) -> bytes:
    """The body as it came over the wire."""
    response = recorded["response"]
    body = response.get("wire") or response["body"]
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def parse(recorded: dict[str, Any], seed: int | None) -> list[Frame]:
    """The frames of a recorded answer; with a seed, of the same bytes in random pieces."""
    data = payload(recorded)
    edges = [0, len(data)]
    if seed is not None:
        chooser = random.Random(f"{recorded['id']}{seed}")
        edges[1:1] = sorted(chooser.randrange(len(data) + 1) for _ in range(20))
    incoming = Incoming("m", 10)
    frames: list[Frame] = []
    if not data.lstrip().startswith((b"data", b":", b"event", b"id")):
        frames += incoming.feed(json.loads(data))
        return [*frames, *incoming.end()]
    lines = EventLines()
    events: list[str] = []
    for start, end in pairwise(edges):
        events += lines.feed(data[start:end])
    for event in (*events, *lines.end()):
        if event.strip() not in ("", "[DONE]"):
            frames += incoming.feed(json.loads(event))
    return [*frames, *incoming.end()]


def told(recorded: dict[str, Any]) -> str:
    """The text of the answer, read off the recording by other means than the parser's."""
    data = payload(recorded).decode()
    lines = [line[5:].strip() for line in data.replace("\r", "\n").split("\n") if line.startswith("data:")]
    chunks = (
        [json.loads(line) for line in lines if line not in ("", "[DONE]")] if lines else [json.loads(data)]
    )
    texts: list[str] = []
    for chunk in chunks:
        for choice in (chunk.get("choices") or [])[:1]:
            content = (choice.get("delta") or choice.get("message") or {}).get("content")
            if isinstance(content, list):
                content = "".join(part["text"] for part in content if part["type"] == "text")
            texts.append(json.dumps(content) if isinstance(content, dict) else content or "")
    return "".join(texts)


def succeeded() -> list[dict[str, Any]]:
    """The recordings of answers, the recorded failures apart."""
    return [one for one in recordings() if one["response"]["status"] == 200]


@pytest.fixture(autouse=True)
def _there() -> None:
    if not recordings():
        leave_out("the recorded exchanges are not beside this checkout")


@pytest.mark.req("LLM-10")
def test_recorded_answers_are_understood() -> None:
    wrong: list[str] = []
    for recorded in succeeded():
        try:
            whole = parse(recorded, None)
        except HearthNetError as error:
            if "error" not in recorded["features"]:
                wrong.append(f"{recorded['id']}: {error}")
            continue
        wrong += [f"{recorded['id']}: {problem}" for problem in problems(recorded, whole)]
        if any(parse(recorded, seed) != whole for seed in range(CUTS)):
            wrong.append(f"{recorded['id']}: differs when cut")
    assert not wrong, "\n".join(wrong)
    assert len(succeeded()) > 400


def problems(recorded: dict[str, Any], frames: list[Frame]) -> list[str]:
    """What is wrong with the frames of a recorded answer."""
    found: list[str] = []
    calls = [frame for frame in frames if isinstance(frame, ToolCall)]
    if "".join(frame.text for frame in frames if isinstance(frame, Token)) != told(recorded):
        found.append("text differs")
    if len({call.id for call in calls}) < len(calls) or any(not call.id for call in calls):
        found.append("ids")
    broken = "args_invalid_json" in recorded["features"]
    if bool(calls) != ("tool_calls" in recorded["features"]) and not broken:
        found.append(f"{len(calls)} calls")
    if broken != any(isinstance(frame, Notice) for frame in frames):
        found.append("a broken call is not said, or one that is not broken")
    if [type(frame) for frame in frames].count(Done) != 1 or not isinstance(frames[-1], Done):
        found.append("no single end")
    for call in calls:
        pieces = [
            one.arguments_delta for one in frames if isinstance(one, ToolCallDelta) and one.id == call.id
        ]
        if pieces and (json.loads("".join(pieces).strip() or "{}") or {}) != call.arguments:
            found.append("deltas differ from the call")
    return found


@pytest.mark.req("LLM-11")
def test_recorded_failures_have_a_code() -> None:
    for recorded in recordings():
        status = recorded["response"]["status"]
        if status != 200:
            failed = failures.of_status("m", status, {}, payload(recorded), "KEY")
            assert failed.code in CODES
            assert "\n" not in failed.message
            assert len(failed.message) < 500
