"""A recorded answer, whole and in pieces, against a second reading of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import CODES, HearthNetError
from hearthnet.models import error_mapping
from hearthnet_llm.interface.frames import (
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    ServerToolEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    to_event,
)
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import ResponseInfo
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Expected, facts

CUTS = 6
PIECES = 24
SMALL = 6_000
"""Answers of up to this many bytes are also fed byte by byte."""

CONTRACT = contracts().get("llm.chat@2.0")
STATUS_CODES = {
    400: "bad_request", 401: "unauthorized", 403: "unauthorized", 404: "not_found", 408: "timeout",
    413: "bad_request", 422: "bad_request", 429: "rate_limited", 503: "capacity_exceeded", 504: "timeout",
    529: "capacity_exceeded",
}  # fmt: skip


class Parsed(msgspec.Struct, frozen=True):
    """The frames of an answer, and the wire code and message of the error it ended with."""

    frames: list[Frame]
    error: tuple[str, str] | None


def problems(recording: Recording) -> list[str]:
    """What is wrong with how an answer is understood."""
    if recording.response.status != 200:
        return failure_problems(recording)
    whole = parse(recording, [])
    found = content_problems(whole, facts(recording.wire).expect(recording))
    found += [
        f"differs when cut ({how})" for how, cuts in all_cuts(recording) if parse(recording, cuts) != whole
    ]
    return found


def parse(recording: Recording, cuts: list[int]) -> Parsed:
    """The frames of a recorded answer that comes in pieces."""
    data = recording.response.data
    heard = ResponseInfo("vendor", 100)
    decoder = wire(recording.wire).decoder(heard)
    frames: list[Frame] = []
    try:
        for start, end in pairwise([0, *cuts, len(data)]):
            for frame in decoder.feed(data[start:end]):
                frames.append(frame)  # noqa: PERF402 - those before an error count
        for frame in decoder.finish():
            frames.append(frame)  # noqa: PERF402
    except HearthNetError as error:
        return Parsed(frames, (error.code, error.message))
    return Parsed(frames, None)


def all_cuts(recording: Recording) -> Iterator[tuple[str, list[int]]]:
    """Where the bytes are cut: at random, seeded by the recording, and at every byte of a small one."""
    size = len(recording.response.data)
    for seed in range(CUTS):
        chooser = random.Random(f"{recording.provider}/{recording.id}/{seed}")
        yield f"seed {seed}", sorted(chooser.randrange(size + 1) for _ in range(PIECES))
    if size <= SMALL:
        yield "byte by byte", list(range(1, size))


def content_problems(parsed: Parsed, expected: Expected) -> list[str]:
    """Where the frames of a whole answer say something else than the second reading."""
    frames = parsed.frames
    found = [
        *contract_problems(frames),
        *_unequal("text", expected.text, "".join(one.text for one in frames if isinstance(one, TextDelta))),
        *_unequal(
            "thinking",
            expected.thinking,
            "".join(one.text for one in frames if isinstance(one, ReasoningDelta)),
        ),
    ]
    if expected.failed:
        if parsed.error is None or any(isinstance(one, Done) for one in frames):
            found.append("an answer that failed is given as a whole one")
        elif parsed.error[0] not in CODES or " ".join(expected.words.split())[:100] not in parsed.error[1]:
            found.append(f"error {parsed.error}, recorded {expected.words!r}")
        return found
    if parsed.error is not None:
        return [*found, f"refused: {parsed.error[0]}: {parsed.error[1]}"]
    return [*found, *call_problems(frames, expected), *end_problems(frames, expected)]


def contract_problems(frames: list[Frame]) -> list[str]:
    """Frames that the contract does not know."""
    found = []
    for frame in frames:
        event, data = ("done", _ended(frame)) if isinstance(frame, Done) else to_event(frame)
        try:
            CONTRACT.check_frame(event, data)
        except HearthNetError as error:
            found.append(error.message)
    return found


def _ended(done: Done) -> dict[str, Any]:
    """The data of the last frame, as the service sends it."""
    return {
        "ms": 0,
        **{name: value for name, value in msgspec.to_builtins(done).items() if value is not None},
    }


def call_problems(frames: list[Frame], expected: Expected) -> list[str]:
    """Calls, their ids and their pieces; calls that never became whole; opaque proofs."""
    calls = [frame for frame in frames if isinstance(frame, ToolCall)]
    found = _unequal(
        "calls",
        [(call.name, json.dumps(call.arguments)) for call in expected.calls],
        [(call.name, json.dumps(call.arguments)) for call in calls],
    )
    if len({call.id for call in calls}) < len(calls) or not all(call.id for call in calls):
        found.append(f"ids are not unique: {[call.id for call in calls]}")
    for call, told in zip(calls, expected.calls, strict=False):
        if told.id is not None and call.id != told.id:
            found.append(f"call {call.name} has id {call.id!r}, recorded {told.id!r}")
        found += delta_problems(call, frames)
    notices = [one for one in frames if isinstance(one, Notice) and one.code == "tool_call_incomplete"]
    if len(notices) != len(expected.broken):
        found.append(f"{len(expected.broken)} broken calls, {len(notices)} notices of them")
    opaque = [proof for one in frames for proof in _proofs(one)]
    return [*found, *_unequal("signatures", expected.signatures, opaque)]


def delta_problems(call: ToolCall, frames: list[Frame]) -> list[str]:
    """Whether the pieces of a call, if there are any, add up to it and precede it."""
    before = frames[: frames.index(call)]
    pieces = [one for one in frames if isinstance(one, ToolCallDelta) and one.id == call.id]
    if not pieces:
        return []
    text = "".join(piece.arguments_delta for piece in pieces).strip()
    if (json.loads(text or "{}") or {}) != call.arguments:
        return [f"the pieces of {call.id} are {text[:80]}"]
    if any(piece not in before for piece in pieces):
        return [f"a piece of {call.id} comes after it"]
    return []


def end_problems(frames: list[Frame], expected: Expected) -> list[str]:
    """The last frame: there is one, with the right reason and the right counts."""
    ends = [frame for frame in frames if isinstance(frame, Done)]
    if len(ends) != 1 or frames[-1] is not ends[0]:
        return [f"{len(ends)} ends, or not last"]
    done, found = ends[0], []
    if done.stop_reason not in expected.stops:
        found.append(f"stopped for {done.stop_reason}, recorded {' or '.join(expected.stops)}")
    if expected.tokens is not None:
        found += _unequal("tokens", expected.tokens, (done.tokens_in, done.tokens_out))
        found += _unequal("cached tokens", expected.cached or 0, done.tokens_cached or 0)
    return found


def failure_problems(recording: Recording) -> list[str]:
    """An answer that is no success: the wire code of its status, and the vendor's words in one line."""
    answer = recording.response
    error = error_mapping.of_status("vendor", answer.status, {}, answer.data, "KEY")
    found = _unequal("code", STATUS_CODES.get(answer.status, "internal_error"), error.code)
    if "\n" in error.message or len(error.message) > 500:
        found.append(f"not one line: {error.message}")
    words = _vendors_words(answer.data)
    if words[:100] not in error.message:
        found.append(f"{words[:100]!r} is not in {error.message!r}")
    return found


def _vendors_words(data: bytes) -> str:
    """The first text called message, Message, detail or error in a JSON body; "" for another one."""
    try:
        waiting = [json.loads(data)]
    except ValueError:
        return ""
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, list):
            waiting[:0] = value[:1]
        elif isinstance(value, dict):
            inner = [value[key] for key in ("error", "message", "Message", "detail") if value.get(key)]
            waiting[:0] = inner[:1]
        elif isinstance(value, str):
            return " ".join(value.split())
    return ""


def _proofs(frame: Frame) -> list[str]:
    match frame:
        case ReasoningBlock(part):
            return [proof for proof in (part.signature, part.data) if proof]
        case ToolCall():
            return [frame.signature] if frame.signature else []
        case ServerToolEvent(part):
            proof = getattr(part, "signature", None)
            return [proof] if proof else []
        case _:
            return []


def _unequal(what: str, recorded: object, given: object) -> list[str]:
    if recorded == given:
        return []
    return [f"{what}: recorded {str(recorded)[:200]!r}, given {str(given)[:200]!r}"]
