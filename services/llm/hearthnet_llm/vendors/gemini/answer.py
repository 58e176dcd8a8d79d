"""Decoding of Gemini's responses to frames, without I/O.

The input is events of a stream, items of an array, or one object. All of them are responses of the same form;
only the first candidate counts. A finish reason may be a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hearthnet.models import streamed_error
from hearthnet.text import text_weight, weight_tokens
from hearthnet_llm.interface.content_parts import Citation, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    ServerToolEvent,
    StopReason,
    TextDelta,
)
from hearthnet_llm.vendors import decoding
from hearthnet_llm.vendors.calls import stop_reason
from hearthnet_llm.vendors.decoding import Decoder, TextPieces, count, counted
from hearthnet_llm.vendors.gemini import parts
from hearthnet_llm.vendors.gemini.calls import Calls
from hearthnet_llm.vendors.gemini.messages import FORMAT
from hearthnet_llm.vendors.wire import Json, ResponseInfo

_NUMBERS: Final = (
    "", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "BLOCKLIST", "BLOCKLIST", "BLOCKLIST",
)  # fmt: skip
"""Finish reasons by number, as far as both of the vendor's endpoints agree; from 6 to 8 they have different
reasons to refuse.
"""
_REASONS: Final[dict[StopReason, str]] = {
    "max_tokens": "MAX_TOKENS CONTINUATION",
    "refusal": (
        "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY "
        "IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION MODEL_ARMOR ESCALATION PUP_LIMITED_DISABLED"
    ),
}
_STOPS: Final = {word: reason for reason, words in _REASONS.items() for word in words.split()}
"""Our reason by the vendor's word."""
_RESPONSE: Final = ("candidates", "usageMetadata", "promptFeedback", "modelVersion", "responseId")
"""Fields that identify a response; one in a stream may have nothing but the model's version."""
_MALFORMED: Final = (
    "MALFORMED_FUNCTION_CALL",
    "MALFORMED_RESPONSE",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
)


def decoder(info: ResponseInfo) -> Decoder:
    """Return a decoder for one answer, streamed or in one piece."""
    return Decoder(TextPieces(info.name), Content(info))


