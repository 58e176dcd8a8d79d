"""A model whose only call never became whole is asked once more, with the reason.

    nothing but a broken call           asked again; what it has cost is counted with the answer
    thoughts, or parts that the vendor  the error stands: two attempts in one message would not be taken back
    wants back
    broken once more                    the error stands

What it said before its call is not shown twice: of the words of the second attempt, those beside a call go.

See: docs/tools.md#models-without-tool-calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet_llm.backend import FrameStream
from hearthnet_llm.frames import Cited, Done, Frame, Notice, Served, Thought, Token, ToolCall
from hearthnet_llm.request import ChatRequest, Message
from hearthnet_llm.vendors.calls import AGAIN, UnclosedCall

TOLD: Final = (
    "[Your call was not carried out: its arguments are no complete JSON object. Make the whole call again, "
    "or answer in words.]"
)
"""What the model is told with the second request; it stands in no transcript."""
_WANTED_BACK: Final = (Cited, Served, Thought)


async def stream(
    request: ChatRequest, model: str, ask: Callable[[ChatRequest], FrameStream]
) -> AsyncGenerator[Frame, None]:
    """The frames of an answer to `request`. Raises what `ask` raises."""
    spoken = wanted_back = False
    try:
        async with aclosing(ask(request)) as frames:
            async for frame in frames:
                spoken = spoken or (isinstance(frame, Token) and bool(frame.text.strip()))
                wanted_back = wanted_back or isinstance(frame, _WANTED_BACK)
                yield frame
        return
    except UnclosedCall as error:
        if wanted_back:
            raise
        spent = error.spent
    yield Notice(AGAIN, f"{model} is asked once more: the arguments of its call are not complete")
    told = msgspec.structs.replace(request, messages=[*request.messages, Message("user", TOLD)])
    async with aclosing(_second(ask(told), spent, hold=spoken)) as frames:
        async for frame in frames:
            yield frame


async def _second(frames: FrameStream, spent: Done, *, hold: bool) -> AsyncGenerator[Frame, None]:
    """The second attempt; with `hold` its words come at the end, and only where it has called nothing."""
    held: list[Frame] = []
    called = False
    async with aclosing(frames) as source:
        async for frame in source:
            called = called or isinstance(frame, ToolCall)
            if hold and isinstance(frame, Token):
                held.append(frame)
                continue
            if isinstance(frame, Done):
                for word in [] if called else held:
                    yield word
                frame = msgspec.structs.replace(
                    frame,
                    tokens_in=frame.tokens_in + spent.tokens_in,
                    tokens_out=frame.tokens_out + spent.tokens_out,
                )
            yield frame
