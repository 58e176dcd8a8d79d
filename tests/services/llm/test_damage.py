"""Answers that are damaged, on each wire: an error with a wire code, or frames that the contract knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import CODES, HearthNetError
from hearthnet_llm.interface.content_parts import ServerCallPart
from hearthnet_llm.interface.frames import Done, Frame, ServerToolEvent, to_event
from hearthnet_llm.vendors import decoding, wire
from hearthnet_llm.vendors.wire import ResponseInfo
from tests.services.llm import test_anthropic_answer, test_bedrock_answer, test_gemini_answer, test_ollama
from tests.services.llm.asking import events, frame

pytestmark = pytest.mark.req("LLM-35")
CONTRACT = contracts().get("llm.chat@2.0")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abtype"), inner, max_size=2),
    max_leaves=4,
)


def parsed(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream."""
    return [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]


def framed(values: list[dict[str, Any]]) -> bytes:
    """The values as frames, each under the name of its only field."""
    return b"".join(frame(*next(iter(value.items()))) for value in values if len(value) == 1)


ANSWERS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "anthropic": (parsed(test_anthropic_answer.FULL), lambda values: events(*values)),
    "bedrock-converse": (test_bedrock_answer.opened(test_bedrock_answer.FULL), framed),
    "gemini": (test_gemini_answer.STREAM, lambda values: events(*values)),
    "ollama": (test_ollama.SPOKEN, lambda values: test_ollama.lines(*values)),
}


def checked(name: str, data: bytes) -> HearthNetError | None:
    """The error of an answer, or None; whatever it is, its frames are the contract's, and it ends once."""
    decoder = wire(name).decoder(ResponseInfo("m", 7))
    frames: list[Frame] = []
    failed: HearthNetError | None = None
    try:
        for one in (*decoder.feed(data), *decoder.finish()):
            frames.append(one)  # noqa: PERF402 - those before an error count
    except HearthNetError as error:
        failed = error
    if failed is None:
        assert isinstance(frames[-1], Done)
    else:
        assert failed.code in CODES
        assert failed.message.startswith("m: ")
    for one in frames:
        if isinstance(one, Done):
            assert min(one.tokens_in, one.tokens_out) >= 0
        else:
            CONTRACT.check_frame(*to_event(one))
    return failed


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each value inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with another one at a path."""
    if not path:
        return new
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = replaced(value[path[0]], path[1:], new)
    return made


@pytest.mark.parametrize("name", ANSWERS)
@settings(max_examples=150)
@given(st.data())
def test_a_value_of_another_kind_anywhere_is_an_error_or_nothing(name: str, data: st.DataObject) -> None:
    values, written = ANSWERS[name]
    event = data.draw(st.integers(0, len(values) - 1))
    path = data.draw(st.sampled_from([one for one in places(values[event]) if one]))
    changed = replaced(values[event], path, data.draw(JSON))
    checked(name, written([*values[:event], changed, *values[event + 1 :]]))


@pytest.mark.parametrize("name", [*ANSWERS, "bedrock-anthropic"])
@given(
    st.binary(max_size=60)
    | st.text(max_size=40).map(str.encode)
    | JSON.map(lambda one: json.dumps(one).encode())
)
def test_any_bytes_at_all_are_an_error_or_an_answer(name: str, data: bytes) -> None:
    checked(name, data)


@pytest.mark.parametrize("name", ANSWERS)
@settings(max_examples=40)
@given(st.data())
def test_an_answer_that_breaks_off_anywhere_is_an_error(name: str, data: st.DataObject) -> None:
    values, written = ANSWERS[name]
    if name in ("anthropic", "bedrock-converse"):
        values = values[:-1]  # the answer is whole without the last event
    whole = written(values)
    ended = len(whole.rstrip(b"\n"))
    failed = checked(name, whole[: data.draw(st.integers(0, ended - 1))])
    assert failed is not None
    assert failed.code == "internal_error"


def test_a_vendors_own_tool_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="a tool without a name"):
        decoding.checked(ServerToolEvent(ServerCallPart("", "call", {})))
