"""Calls that a model without tools writes in its text: which are found, and which only show one."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet_llm.text_tools import parser
from hearthnet_llm.text_tools.parser import CLOSE, OPEN, Malformed, Parsed, ParsedCall, Parser, Text

LOOK = ParsedCall("look", {"at": "water"})
BODY = '{"name": "look", "arguments": {"at": "water"}}'
CALL = f"{OPEN}\n{BODY}\n{CLOSE}"


def found(text: str, *, ended: bool = True, cuts: tuple[int, ...] = ()) -> list[Parsed]:
    """What is found in a text that comes in pieces; pieces of text that touch are one."""
    reading = Parser()
    events: list[Parsed] = []
    for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
        events += reading.feed(text[start:end])
    return parser._joined([*events, *reading.finish(ended=ended)])


@pytest.mark.req("LLM-57")
@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("Boil it.", [Text("Boil it.")]),
        (CALL, [LOOK]),
        (f"I look.\n\n{CALL}\n", [Text("I look.\n\n"), LOOK]),
        (f"{CALL}\n{CALL}", [LOOK, LOOK]),
        (f"{CALL} {CALL}", [LOOK, LOOK]),
        (f"   {OPEN} {BODY} {CLOSE}", [LOOK]),
        (f"{OPEN}[{BODY}, {BODY}]{CLOSE}", [LOOK, LOOK]),
        (f"{OPEN}\n```json\n{BODY}\n```\n{CLOSE}", [LOOK]),
        (f"{OPEN}\r\n{BODY}\r\n{CLOSE}\r\n", [LOOK]),
        (f'{OPEN}{{"name": "now"}}{CLOSE}', [ParsedCall("now", {})]),
        (f'{OPEN}{{"name": "now", "parameters": {{"a": 1}}}}{CLOSE}', [ParsedCall("now", {"a": 1})]),
        (f'{OPEN}{{"name": "now", "arguments": "{{\\"a\\": 1}}"}}{CLOSE}', [ParsedCall("now", {"a": 1})]),
        (f'{OPEN}{{"name": "now", "arguments": ""}}{CLOSE}', [ParsedCall("now", {})]),
        (f'{OPEN}{{"id": "call_1", "type": "function", {BODY[1:]}{CLOSE}', [LOOK]),
        (f'{OPEN}{{"name": "say", "arguments": {{"t": "a {CLOSE} \\" b"}}}}{CLOSE}',
         [ParsedCall("say", {"t": f'a {CLOSE} " b'})]),
        (f"{OPEN}\n{BODY}\n{OPEN}\n{BODY}\n{CLOSE}", [LOOK, LOOK]),
        (f"{OPEN}\n{BODY}\n", [LOOK]),
        (f"{CALL}\nThe water is fine.", [LOOK]),
        (f"{CALL}\n```\nx\n", [LOOK]),
    ],
)  # fmt: skip
def test_what_is_a_call(text: str, events: list[Parsed]) -> None:
    assert found(text) == events


@pytest.mark.req("LLM-58")
@pytest.mark.parametrize(
    "text",
    [
        f"```\n{CALL}\n```",
        f"So I call:\n\n```xml\n{CALL}\n```\nShall I?",
        f"~~~\n{CALL}\n~~~~\nThat is all.",
        f"````\n```\n{CALL}\n```\n````",
        f"  ```\n{CALL}\n",
        f"I write {CALL} for that.",
        f"`{CALL}`",
        f"> {OPEN}\n> {BODY}\n> {CLOSE}",
        f"- {OPEN}{BODY}{CLOSE}",
        f"    {OPEN}{BODY}{CLOSE}",
        f"\t{OPEN}{BODY}{CLOSE}",
        f"<think>\n{CALL}\n</think>\nNo need to.",
        f"<think>never ends\n{CALL}",
        f"{OPEN[:-1]}s>{BODY}{CLOSE}",
        f"{CLOSE}\n",
        "<tool_",
        "   ",
        "``",
        "~~~",
        "<thin",
    ],
)
def test_what_only_shows_a_call_is_text(text: str) -> None:
    assert found(text) == [Text(text)]


@pytest.mark.req("LLM-58")
def test_after_what_was_quoted_a_call_is_one_again() -> None:
    quoted = f"```\n{CALL}\n```  \n<think>{OPEN}</think>\n```inline``` is no fence\n"
    assert found(quoted + CALL) == [Text(quoted), LOOK]


@pytest.mark.req("LLM-57")
@pytest.mark.parametrize(
    ("block", "why"),
    [
        ('{"name": "look", "arguments": {"at": "wat\n', "control character"),
        ("look(water)", "Expecting value"),
        ("", "Expecting value"),
        ("[]", "no call in it"),
        ("42", "an object with name and arguments"),
        ('{"arguments": {}}', 'its tool in "name"'),
        ('{"name": " ", "arguments": {}}', 'its tool in "name"'),
        ('{"name": 7, "arguments": {}}', 'its tool in "name"'),
        ('{"name": "a", "arguments": [1]}', "is one object"),
        ('{"name": "a", "arguments": "x"}', "Expecting value"),
        ('{"name": "a", "arguments": {}, "why": "so"}', "nothing else"),
        ('{"name": "a", "name": "b"}', "stands twice"),
        ('{"name": "a", "arguments": {"n": NaN}}', "NaN is no number"),
        ('{"name": "a", "arguments": {"n": 1e999}}', "not JSON compliant"),
        ('{"name": "a", "arguments": {"n": "\\ud800"}}', "surrogates"),
        ('{"name": "a", "arguments": ' + "[" * 100_000, "longer than"),
        ("[" * 60_000, "too deep|recursion"),
        (f"[{BODY}, 3]", "an object with name"),
    ],
)
def test_what_is_no_call_says_why(block: str, why: str) -> None:
    events = found(f"So:\n{OPEN}{block}{CLOSE}\nDone.")
    assert events[0] == Text("So:\n")
    assert len(events) == 2
    assert isinstance(events[1], Malformed)
    assert re.search(why, events[1].reason, re.IGNORECASE)


@pytest.mark.req("LLM-57")
def test_what_was_cut_off_is_no_call_even_if_it_could_be_one() -> None:
    for text in (f"{OPEN}\n{BODY}", f"{OPEN}\n{BODY[:20]}", f"{OPEN}\n{BODY}\n</tool_c", OPEN):
        assert found(text, ended=False) == [Malformed("the text ended before the block did")], text
    assert found(f"{OPEN}{BODY[:20]}") == [Malformed("the text ended before the block did")]
    assert found(CALL + "\nand", ended=False) == [LOOK]


@pytest.mark.req("LLM-57")
def test_what_is_behind_a_block_that_is_too_long_is_dropped() -> None:
    events = found(f"{OPEN}{'x' * (1 << 16)}y{CLOSE}{CALL}")
    assert [type(event) for event in events] == [Malformed]
    reading = Parser()
    assert [type(event) for event in reading.feed(OPEN + "x" * (1 << 17))] == [Malformed]
    assert reading.feed(CLOSE + CALL) == reading.finish(ended=True) == []


PIECES = st.sampled_from(
    [OPEN, CLOSE, BODY, "\n", " ", "   ", "```", "~~~~", "<think>", "</think>", '"', "\\", "<", "<tool", "`",
     "json", "a", "{", "}", "ä", "```json\n", f"\n{CALL}\n", "> ", "\r\n", "\t"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=24).map("".join)


@pytest.mark.req("LLM-57")
@given(TEXTS, st.data(), st.booleans())
@settings(deadline=None)
def test_however_it_is_cut_the_same_is_found(text: str, data: st.DataObject, ended: bool) -> None:
    cuts = tuple(sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8))))
    whole = found(text, ended=ended)
    assert found(text, ended=ended, cuts=cuts) == whole
    assert found(text, ended=ended, cuts=tuple(range(1, len(text)))) == whole


@pytest.mark.req("LLM-57", "LLM-58")
@given(TEXTS)
@settings(deadline=None)
def test_nothing_is_shown_that_was_not_said_nor_twice(text: str) -> None:
    events = found(text)
    shown = "".join(event.text for event in events if isinstance(event, Text))
    assert text.startswith(shown)
    if not any(isinstance(event, ParsedCall | Malformed) for event in events):
        assert shown == text


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)


@pytest.mark.req("LLM-57")
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), VALUES, max_size=4), st.integers(0, 4))
@settings(deadline=None)
def test_any_arguments_come_back_as_they_were_written(arguments: dict[str, Any], indent: int) -> None:
    body = json.dumps(
        {"name": "a", "arguments": arguments}, indent=indent or None, ensure_ascii=indent % 2 == 0
    )
    assert found(f"{OPEN}\n{body}\n{CLOSE}") == [ParsedCall("a", arguments)]


@pytest.mark.req("ATTACK-31")
@pytest.mark.parametrize("filler", [" ", "\t", "\n", "`", "``` ", "\r\n"])
def test_a_block_is_unwrapped_in_time_that_grows_with_its_length(filler: str) -> None:
    """Blanks in a fence took time that grows with their square: 60 s for 64 KiB."""
    block = f"```\n{filler * (60_000 // len(filler))}x"
    began = time.process_time()
    (found,) = parser.calls(block)
    assert isinstance(found, Malformed)
    assert time.process_time() - began < 1
