"""Decoding of Chat Completions to frames, without I/O.

The input is chunks of a stream, or the one object of a server that does not stream. A spoken answer is
represented by its transcript. Other content than text is left out, with a notice.

Tolerated: usage in a chunk with choices, in one without, in several or in `x_groq`; content as a list of
parts or an object; the older `function_call`; `finish_reason: stop` after a call, "" or none before `[DONE]`;
a delta beside the message so far; further choices, which are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hearthnet.models import reported_error, streamed_error
from hearthnet.text import text_weight, weight_tokens
from hearthnet_llm.interface.frames import Done, Frame, Notice, StopReason, TextDelta, ToolCall
from hearthnet_llm.vendors import decoding
from hearthnet_llm.vendors.calls import stop_reason
from hearthnet_llm.vendors.decoding import Decoder, TextPieces
from hearthnet_llm.vendors.json_access import as_text, value_at
from hearthnet_llm.vendors.openai.calls import Calls
from hearthnet_llm.vendors.openai.citations import Citations
from hearthnet_llm.vendors.openai.reasoning import Thoughts
from hearthnet_llm.vendors.wire import ResponseInfo

_REASONS: Final[dict[StopReason, str]] = {
    "end": "stop eos end_turn complete",
    "max_tokens": "length max_tokens max_output_tokens model_length model_context_window_exceeded",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "stop_sequence": "stop_sequence",
    "refusal": (
        "content_filter sensitive safety prohibited_content blocklist recitation refusal guardrail_intervened"
    ),
}
_STOPS: Final = {word: reason for reason, words in _REASONS.items() for word in words.split()}
"""Our reason by the vendor's word."""
_FAILED: Final = {
    "error": 500,
    "abort": 500,
    "network_error": 502,
    "insufficient_system_resource": 503,
    "engine_overloaded": 503,
}
"""Finish reasons that are failures, by the status with the same meaning."""

_CACHED: Final = (
    "prompt_tokens_details.cached_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cache_read_input_tokens",
)
_THOUGHT: Final = ("completion_tokens_details.reasoning_tokens", "reasoning_tokens")
"""Paths of the vendors' counts of cached tokens (above) and of thought tokens."""


def decoder(info: ResponseInfo) -> Decoder:
    """Return a decoder for one answer, streamed or in one piece."""
    pieces = TextPieces(info.name)
    return Decoder(pieces, _Content(info, pieces))


class _Content:
    """Accumulated objects of one answer (`decoding.ContentAssembler`)."""

    def __init__(self, info: ResponseInfo, pieces: TextPieces) -> None:
        self._info = info
        self._pieces = pieces
        self._calls = Calls(info.name)
        self._thoughts = Thoughts()
        self._citations = Citations()
        self._choice: tuple[Any] | None = None
        self._finish: str | None = None
        self._usage: Mapping[str, Any] | None = None
        self._text_size = 0
        self._refused = False
        self._wordless = False

    def feed(self, value: Mapping[str, Any]) -> Iterator[Frame]:
        """Yield the frames of one chunk.

        Raises:
            HearthNetError: as translated by `failures`, for an error inside the answer.
        """
        if failed := _error(value):
            raise streamed_error(self._info.name, failed)
        self._citations.beside(value)
        self._count(value.get("usage") or (value.get("x_groq") or {}).get("usage"))
        for choice in value.get("choices") or ():
            if self._choice is None:
                self._choice = (choice.get("index"),)
            if self._choice == (choice.get("index"),):
                self._count(choice.get("usage"))
                yield from self._one(choice)

    def finish(self) -> Iterator[Frame]:
        """Yield sources, thoughts, calls, a notice for each incomplete call, and `Done`."""
        if self._finish is None and not self._pieces.is_done:
            raise decoding.broken(self._info.name)
        yield from self._citations.finish()
        yield from self._thoughts.finish()
        if self._wordless:
            yield Notice("part_left_out", f"{self._info.name} sent a picture; it was left out")
        called = False
        for frame in self._calls.finish():
            called = called or isinstance(frame, ToolCall)
            yield frame
        yield self._done(called)

    def _one(self, choice: Mapping[str, Any]) -> Iterator[Frame]:
        if choice.get("error"):
            raise streamed_error(self._info.name, choice["error"])
        delta = choice.get("delta")
        whole = delta is None
        message = (choice.get("message") if whole else delta) or {}
        self._citations.feed(message)
        yield from self._thoughts.feed(message)
        yield from self._text(message.get("content") or (choice.get("text") if whole else None))
        yield from self._text((message.get("audio") or {}).get("transcript"))
        self._wordless = self._wordless or bool(message.get("images"))
        if message.get("refusal"):
            self._refused = True
            yield from self._text(message["refusal"])
        calls = message.get("tool_calls") or _old_call(message)
        for position, call in enumerate(calls):
            if isinstance(call, Mapping):
                yield from self._calls.feed(call, position, whole, len(calls) == 1)
        self._ended(choice.get("finish_reason"))

    def _ended(self, reason: Any) -> None:
        if reason is None:
            return
        self._finish = str(reason).lower().replace("-", "_")
        if self._finish in _FAILED:
            raise reported_error(self._info.name, _FAILED[self._finish], f"it stopped for {self._finish}")

    def _count(self, usage: Any) -> None:
        """Keep the latest usage; one without counts is ignored, which some servers send."""
        if isinstance(usage, Mapping) and usage.get("prompt_tokens") is not None:
            self._usage = usage

    def _text(self, content: Any) -> Iterator[Frame]:
        if isinstance(content, str):
            if content:
                self._text_size += text_weight(content)
                yield TextDelta(content)
        elif isinstance(content, Mapping):
            yield from self._text(as_text(content))
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, Mapping):
                    yield from self._part(part)

    def _part(self, part: Mapping[str, Any]) -> Iterator[Frame]:
        if part.get("type") in ("text", "output_text"):
            yield from self._text(part.get("text"))
        elif part.get("type") == "refusal":
            self._refused = True
            yield from self._text(part.get("refusal"))
        elif part.get("type") in ("image", "image_url", "output_image"):
            self._wordless = True
        elif part.get("type") in ("thinking", "reasoning"):
            yield from self._thoughts.part(part)

    def _done(self, called: bool) -> Done:
        reason = stop_reason(_STOPS.get(self._finish or "", "end"), called)
        if self._refused and reason == "end":
            reason = "refusal"
        usage = self._usage
        if usage is None:
            size = self._text_size + self._thoughts.size + self._calls.size
            return Done(reason, weight_tokens(self._info.prompt_size), weight_tokens(size), "native")
        return Done(
            reason,
            _number(usage, "prompt_tokens") or 0,
            _number(usage, "completion_tokens") or 0,
            "native",
            next(filter(None, (_number(usage, path) for path in _CACHED)), None),
            next(filter(None, (_number(usage, path) for path in _THOUGHT)), None),
        )


def _error(value: Mapping[str, Any]) -> Any:
    """Return the error that an object is or has, or None.

    An object with choices or token counts is not an error itself.
    """
    if value.get("error"):
        return value["error"]
    if value.get("object") == "error" or value.get("type") == "error":
        return value
    has_message = any(value.get(name) for name in ("message", "detail", "errors", "msg"))
    return value if has_message and value.get("choices") is None and value.get("usage") is None else None


def _old_call(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the one call of the older form; some servers send it empty beside the newer one."""
    call = message.get("function_call") or {}
    return [{"index": 0, "function": call}] if any(call.values()) else []


def _number(usage: Mapping[str, Any], path: str) -> int | None:
    value = value_at(usage, path)
    return max(0, int(value)) if isinstance(value, int | float) else None
