"""Chat Completions back into frames, without I/O: chunks of a stream, or the one object of a server that
does not stream.

Which it is, the first byte says: servers answer a request for a stream with one object, and with HTML.
Tolerated besides: usage in a chunk with choices, in one without, in several or in `x_groq`; content as a list
of parts or an object; the older `function_call`; `finish_reason: stop` after a call, "" or none before
`[DONE]`; a delta beside the message so far; further choices, which are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.frames import Done, Frame, StopReason, Token, ToolCall
from hearthnet_llm.vendors import failures
from hearthnet_llm.vendors.estimate import tokens
from hearthnet_llm.vendors.openai.calls import Calls
from hearthnet_llm.vendors.openai.thoughts import Thoughts
from hearthnet_llm.vendors.sse import EventLines
from hearthnet_llm.vendors.wire import Heard

_DONE: Final = "[DONE]"
_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "eos": "end",
    "end_turn": "end",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "stop_sequence": "stop_sequence",
    "content_filter": "refusal",
    "sensitive": "refusal",
    "refusal": "refusal",
    "guardrail_intervened": "refusal",
}
_FAILED: Final = {"error": 500, "network_error": 502, "insufficient_system_resource": 503}
"""Reasons to stop that are failures, by the status that means the same."""


class Answer:
    """The decoder of one answer (`vendors.wire.Decoder`)."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._content = _Content(heard)
        self._head = b""
        self._events: EventLines | None = None
        self._whole: bytearray | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """As `Decoder.feed`."""
        if self._events is None and self._whole is None:
            self._head += data
            start = self._head.lstrip(b"\xef\xbb\xbf \t\r\n")
            if not start:
                return
            data, self._head = self._head, b""
            if start[:1] in b"{[<":
                self._whole = bytearray()
            else:
                self._events = EventLines()
        if self._whole is not None:
            self._whole += data
        elif self._events is not None:
            yield from self._chunks(self._events.feed(data))

    def finish(self) -> Iterator[Frame]:
        """As `Decoder.finish`."""
        if self._events is not None:
            yield from self._chunks(self._events.end())
        else:
            text = bytes(self._whole or b"").decode("utf-8-sig", "replace")
            for chunk in self._objects(text):
                yield from self._content.feed(chunk)
        if self._events is not None and not self._content.begun:
            raise failures.no_answer(self._heard.name, "")
        yield from self._content.finish()

    def _chunks(self, events: Iterator[str]) -> Iterator[Frame]:
        for event in events:
            text = event.strip()
            if text == _DONE:
                self._content.complete = True
            elif text:
                for chunk in self._objects(text):
                    yield from self._content.feed(chunk)

    def _objects(self, text: str) -> list[dict[str, Any]]:
        value = _parse(text)
        if isinstance(value, dict):
            return [value]
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            return value
        raise failures.no_answer(self._heard.name, text)


class _Content:
    """What the objects of one answer add up to."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._calls = Calls(heard.name)
        self._thoughts = Thoughts()
        self._choice: Any = None
        self._finish: str | None = None
        self._usage: Mapping[str, Any] | None = None
        self._text_size = 0
        self._refused = False
        self.begun = False
        """Whether anything of this wire has come."""
        self.complete = False
        """Whether the server has said that this is all."""

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[Frame]:
        """The frames of one chunk; raises what `failures` makes of an error inside the answer."""
        self.begun = True
        if chunk.get("error") or chunk.get("object") == "error":
            raise failures.inside(self._heard.name, chunk.get("error") or chunk)
        self._count(chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage"))
        for choice in chunk.get("choices") or ():
            if self._choice is None:
                self._choice = (choice.get("index"),)
            if self._choice == (choice.get("index"),):
                self._count(choice.get("usage"))
                yield from self._one(choice)

    def finish(self) -> Iterator[Frame]:
        """Thoughts, complete calls, a notice for each that never became complete, and `Done`."""
        if self._finish is None and not self.complete:
            raise failures.broken(self._heard.name)
        yield from self._thoughts.finish()
        called = False
        for frame in self._calls.finish():
            called = called or isinstance(frame, ToolCall)
            yield frame
        yield self._done(called)

    def _one(self, choice: Mapping[str, Any]) -> Iterator[Frame]:
        if choice.get("error"):
            raise failures.inside(self._heard.name, choice["error"])
        delta = choice.get("delta")
        whole = delta is None
        said = (choice.get("message") if whole else delta) or {}
        yield from self._thoughts.feed(said)
        yield from self._text(said.get("content") or (choice.get("text") if whole else None))
        if said.get("refusal"):
            self._refused = True
            yield from self._text(said["refusal"])
        for position, call in enumerate(said.get("tool_calls") or _old_call(said)):
            if isinstance(call, Mapping):
                yield from self._calls.feed(call, position, whole)
        self._ended(choice.get("finish_reason"))

    def _ended(self, reason: Any) -> None:
        if reason is None:
            return
        self._finish = str(reason)
        if self._finish in _FAILED:
            raise failures.of_error(self._heard.name, _FAILED[self._finish], f"it stopped for {self._finish}")

    def _count(self, usage: Any) -> None:
        """Keeps the latest count; some servers send one that counts nothing."""
        if isinstance(usage, Mapping) and usage.get("prompt_tokens") is not None:
            self._usage = usage

    def _text(self, content: Any) -> Iterator[Frame]:
        if isinstance(content, str):
            if content:
                self._text_size += len(content)
                yield Token(content)
        elif isinstance(content, Mapping):
            yield from self._text(json.dumps(content, ensure_ascii=False))
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, Mapping):
                    yield from self._part(part)

    def _part(self, part: Mapping[str, Any]) -> Iterator[Frame]:
        if part.get("type") == "text":
            yield from self._text(part.get("text"))
        elif part.get("type") in ("thinking", "reasoning"):
            yield from self._thoughts.part(part)

    def _done(self, called: bool) -> Done:
        reason = _STOPS.get(self._finish or "", "end")
        if self._refused and reason == "end":
            reason = "refusal"
        elif called and reason in ("end", "tool_calls"):
            reason = "tool_calls"
        elif reason == "tool_calls":
            reason = "end"
        usage = self._usage
        if usage is None:
            size = self._text_size + self._thoughts.size + self._calls.size
            return Done(reason, tokens(self._heard.prompt_size), tokens(size), "native")
        return Done(
            reason,
            _count(usage, "prompt_tokens") or 0,
            _count(usage, "completion_tokens") or 0,
            "native",
            _count(usage, "prompt_tokens_details", "cached_tokens"),
            _count(usage, "completion_tokens_details", "reasoning_tokens"),
        )


def _old_call(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The one call of the older form; some servers send it empty beside the newer one."""
    call = said.get("function_call") or {}
    return [{"index": 0, "function": call}] if any(call.values()) else []


def _count(usage: Mapping[str, Any], *path: str) -> int | None:
    value: Any = usage
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return int(value) if isinstance(value, int | float) else None


def _parse(text: str) -> Any:
    """The value of a JSON text, or None; strictly at first, which is fast, then as servers write it."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    try:
        return json.loads(text)
    except ValueError:
        return None
