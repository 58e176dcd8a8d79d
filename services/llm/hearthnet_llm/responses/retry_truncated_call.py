"""One retry for an answer whose only call stayed incomplete, with the reason.

    answer with nothing but a broken call          retried; its tokens are counted with the second answer
    thoughts, or parts that the vendor requires    the error is raised: the vendor would not accept two
    in later requests                              attempts in one message
    second answer broken too                       the error is raised

Text before the call is not shown twice: if the second attempt has a call, its own text is dropped.

See: docs/tools.md#models-without-tool-calls.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet_llm.interface.backend import AskModel, FrameStream
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ServerToolEvent,
    TextDelta,
    ToolCall,
)
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.vendors.calls import AGAIN, UnclosedCall

RETRY_NOTICE: Final = (
    "[Your call was not carried out: its arguments are no complete JSON object. Make the whole call again, "
    "or answer in words.]"
)
"""Message added to the second request; it is in no transcript."""
_SENT_BACK: Final = (CitationEvent, ServerToolEvent, ReasoningBlock)


async def stream(request: ChatRequest, model: str, ask: AskModel) -> FrameStream:
    """Yield the frames of an answer to `request`.

    Raises:
        HearthNetError: any error of `ask`.
    """
    has_text = sent_back = False
    try:
        async with aclosing(ask(request)) as frames:
            async for frame in frames:
                has_text = has_text or (isinstance(frame, TextDelta) and bool(frame.text.strip()))
                sent_back = sent_back or isinstance(frame, _SENT_BACK)
                yield frame
        return
    except UnclosedCall as error:
        if sent_back:
            raise
        spent = error.spent
    yield Notice(AGAIN, f"{model} is asked once more: the arguments of its call are not complete")
    again = msgspec.structs.replace(request, messages=[*request.messages, Message("user", RETRY_NOTICE)])
    async with aclosing(_second(ask(again), spent, hold=has_text)) as frames:
        async for frame in frames:
            yield frame


async def _second(frames: FrameStream, spent: Done, *, hold: bool) -> FrameStream:
    """Yield the second attempt; with `hold` its text comes last, and only if it has no call."""
    held: list[Frame] = []
    called = False
    async with aclosing(frames) as source:
        async for frame in source:
            called = called or isinstance(frame, ToolCall)
            if hold and isinstance(frame, TextDelta):
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
