"""Chat Completions back into frames, without I/O: chunks of a stream, or the one object of a server that
does not stream.

Quirks seen in recorded exchanges, all of them tolerated: calls without an id or an index, an index that
starts at 1, name and id repeated on each delta, arguments as an object, empty arguments, `tool_calls:
null`, usage in a chunk with choices or in `x_groq`, content as a list of parts or an object, the older
`function_call`, `finish_reason: stop` after a call, an error object in the middle of a stream. Calls are
only given when they are complete and their arguments parse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet_llm.frames import Done, Frame, Notice, StopReason, Token, ToolCall, ToolCallDelta

_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "eos": "end",
    "end_turn": "end",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "stop_sequence": "stop_sequence",
    "content_filter": "refusal",
    "refusal": "refusal",
    "guardrail_intervened": "refusal",
}
_NO_ARGUMENTS: Final = ("", "null")


class _Open(msgspec.Struct):
    """A call that is still coming in."""

    id: str
    name: str = ""
    arguments: str = ""


class Incoming:
    """One answer. Feed each chunk in order, then `end`; `prompt_size` estimates tokens where no usage is
    reported.
    """

    def __init__(self, model: str, prompt_size: int) -> None:
        self._model = model
        self._open: dict[int | str, _Open] = {}
        self._latest: int | str = 0
        self._finish: str | None = None
        self._tokens: tuple[int, int] | None = None
        self._prompt_size = prompt_size
        self._text_size = 0

    @property
    def finished(self) -> bool:
        """Whether the server has said why it ended."""
        return self._finish is not None

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[Frame]:
        """The frames of one chunk; raises what `failure` makes of an error inside the stream."""
        if chunk.get("error"):
            raise failure_in_stream(self._model, chunk["error"])
        self._count(chunk)
        for choice in (chunk.get("choices") or [])[:1]:
            delta = choice.get("delta") or choice.get("message") or {}
            yield from self._text(delta.get("content") or choice.get("text"))
            legacy = delta.get("function_call") or {}
            calls = delta.get("tool_calls") or ([{"function": legacy}] if any(legacy.values()) else [])
            for position, call in enumerate(calls):
                yield from self._call(call, position, whole="message" in choice)
            finish = choice.get("finish_reason")
            self._finish = str(finish) if finish is not None else self._finish

    def end(self) -> Iterator[Frame]:
        """The complete calls, a notice for each that never became complete, and `Done`."""
        given = 0
        for call in self._open.values():
            arguments = _arguments(call.arguments)
            if arguments is None or not call.name:
                yield Notice(
                    "tool_call_incomplete",
                    f"{self._model} sent a call of {call.name or 'a tool'} "
                    "whose arguments are no complete JSON object; it was left out",
                )
                continue
            given += 1
            yield ToolCall(call.id, call.name, arguments)
        yield self._done(given)

    def _done(self, calls: int) -> Done:
        reason = _STOPS.get(str(self._finish), "end")
        if calls and reason in ("end", "tool_calls"):
            reason = "tool_calls"
        elif reason == "tool_calls":
            reason = "end"
        tokens_in, tokens_out = self._tokens or (_estimate(self._prompt_size), _estimate(self._text_size))
        return Done(reason, tokens_in, tokens_out, "native")

    def _text(self, content: Any) -> Iterator[Frame]:
        parts = [content] if isinstance(content, str) else _part_texts(content)
        for text in parts:
            self._text_size += len(text)
            if text:
                yield Token(text)

    def _call(self, delta: Mapping[str, Any], position: int, whole: bool) -> Iterator[Frame]:
        function = delta.get("function") or {}
        call, fresh = self._find(delta, position, bool(function.get("name")), whole)
        call.name = call.name or str(function.get("name") or "")
        given = function.get("arguments")
        piece = given if isinstance(given, str) else "" if given is None else json.dumps(given)
        call.arguments += piece
        self._text_size += len(piece)
        if not whole and (piece or fresh):
            yield ToolCallDelta(call.id, piece, call.name if fresh and call.name else None)

    def _find(self, delta: Mapping[str, Any], position: int, named: bool, whole: bool) -> tuple[_Open, bool]:
        """The call that a delta belongs to, and whether it is a new one."""
        given = str(delta.get("id") or "")
        key = self._key(delta.get("index"), given, position, named, whole)
        known = self._open.get(key)
        if known is not None and named and given not in ("", known.id) and _arguments(known.arguments):
            key, known = f"{key} {given}", None  # another call under the index of one that is complete
        self._latest = key
        if known is not None:
            return known, False
        taken = {call.id for call in self._open.values()}
        call = _Open(given if given and given not in taken else f"call_{len(self._open) + 1}")
        self._open[key] = call
        return call, True

    def _key(self, index: Any, given: str, position: int, named: bool, whole: bool) -> int | str:
        """By position in a whole message, else by index, else by id; else a name starts a call."""
        if whole:
            return position
        if isinstance(index, int):
            return index
        if given:
            return given
        return f"#{len(self._open)}" if named or not self._open else self._latest

    def _count(self, chunk: Mapping[str, Any]) -> None:
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage")
        if isinstance(usage, Mapping):
            self._tokens = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)


def failure_in_stream(model: str, error: Any) -> HearthNetError:
    """`internal_error` for an error object where a chunk should be."""
    said = error.get("message") if isinstance(error, Mapping) else error
    return HearthNetError("internal_error", f"{model}: the server reported in mid-stream: {str(said)[:300]}")


def _part_texts(content: Any) -> Sequence[str]:
    """The texts in content that is a list of parts; thinking and images are none. An object is its JSON."""
    if isinstance(content, Mapping):
        return [json.dumps(content, ensure_ascii=False)]
    parts = content if isinstance(content, list) else []
    return [
        str(part.get("text", ""))
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "text"
    ]


def _arguments(text: str) -> dict[str, Any] | None:
    if text.strip() in _NO_ARGUMENTS:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _estimate(characters: int) -> int:
    """Tokens of a text whose backend does not count (capabilities.md, llm.chat: characters / 3.5)."""
    return math.ceil(characters / 3.5)
