"""Parser of calls in a model's text, which arrives in pieces; without I/O.

    <tool_call>
    {"name": "search", "arguments": {"query": "water"}}
    </tool_call>

Rules that separate calls from quoted ones:

1. A block begins a line, with at most three spaces before it, or follows another block. Inside a line, behind
   `>` or `-`, or indented as code it is text.
2. In a code fence, and between <think> and </think> at the beginning of a line, it is text.
3. It ends at the first </tool_call> outside a JSON string, or at the beginning of the next block. A JSON
   string has no line breaks, so an unclosed quote affects only its own line.
4. It contains one JSON object `{name, arguments}`, or an array of them, perhaps in a code fence of its own.
   Any other content is broken, and no part of it is a call.
5. A block that is open at the end counts if the model had finished and its JSON is complete.
6. Text behind a block is dropped, because the model cannot know the call's result yet. So is all text behind
   a block that is too long.

The result does not depend on the division of the text into pieces.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import msgspec

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
_THINK: Final = "<think>"
_THOUGHT: Final = "</think>"
_MOST: Final = 1 << 16
_LEAD: Final = re.compile(r" {0,3}")
_FENCE: Final = re.compile(r"(?:(`{3,})[^`\n]*|(~{3,})[^\n]*)(\n|$)")
_WRAPPING: Final = re.compile(r"(```+|~~~+)[a-zA-Z_]*[ \t]*\r?\n")


class Text(msgspec.Struct, frozen=True):
    """The next piece of visible text."""

    text: str


class ParsedCall(msgspec.Struct, frozen=True):
    """A complete call."""

    name: str
    arguments: dict[str, Any]


class Malformed(msgspec.Struct, frozen=True):
    """An invalid block and its fault."""

    reason: str


Parsed = Text | ParsedCall | Malformed


class Parser:
    """The parser; feed it the pieces in order, then call `finish` once."""

    def __init__(self) -> None:
        self._held = ""
        self._fresh = True  # at the beginning of a line
        self._fence = ""
        self._thinking = False
        self._block: _Block | None = None
        self._called = False
        self._over = False

    def feed(self, text: str) -> list[Parsed]:
        """Return the newly decided results."""
        if self._over:
            return []
        self._held += text
        found: list[Parsed] = []
        while self._held and self._step(found, over=False):
            pass
        return _joined(found)

    def finish(self, *, ended: bool) -> list[Parsed]:
        """Return the remaining results; `ended` tells that the model finished by itself."""
        found: list[Parsed] = []
        while self._held and self._step(found, over=True):
            pass
        if self._block is not None:
            found += self._last(ended)
            self._block = None
        return _joined(found)

    def _step(self, found: list[Parsed], *, over: bool) -> bool:
        """Take one step; return False if more text is needed."""
        if self._block is not None:
            return self._in_block(self._block, found)
        if self._thinking:
            return self._in_thought(found, over=over)
        if self._fresh:
            return self._at_line(found, over=over)
        end = self._held.find("\n") + 1
        self._fresh = end > 0
        self._show(end or len(self._held), found)
        return True

    def _at_line(self, found: list[Parsed], *, over: bool) -> bool:
        """Examine the beginning of a line; wait while it may still become significant."""
        lead = _LEAD.match(self._held)
        start = lead.end() if lead else 0
        rest = self._held[start:]
        if rest[:1] in ("`", "~") and len(set(rest[:3])) == 1:
            return self._at_fence(rest, start, found, over=over)
        if not over and (not rest or (not self._fence and _may_become(rest))):
            return False
        if not self._fence and rest.startswith(OPEN):
            self._held = rest[len(OPEN) :]
            self._block = _Block()
        elif not self._fence and rest.startswith(_THINK):
            self._thinking = True
            self._show(start + len(_THINK), found)
        else:
            self._fresh = False
        return True

    def _at_fence(self, rest: str, start: int, found: list[Parsed], *, over: bool) -> bool:
        """Handle a line that may open or close a code fence, once it is complete."""
        size = rest.find("\n") + 1 or len(rest)
        if not over and not rest.endswith("\n", 0, size):
            return False
        line = _FENCE.match(rest)
        marks = (line[1] or line[2]) if line else ""
        if marks and not self._fence:
            self._fence = marks
        elif marks.startswith(self._fence) and rest[:size].strip() == marks:
            self._fence = ""
        self._show(start + size, found)
        return True

    def _in_thought(self, found: list[Parsed], *, over: bool) -> bool:
        end = self._held.find(_THOUGHT)
        if end >= 0:
            self._thinking = False
            self._show(end + len(_THOUGHT), found)
            return True
        kept = 0 if over else len(_THOUGHT) - 1
        sure = max(0, len(self._held) - kept)
        self._show(sure, found)
        return over

    def _in_block(self, block: _Block, found: list[Parsed]) -> bool:
        """Continue a block; return False if it has not ended."""
        end = block.read(self._held)
        if end is None and len(self._held) <= _MOST + len(CLOSE):
            return False
        self._called = True
        if end is None or end.start > _MOST:
            found.append(Malformed(f"it is longer than {_MOST} characters"))
            self._held, self._block, self._over = "", None, True
            return False
        found += calls(self._held[: end.start])
        self._held = self._held[end.stop :]
        self._block = None if end.closed else _Block()
        self._fresh = True
        return True

    def _last(self, ended: bool) -> list[Parsed]:
        """Return the results of a block that is open at the end."""
        text, self._held = self._held, ""
        whole = calls(text) if ended else []
        if whole and not any(isinstance(one, Malformed) for one in whole):
            return whole
        return [Malformed("the text ended before the block did")]

    def _show(self, size: int, found: list[Parsed]) -> None:
        text, self._held = self._held[:size], self._held[size:]
        if text and not self._called:
            found.append(Text(text))


class _End(msgspec.Struct, frozen=True):
    start: int
    stop: int
    closed: bool


class _Block:
    """Incremental search for the end of a block."""

    def __init__(self) -> None:
        self._at = 0
        self._string = False
        self._escaped = False

    def read(self, text: str) -> _End | None:
        """Return the end of the block, or None if it has not arrived."""
        while self._at < len(text):
            character = text[self._at]
            if character == "<" and not self._string:
                rest = text[self._at : self._at + len(CLOSE)]
                for mark in (CLOSE, OPEN):
                    if rest.startswith(mark):
                        return _End(self._at, self._at + len(mark), mark == CLOSE)
                    if mark.startswith(rest):
                        return None
            self._pass(character)
            self._at += 1
        return None

    def _pass(self, character: str) -> None:
        if character == "\n":
            self._string = self._escaped = False
        elif self._escaped:
            self._escaped = False
        elif self._string and character == "\\":
            self._escaped = True
        elif character == '"':
            self._string = not self._string


def calls(block: str) -> list[Parsed]:
    """Return the calls in the text of one block, or its fault."""
    try:
        value = _read(_unwrapped(block))
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # lone surrogates, infinite numbers
        return [_call(one) for one in (value if isinstance(value, list) else [value])] or _nothing()
    except (ValueError, RecursionError) as error:
        return [Malformed(str(error) or "it is nested too deep")]


def _unwrapped(block: str) -> str:
    """Return a block without the Markdown fence around it, in time that grows with its length."""
    text = block.strip()
    fence = _WRAPPING.match(text)
    if fence is None or not text.endswith(fence[1], fence.end()):
        return block
    return text[fence.end() : -len(fence[1])].strip()


def _nothing() -> NoReturn:
    raise ValueError("there is no call in it")


def _call(value: Any) -> Parsed:
    if not isinstance(value, dict):
        raise ValueError("a call is an object with name and arguments")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError('a call names its tool in "name"')
    given = value.get("arguments", value.get("parameters", {}))
    if isinstance(given, str):
        given = _read(given or "{}")
    if not isinstance(given, dict):
        raise ValueError('"arguments" is one object')
    if value.keys() - {"name", "arguments", "parameters", "id", "type"}:
        raise ValueError("a call has name and arguments, and nothing else")
    return ParsedCall(name.strip(), given)


def _read(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return made


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _may_become(rest: str) -> bool:
    """Return whether the beginning of a line may still grow into a mark."""
    return any(mark.startswith(rest) and mark != rest for mark in (OPEN, _THINK, "```", "~~~"))


def _joined(found: list[Parsed]) -> list[Parsed]:
    """Return the results with adjacent pieces of text joined."""
    joined: list[Parsed] = []
    for one in found:
        if isinstance(one, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + one.text)
        else:
            joined.append(one)
    return joined