class Content:
    """Accumulated responses of one answer (`decoding.ContentAssembler`)."""

    def __init__(self, info: ResponseInfo) -> None:
        self._info = info
        self._calls = Calls(info.name)
        self._thought: list[str] = []
        self._usage: Json = {}
        self._finish = ""
        self._message = ""
        self._size = 0
        self._left_out = False

    def feed(self, value: Json) -> Iterator[Frame]:
        """Yield the frames of one response.

        Raises:
            HearthNetError: as translated by `failures`, for an error instead of a response.
        """
        if value.get("error"):
            raise streamed_error(self._info.name, value["error"])
        if not any(name in value for name in _RESPONSE):
            raise decoding.no_answer(self._info.name, "")
        usage = value.get("usageMetadata") or {}
        if "promptTokenCount" in usage:
            self._usage = usage
        feedback = value.get("promptFeedback") or {}
        if feedback.get("blockReason"):
            self._finish = "PROHIBITED_CONTENT"
            self._message = str(feedback.get("blockReasonMessage") or "")
        for candidate in value.get("candidates") or ():
            if not candidate.get("index"):
                yield from self._candidate(candidate)

    def finish(self) -> Iterator[Frame]:
        """Yield the last frames, as `decoding.ContentAssembler.finish`."""
        if not self._finish:
            raise decoding.broken(self._info.name)
        yield from self._end_thought(None)
        yield from self._calls.finish()
        refused = _STOPS.get(self._finish) == "refusal" and bool(self._message)
        if refused or self._finish in _MALFORMED:
            reason = self._message or "its answer cannot be read"
            yield Notice(self._finish.lower(), f"{self._info.name}: {reason}"[:500])
        yield self._done()

    def _candidate(self, candidate: Json) -> Iterator[Frame]:
        for part in (candidate.get("content") or {}).get("parts") or ():
            yield from self._part(part)
        for citation in _citations(candidate):
            yield CitationEvent(citation)
        reason = candidate.get("finishReason")
        if isinstance(reason, int):
            reason = _NUMBERS[reason] if reason < len(_NUMBERS) else "OTHER"
        if reason:
            self._finish = str(reason)
            self._message = str(candidate.get("finishMessage") or "")

    def _part(self, part: Json) -> Iterator[Frame]:
        signature = part.get("thoughtSignature")
        call, served = part.get("functionCall"), parts.read_served(part)
        if part.get("thought") and call is None and served is None:
            yield from self._think(part.get("text"), signature)
            return
        yield from self._end_thought(None)
        if call is not None:
            yield from self._calls.feed(call, signature)
        elif served is not None:
            yield ServerToolEvent(served)
        else:
            yield from self._text_frames(part)
            if signature:
                yield ReasoningBlock(ThinkingPart(signature=signature, format=FORMAT))

    def _text_frames(self, part: Json) -> Iterator[Frame]:
        text = part.get("text")
        if text:
            self._size += text_weight(text)
            yield TextDelta(text)
        elif (part.get("inlineData") or part.get("fileData")) and not self._left_out:
            self._left_out = True
            yield Notice("media_left_out", f"{self._info.name} answered with media, which were left out")

    def _think(self, text: Any, signature: Any) -> Iterator[Frame]:
        if text:
            self._size += text_weight(text)
            self._thought.append(text)
            yield ReasoningDelta(text)
        if signature:
            yield from self._end_thought(signature)

    def _end_thought(self, signature: str | None) -> Iterator[Frame]:
        """End a thought, at its signature or at the next part of another kind."""
        if self._thought or signature:
            text = "".join(self._thought)
            self._thought = []
            yield ReasoningBlock(ThinkingPart(text or None, signature, format=FORMAT))

    def _done(self) -> Done:
        reason = stop_reason(_STOPS.get(self._finish, "end"), self._calls.called)
        usage = self._usage
        if not usage:
            return Done(reason, weight_tokens(self._info.prompt_size), weight_tokens(self._size), "native")
        read = count(usage["promptTokenCount"]) + count(usage.get("toolUsePromptTokenCount"))
        written = count(usage.get("candidatesTokenCount")) + count(usage.get("thoughtsTokenCount"))
        cached, thought = usage.get("cachedContentTokenCount"), usage.get("thoughtsTokenCount")
        return Done(reason, read, written, "native", counted(cached), counted(thought))


def _citations(candidate: Mapping[str, Any]) -> Iterator[Citation]:
    """Yield the citations of a candidate: the sources of each piece of the answer.

    Without pieces, yield the sources alone.
    """
    grounding = candidate.get("groundingMetadata") or {}
    chunks = grounding.get("groundingChunks") or []
    supports = grounding.get("groundingSupports") or []
    for support in supports:
        segment = support.get("segment") or {}
        for index in support.get("groundingChunkIndices") or ():
            if isinstance(index, int) and 0 <= index < len(chunks):
                yield _source(chunks[index], index, segment)
    if not supports:
        for index, chunk in enumerate(chunks):
            yield _source(chunk, index, {})
    metadata = candidate.get("citationMetadata") or {}
    for source in metadata.get("citationSources") or metadata.get("citations") or ():  # Vertex AI: citations
        yield Citation(
            "web",
            title=source.get("title"),
            url=source.get("uri"),
            start=source.get("startIndex"),
            end=source.get("endIndex"),
        )


def _source(chunk: Mapping[str, Any], index: int, segment: Mapping[str, Any]) -> Citation:
    """Return one source; `start` and `end` count bytes of the answer that it supports."""
    retrieved = chunk.get("retrievedContext")
    place = retrieved or chunk.get("web") or chunk.get("maps") or chunk.get("image") or {}
    return Citation(
        kind="file" if retrieved else "web",
        quoted=place.get("text"),
        said=segment.get("text"),
        title=place.get("title") or place.get("fileSearchStore"),
        url=place.get("uri") or place.get("sourceUri"),
        index=index,
        start=segment.get("startIndex"),
        end=segment.get("endIndex"),
    )
