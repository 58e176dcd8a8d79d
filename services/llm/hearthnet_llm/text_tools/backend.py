"""One answer of a model that calls tools in its text, with frames as of native calls.

If the answer has an invalid block, or lacks a demanded call, the model is asked again with the reason. The
text of that attempt is held back until it is known whether it has a call, so that the user does not read the
same twice.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from hearthnet_llm.interface.backend import AskModel, FrameStream
from hearthnet_llm.interface.frames import Done, Frame, Notice, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.text_tools import prompt
from hearthnet_llm.text_tools.parser import OPEN, Malformed, Parsed, ParsedCall, Parser, Text
from hearthnet_llm.vendors.calls import AGAIN, INCOMPLETE, stop_reason, tool_name, unclosed

QUOTED: Final = "tool_call_quoted"
MISSING: Final = "tool_call_missing"
_MOST_ATTEMPTS: Final = 3
_FINISHED: Final = ("end", "tool_calls")
"""Reasons of an end by the model itself, without a cut."""


class _Answer:
    """The combined result of the attempts at one answer."""

    def __init__(self, request: ChatRequest, model: str) -> None:
        self.with_tools = bool(request.tools)
        self._only_one = request.parallel_tool_calls is False
        self._model = model
        self._calls_before = sum(len(message.tool_calls) for message in request.messages)
        self._must = prompt.must_call(request)
        self._attempts = self._calls = 0
        self._broken: Malformed | None = None
        self._done: Done | None = None
        self._tokens_in = self._tokens_out = 0
        self._shown = False
        self._kept: list[TextDelta] = []
        self.said = ""

    def begin(self) -> None:
        """Begin another attempt."""
        self._shown = self._shown or (self._attempts == 1 and bool(self.said.strip()))
        self._attempts += 1
        self._broken, self._done, self._kept, self.said = None, None, [], ""

    def frame(self, found: Parsed) -> Frame | None:
        """Return the frame for the caller, or None; text of a later attempt is held back."""
        match found:
            case Text(text):
                self.said += text
                if self._attempts == 1:
                    return TextDelta(text)
                self._kept.append(TextDelta(text))
            case ParsedCall(name, arguments) if not (self._calls and self._only_one):
                self._calls += 1
                number = self._calls_before + self._calls
                return ToolCall(f"call_{number}", tool_name(name), arguments)
            case Malformed():
                self._broken = self._broken or found
            case _:
                pass
        return None

    def count(self, done: Done) -> None:
        """End an attempt, and add up its tokens."""
        self._done = done
        self._tokens_in += done.tokens_in
        self._tokens_out += done.tokens_out

    @property
    def problem(self) -> str:
        """The fault of the answer in a few words, or an empty text."""
        if self._calls or self._done is None or self._done.stop_reason not in _FINISHED:
            return ""
        if self._broken is not None:
            return f"its call is none: {self._broken.reason}"
        return "it called no tool" if self._must else ""

    @property
    def lack(self) -> str:
        """The message to the model for another attempt, or an empty text if none is needed."""
        if not self.problem:
            return ""
        if self._broken is None:
            return self._must
        return (
            f"Your call was not carried out: {self._broken.reason}. Write the whole block again, or answer "
            "in words."
        )

    @property
    def rest(self) -> list[TextDelta]:
        """Text that was held back and turned out to be the answer."""
        useless = self._calls or self._broken is not None or (self._must and self._shown)
        return [] if useless else self._kept

    @property
    def notices(self) -> list[Notice]:
        """Notices for the user about the answer."""
        if self._broken is not None:
            return [Notice(INCOMPLETE, f"{self._model} wrote a call that is none: {self._broken.reason}")]
        if self._must and not self._calls:
            return [Notice(MISSING, f"{self._model} was to call a tool, and called none")]
        if self.with_tools and OPEN in self.said and not self._calls:
            text = f"{self._model} quotes a call in its answer; what is quoted is not carried out"
            return [Notice(QUOTED, text)]
        return []

    def end(self) -> Done:
        """Return the last frame of the whole answer.

        Raises:
            HearthNetError: `internal_error` if a call was begun and none is complete.
        """
        if self._broken is not None and self.problem:
            raise unclosed(self._model)
        last = self._done or Done("end", 0, 0)
        reason = stop_reason(last.stop_reason, self._calls > 0)
        return Done(
            reason, self._tokens_in, self._tokens_out, "text", last.tokens_cached, last.tokens_thinking
        )


async def stream(request: ChatRequest, model: str, ask: AskModel) -> FrameStream:
    """Yield the frames of an answer to `request`; `ask` sends a request without tools.

    Raises:
        HearthNetError: any error of `ask`; `internal_error` if no call of the model is ever valid.
    """
    asked, answer = prompt.text_tool_request(request), _Answer(request, model)
    for left in reversed(range(_MOST_ATTEMPTS if request.tools else 1)):
        answer.begin()
        async with aclosing(_attempt(answer, ask(asked))) as frames:
            async for frame in frames:
                yield frame
        lack = answer.lack if left else ""
        if not lack:
            break
        yield Notice(AGAIN, f"{model} is asked once more: {answer.problem}")
        asked = prompt.again(asked, answer.said, lack)
    for text in answer.rest:
        yield text
    for notice in answer.notices:
        yield notice
    yield answer.end()


async def _attempt(answer: _Answer, frames: FrameStream) -> FrameStream:
    """Yield the frames of one attempt, with calls taken out of its text."""
    parser = Parser() if answer.with_tools else None
    async with aclosing(frames) as source:
        async for frame in source:
            found: list[Parsed] = []
            if isinstance(frame, TextDelta):
                found = [Text(frame.text)] if parser is None else parser.feed(frame.text)
            elif isinstance(frame, Done):
                answer.count(frame)
                found = [] if parser is None else parser.finish(ended=frame.stop_reason in _FINISHED)
            else:
                yield frame
            for shown in map(answer.frame, found):
                if shown is not None:
                    yield shown
