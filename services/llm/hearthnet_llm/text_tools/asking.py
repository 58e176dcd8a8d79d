"""One answer of a model that calls tools in its text, as if it called them natively.

A block that is no call, or none where one was demanded, is shown to the model once more with the reason; what
it says then is held back until it is known whether it has called, so that nobody reads the same twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from hearthnet.models import failures
from hearthnet_llm.backend import FrameStream
from hearthnet_llm.frames import Done, Frame, Notice, Token, ToolCall
from hearthnet_llm.request import ChatRequest
from hearthnet_llm.text_tools import prompt
from hearthnet_llm.text_tools.parser import OPEN, Broken, Called, Found, Parser, Said
from hearthnet_llm.vendors.calls import AGAIN, INCOMPLETE, stop_reason, tool_name

QUOTED: Final = "tool_call_quoted"
MISSING: Final = "tool_call_missing"
_MOST_ATTEMPTS: Final = 3
_FINISHED: Final = ("end", "tool_calls")
"""Reasons for which a model ends by itself, not because something cut it off."""


class _Answer:
    """What has come of the attempts at one answer."""

    def __init__(self, request: ChatRequest, model: str) -> None:
        self.with_tools = bool(request.tools)
        self._only_one = request.parallel_tool_calls is False
        self._model = model
        self._calls_before = sum(len(message.tool_calls) for message in request.messages)
        self._must = prompt.must_call(request)
        self._attempts = self._calls = 0
        self._broken: Broken | None = None
        self._done: Done | None = None
        self._tokens_in = self._tokens_out = 0
        self._shown = False
        self._kept: list[Token] = []
        self.said = ""

    def begin(self) -> None:
        """Another attempt begins."""
        self._shown = self._shown or (self._attempts == 1 and bool(self.said.strip()))
        self._attempts += 1
        self._broken, self._done, self._kept, self.said = None, None, [], ""

    def frame(self, found: Found) -> Frame | None:
        """What the caller gets of it now; of the text of a later attempt nothing yet."""
        match found:
            case Said(text):
                self.said += text
                if self._attempts == 1:
                    return Token(text)
                self._kept.append(Token(text))
            case Called(name, arguments) if not (self._calls and self._only_one):
                self._calls += 1
                number = self._calls_before + self._calls
                return ToolCall(f"call_{number}", tool_name(name), arguments)
            case Broken():
                self._broken = self._broken or found
            case _:
                pass
        return None

    def count(self, done: Done) -> None:
        """An attempt has ended; what it has cost is added up."""
        self._done = done
        self._tokens_in += done.tokens_in
        self._tokens_out += done.tokens_out

    @property
    def problem(self) -> str:
        """Why the answer cannot be used, in a few words; empty where it can."""
        if self._calls or self._done is None or self._done.stop_reason not in _FINISHED:
            return ""
        if self._broken is not None:
            return f"its call is none: {self._broken.reason}"
        return "it called no tool" if self._must else ""

    @property
    def lack(self) -> str:
        """What the model is told that is asked again; empty where it need not."""
        if not self.problem:
            return ""
        if self._broken is None:
            return self._must
        return (
            f"Your call was not carried out: {self._broken.reason}. Write the whole block again, or answer "
            "in words."
        )

    @property
    def rest(self) -> list[Token]:
        """What was held back and is the answer after all."""
        useless = self._calls or self._broken is not None or (self._must and self._shown)
        return [] if useless else self._kept

    @property
    def notices(self) -> list[Notice]:
        """What a person should know of the answer."""
        if self._broken is not None:
            return [Notice(INCOMPLETE, f"{self._model} wrote a call that is none: {self._broken.reason}")]
        if self._must and not self._calls:
            return [Notice(MISSING, f"{self._model} was to call a tool, and called none")]
        if self.with_tools and OPEN in self.said and not self._calls:
            text = f"{self._model} quotes a call in its answer; what is quoted is not carried out"
            return [Notice(QUOTED, text)]
        return []

    def end(self) -> Done:
        """The end of the whole; `internal_error` where a call was begun and none is whole."""
        if self._broken is not None and self.problem:
            raise failures.unclosed(self._model)
        last = self._done or Done("end", 0, 0)
        reason = stop_reason(last.stop_reason, self._calls > 0)
        return Done(
            reason, self._tokens_in, self._tokens_out, "text", last.tokens_cached, last.tokens_thinking
        )


async def stream(
    request: ChatRequest, model: str, ask: Callable[[ChatRequest], FrameStream]
) -> AsyncGenerator[Frame, None]:
    """The frames of an answer to `request`; `ask` asks the model what has no tools in it.

    Raises what `ask` raises, and `internal_error` for a model that calls and never gets a call right.
    """
    asked, answer = prompt.asked(request), _Answer(request, model)
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


async def _attempt(answer: _Answer, frames: FrameStream) -> AsyncGenerator[Frame, None]:
    """One attempt, calls taken out of its text."""
    parser = Parser() if answer.with_tools else None
    async with aclosing(frames) as source:
        async for frame in source:
            found: list[Found] = []
            if isinstance(frame, Token):
                found = [Said(frame.text)] if parser is None else parser.feed(frame.text)
            elif isinstance(frame, Done):
                answer.count(frame)
                found = [] if parser is None else parser.finish(ended=frame.stop_reason in _FINISHED)
            else:
                yield frame
            for shown in map(answer.frame, found):
                if shown is not None:
                    yield shown
