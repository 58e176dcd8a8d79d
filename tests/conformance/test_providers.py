"""Recorded exchanges of many vendors pass, and the check that says so is worth something."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet_llm.interface.frames import Done, Frame, ReasoningDelta, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import openai
from hearthnet_llm.vendors.decoding import Decoder
from hearthnet_llm.vendors.wire import HttpRequest, ResponseInfo, Target
from tests.conformance.exchanges import write
from tests.conformance.providers.__main__ import Totals, main, run
from tests.conformance.providers.compare import differences
from tests.conformance.providers.differences import MOST, Differ, allowed
from tests.conformance.providers.recording import Recording, recordings
from tests.conformance.providers.wires import facts
from tests.helpers.leaving import RECORDINGS

ROOT = Path(__file__).parents[2]
REFUSED = {"gemini": 1, "openai-compatible_llamacpp": 1}
"""Recorded requests that are none, which the vendor refused as well."""
WIRES = ("anthropic", "bedrock-anthropic", "bedrock-converse", "gemini", "ollama", "openai")


def of_folder(folder: Path) -> Totals:
    """The totals of the exchanges in `folder`, all of which must pass."""
    said: list[str] = []
    totals = run(folder, said.append)
    failed = [line for line in said if ": request refused: " not in line]
    assert not failed, "\n".join(failed)
    assert all(counts["passed"] == counts["cases"] for counts in totals.values())
    return totals


@pytest.mark.req("LLM-20", "LLM-10")
def test_every_recorded_exchange_passes() -> None:
    totals = of_folder(RECORDINGS)
    assert sum(counts["cases"] for counts in totals.values()) > 700
    refused = {vendor: counts["requests_refused"] for vendor, counts in totals.items()}
    assert {vendor: count for vendor, count in refused.items() if count} == REFUSED


@pytest.mark.req("LLM-20", "LLM-10")
def test_every_written_exchange_of_each_wire_passes(tmp_path: Path) -> None:
    totals = of_folder(write(tmp_path))
    assert totals.keys() >= set(WIRES) | {"azure"}
    assert all(totals[wire]["cases"] >= 5 for wire in WIRES)
    assert all(counts["requests_ok"] == counts["cases"] for counts in totals.values())


ANSWER = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}]},
    {"choices": [{"index": 0, "delta": {"content": "Ja, "}}]},
    {"choices": [{"index": 0, "delta": {"content": "so \u2028🙂"}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"at": '}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '"é"}'}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 1, "id": "b", "function": {"name": "see", "arguments": "{}"}}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}},
]  # fmt: skip
SCHEMA = {"type": "object", "properties": {"at": {"type": "string", "default": None}}}
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}],
    "tool_choice": "auto",
    "temperature": 0,
    "max_tokens": None,
    "stream": True,
    "stream_options": {"include_usage": True},
}  # fmt: skip


def exchange(**changes: Any) -> dict[str, Any]:
    """One recording, as a file holds it."""
    body = (
        "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in ANSWER) + "data: [DONE]\n\n"
    )
    made = {
        "id": "one", "provider": "openai-compatible:mine", "stream": True, "features": ["tools"],
        "request": {"method": "POST", "path": "/v1/chat/completions", "json": ASKED},
        "response": {"status": 200, "content_type": "text/event-stream", "framing": "wire", "body": body},
        "source": {"kind": "fixture"},
    }  # fmt: skip
    return {**made, **changes}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One exchange, in a folder of its own."""
    place = tmp_path / "openai-compatible_mine"
    place.mkdir()
    (place / "one.json").write_text(json.dumps(exchange()))
    return tmp_path


def said_of(folder: Path) -> list[str]:
    """What the check says of a folder."""
    said: list[str] = []
    totals = run(folder, said.append)
    assert all(counts["passed"] == counts["cases"] for counts in totals.values()) == (not said)
    return said


@pytest.mark.req("LLM-24")
def test_an_exchange_that_is_understood_passes(folder: Path) -> None:
    assert said_of(folder) == []
    [recording] = recordings(folder)
    assert isinstance(recording, Recording)
    assert (recording.provider, recording.vendor, recording.wire) == (
        "openai-compatible_mine",
        "mine",
        "openai",
    )


Change = Callable[[list[Frame]], list[Frame]]


def swapped(frames: list[Frame]) -> list[Frame]:
    """The calls in another order."""
    calls = [frame for frame in frames if isinstance(frame, ToolCall)]
    return [*(f for f in frames if not isinstance(f, ToolCall | Done)), *reversed(calls), frames[-1]]


def replaced(kind: type[Frame], **fields: Any) -> Change:
    """One field of each frame of a kind is another."""
    return lambda frames: [
        msgspec.structs.replace(frame, **fields) if isinstance(frame, kind) else frame for frame in frames
    ]


def without(kind: type[Frame]) -> Change:
    """No frames of a kind."""
    return lambda frames: [frame for frame in frames if not isinstance(frame, kind)]


WRONG_ANSWERS: dict[str, tuple[Change, str]] = {
    "text changes": (replaced(TextDelta, text="Ja"), "text: recorded"),
    "thinking is lost": (without(ReasoningDelta), "thinking: recorded"),
    "calls change places": (swapped, "calls: recorded"),
    "calls are lost": (without(ToolCall), "calls: recorded"),
    "arguments change": (replaced(ToolCall, arguments={}), "calls: recorded"),
    "ids are the same": (replaced(ToolCall, id="a"), "ids are not unique"),
    "ids are none of the vendor's": (replaced(ToolCall, id="z"), "call look has id 'z', recorded 'a'"),
    "a name is none of the contract's": (replaced(ToolCall, name="a.b"), "/name"),
    "usage changes": (replaced(Done, tokens_in=8), "tokens: recorded"),
    "the reason changes": (replaced(Done, stop_reason="end"), "stopped for end, recorded tool_calls"),
    "it ends twice": (lambda frames: [*frames, frames[-1]], "2 ends, or not last"),
    "it never ends": (without(Done), "0 ends, or not last"),
    "the end comes early": (lambda frames: [frames[-1], *frames[:-1]], "1 ends, or not last"),
}  # fmt: skip


class Changed:
    """A decoder that gives all its frames at the end, changed."""

    def __init__(self, decoder: Decoder, change: Change) -> None:
        self._decoder, self._change = decoder, change
        self._frames: list[Frame] = []

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Takes a piece."""
        self._frames += self._decoder.feed(data)
        yield from ()

    def finish(self) -> Iterator[Frame]:
        """Gives the changed frames."""
        yield from self._change([*self._frames, *self._decoder.finish()])


@pytest.mark.req("LLM-24")
@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_a_wrong_answer_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    change, reason = WRONG_ANSWERS[name]
    right = openai.decoder
    monkeypatch.setattr(openai, "decoder", lambda heard: Changed(right(heard), change))
    assert any(f"response: {reason}" in line or reason in line for line in said_of(folder)), said_of(folder)


@pytest.mark.req("LLM-24")
def test_a_decoder_that_cares_where_bytes_are_cut_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = openai.decoder

    class Careless(Changed):
        def feed(self, data: bytes) -> Iterator[Frame]:
            yield from self._decoder.feed(data.decode("utf-8", "replace").encode())

    monkeypatch.setattr(openai, "decoder", lambda heard: Careless(right(heard), lambda frames: frames))
    assert any("differs when cut" in line for line in said_of(folder))


def smuggling(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """Reads a request and puts the native one into its target."""
    request, target = openai.read(native, vendor)
    spelling = {**target.spelling, "all": json.dumps(native.body)}
    return request, msgspec.structs.replace(target, spelling=spelling, api_version=json.dumps(native.body))


def losing(path: str) -> Callable[[ChatRequest, Target], HttpRequest]:
    """Builds a request and takes one field out of it."""

    def encode(request: ChatRequest, target: Target) -> HttpRequest:
        made = openai.encode(request, target)
        place: Any = made.body
        *parents, last = path.split(".")
        for step in parents:
            place = place[int(step) if step.isdigit() else step]
        del place[last]
        return made

    return encode


FIELDS = (
    "temperature", "stream", "stream_options.include_usage", "tool_choice", "tools.0.type", "messages.0.role",
    "tools.0.function.description", "tools.0.function.parameters.properties.at.default",
    "messages.1.tool_calls.0.id", "messages.2.tool_call_id", "messages.1.content",
)  # fmt: skip


@dataclasses.dataclass
class Broken:
    """The wire with something wrong in it."""

    read: Callable[[HttpRequest, str], tuple[ChatRequest, Target]] = openai.read
    encode: Callable[[ChatRequest, Target], HttpRequest] = openai.encode
    decoder: Callable[[ResponseInfo], Decoder] = openai.decoder
    SPELLINGS: Any = dataclasses.field(default_factory=lambda: openai.SPELLINGS)


@pytest.mark.req("LLM-24")
@pytest.mark.parametrize("path", FIELDS)
def test_a_field_that_is_lost_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    broken = Broken(encode=losing(path))
    monkeypatch.setattr("tests.conformance.providers.requests.wire", lambda name: broken)
    [line] = said_of(folder)
    assert "request failed" in line
    assert "recorded" in line


@pytest.mark.req("LLM-24")
def test_what_is_carried_along_unseen_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Broken(read=smuggling)
    monkeypatch.setattr("tests.conformance.providers.requests.wire", lambda name: broken)
    said = said_of(folder)
    assert any("spelling all=" in line and "is not declared" in line for line in said)
    assert any("the target's api_version holds" in line for line in said)


@pytest.mark.req("LLM-24")
def test_a_field_that_the_contract_does_not_know_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = msgspec.to_builtins
    monkeypatch.setattr(
        "tests.conformance.providers.requests.msgspec.to_builtins",
        lambda value, **more: (
            {**real(value, **more), "native": 1} if isinstance(value, ChatRequest) else real(value)
        ),
    )
    assert any("not in the contract: /input" in line for line in said_of(folder))


@pytest.mark.req("LLM-24")
@pytest.mark.parametrize(
    ("recorded", "rebuilt", "equal"),
    [
        ({"a": None}, {}, True), ({"a": 1}, {"a": 1.0}, True), ({"a": 1}, {"a": True}, False),
        ({"a": ""}, {}, False), ({"a": []}, {}, False), ({"a": {}}, {}, False), ({}, {"a": 1}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False), ({"a": [1]}, {"a": [1, None]}, False),
        ({"t": '{"a": 1}'}, {"t": '{"a":1}'}, True), ({"t": ""}, {"t": "{}"}, True),
        ({"t": '{"a": 1}'}, {"t": '{"a":2}'}, False), ({"b": '{"a": 1}'}, {"b": '{"a":1}'}, False),
        ({"schema": {"default": None}}, {"schema": {}}, False),
        ({"schema": {"a": {"default": None}}}, {"schema": {"a": {"default": None}}}, True),
        ({"x": [{"input": {"a": None}}]}, {"x": [{"input": {}}]}, False),
    ],
)  # fmt: skip
def test_what_counts_as_equal(recorded: Any, rebuilt: Any, equal: bool) -> None:
    assert (not list(differences(recorded, rebuilt, ("t",)))) == equal


@pytest.mark.req("LLM-24")
def test_the_lists_of_what_may_differ_are_short_and_say_why() -> None:
    for wire in WIRES:
        table = facts(wire).DIFFER
        for vendor in table:
            for one in allowed(table, vendor):
                assert len(one.why) > 15, one
    with pytest.raises(ValueError, match="at most 10"):
        allowed({"": tuple(Differ(f"f{number}", "Because it is so.") for number in range(MOST + 1))}, "x")
    inside = (
        "messages",
        "tools[0].name",
        "tool_choice.name",
        "contents",
        "system",
        "extra.tools",
        "x.tool_choice",
    )
    for path in inside:
        with pytest.raises(ValueError, match="may not differ"):
            allowed({"x": (Differ(path, "Because it is so."),)}, "x")


@pytest.mark.req("LLM-24")
@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, 0),
        ({"request": None}, 0),
        ({"request": {"method": "POST", "path": "/v1/chat/completions", "json": {**ASKED, "odd": 1}}}, 1),
        ({"request": {"method": "POST", "path": "/v1/chat/completions", "json": {"messages": 5}}}, 1),
        ({"response": {"status": 429, "body": '{"error": {"message": "slow\\ndown"}}'}}, 0),
        ({"response": {"status": 200, "body": "<html>"}}, 0),
        ({"response": {"status": 200, "body": "upstream connect error"}}, 1),
        ({"response": None}, 1),
    ],
)
def test_the_command_ends_with_the_totals(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], outcome: int
) -> None:
    file = folder / "openai-compatible_mine" / "one.json"
    file.write_text(json.dumps(exchange(**changes)))
    assert main([str(folder)]) == outcome
    *lines, last = capsys.readouterr().out.splitlines()
    totals = json.loads(last)
    assert bool(lines) == bool(outcome)
    assert totals["openai-compatible_mine"]["cases"] == 1
    assert totals["openai-compatible_mine"]["passed"] == 1 - outcome


@pytest.mark.req("LLM-24")
@pytest.mark.parametrize("data", [b"hello", b"\xff\xfe", b"[]", b"", b'{"id": 1'])
def test_a_file_that_is_no_recording_fails_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    (folder / "openai-compatible_mine" / "two.json").write_bytes(data)
    assert main([str(folder)]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("openai-compatible_mine/two: no recording: ")
    counts = json.loads(last)["openai-compatible_mine"]
    assert (counts["cases"], counts["passed"]) == (2, 1)


@pytest.mark.req("LLM-24")
def test_nothing_to_check_is_no_success_and_says_what_was_expected(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    file = folder / "openai-compatible_mine" / "one.json"
    for place, code, said in (
        (tmp_path / "empty", 1, "one folder per provider"),
        (file.parent, 1, "one folder per provider"),
        (tmp_path / "nowhere", 2, "no such folder"),
        (file, 2, "not a folder"),
    ):
        assert main([str(place)]) == code
        heard = capsys.readouterr()
        assert said in heard.err
        assert heard.out == ("{}\n" if code == 1 else "")
    assert main([]) == 2
    capsys.readouterr()
    command = [sys.executable, "-m", "tests.conformance.providers", str(folder)]
    assert subprocess.run(command, capture_output=True, cwd=ROOT, timeout=60, check=False).returncode == 0
