"""A GGUF model behind the port `Backend` (backend.py): prompts in, frames out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from hearthnet.errors import HearthNetError
from hearthnet_llm.backend import FrameStream
from hearthnet_llm.builtin import grammar
from hearthnet_llm.builtin.bounds import bounded
from hearthnet_llm.builtin.calling import WIDEST, Calling
from hearthnet_llm.builtin.engine import Chunk, Engine
from hearthnet_llm.builtin.profile import MOST_QUOTES, NOTES_BUDGET
from hearthnet_llm.builtin.prompt import prompt
from hearthnet_llm.builtin.reading import Reading
from hearthnet_llm.builtin.text import Text
from hearthnet_llm.frames import Frame, Notice, Progress, Token, ToolCall
from hearthnet_llm.profile import Profile
from hearthnet_llm.request import ChatRequest, CompleteRequest, Named, Sampling, Tool
from hearthnet_llm.vendors.reading import ungrammatical

CALL_ID: Final = "call_1"
_ONE_LINE: Final = ("\n",)


class BuiltinBackend:
    """One model in this process."""

    def __init__(self, engine: Engine, profile: Profile) -> None:
        self._engine = engine
        self._profile = profile

    @property
    def profile(self) -> Profile:
        """As `Backend.profile`."""
        return self._profile

    def stream(self, request: ChatRequest) -> FrameStream:
        """As `Backend.stream`; a tool is called when it is demanded, and only then."""
        tool = _demanded(request)
        return self._answer(request) if tool is None else self._call(tool, request)

    async def complete(self, request: CompleteRequest) -> AsyncGenerator[Frame, None]:
        """As `Backend.complete`."""
        body = {"prompt": request.prompt, **_drawing(request.sampling)}
        text = Text(request.stop)
        async with aclosing(self._engine.complete(body)) as chunks:
            async for frame in _heard(chunks, text):
                yield frame
        yield text.done("none")

    async def close(self) -> None:
        """As `Backend.close`."""
        await self._engine.close()

    async def _answer(self, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        ungrammatical(request)
        if request.tools and request.tool_choice in (None, "auto"):
            yield Notice(
                "tools_ignored",
                f"{self._profile.model} calls a tool only when one is demanded by name",
            )
        shown = prompt(request.messages, NOTES_BUDGET)
        body: Chunk = {"messages": shown.turns, **_drawing(request.sampling)}
        if request.response_schema is not None:
            body["grammar"] = grammar.of_json(bounded(request.response_schema.schema or {}, WIDEST))
        elif shown.sentences and self._profile.quotes:
            body |= {"grammar": grammar.of_quotes(shown.sentences, MOST_QUOTES), "temperature": 0}
        # After a result with nothing to quote, what so small a model says beyond one line is noise.
        brief = request.messages[-1].role == "tool" and not shown.sentences and not request.sampling.stop
        if brief:
            body["timings_per_token"] = True
        text = Text(_ONE_LINE if brief else request.sampling.stop)
        async with aclosing(self._engine.chat(body)) as chunks:
            async for frame in _heard(chunks, text):
                yield frame
        yield text.done("none", "end" if brief and text.stopped else None)

    async def _call(self, tool: Tool, request: ChatRequest) -> AsyncGenerator[Frame, None]:
        calling = Calling(tool, request.messages)
        text = Text()
        while not calling.over:
            ask = calling.ask()
            seed = (request.seed or 0) + ask.attempt
            drawing = _drawing(Sampling(request.sampling.max_tokens, ask.temperature, 1.0, [], seed))
            text = Text()
            body = {"messages": ask.turns, "grammar": ask.grammar, **drawing}
            async with aclosing(self._engine.chat(body)) as chunks:
                async for frame in _heard(chunks, text):
                    if isinstance(frame, Progress):
                        yield frame
            arguments = calling.judge(text.whole, text.ended)
            if arguments is not None:
                yield ToolCall(CALL_ID, tool.name, arguments)
                yield text.done("grammar", "tool_calls")
                return
        if text.ended:
            raise HearthNetError(
                "internal_error",
                f"{self._profile.model} found no arguments that fit {tool.name}: {calling.reason}; "
                "ask a larger model",
            )
        yield Notice(
            "tool_call_incomplete", f"no call of {tool.name} fits into {request.sampling.max_tokens} tokens"
        )
        yield text.done("grammar", "max_tokens")


async def _heard(
    chunks: AsyncGenerator[list[Chunk], None], text: Text
) -> AsyncGenerator[Token | Progress, None]:
    """How far the prompt has been read, then what is new to show of the answer that `text` adds up."""
    reading = Reading(time.monotonic())
    async for some in chunks:
        shown = ""
        for chunk in some:
            progress = reading.feed(chunk, time.monotonic())
            if progress is not None:
                yield progress
            shown += text.feed(chunk)
            if text.stopped:
                break
        if shown:
            yield Token(shown)
        if text.stopped:
            return


def _drawing(sampling: Sampling) -> dict[str, Any]:
    """Sampling as the engine wants it. Stop sequences are found here: it does not say which end it met."""
    drawing: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "timings_per_token": bool(sampling.stop),
    }
    return drawing if sampling.seed is None else {**drawing, "seed": sampling.seed % (1 << 32)}


def _demanded(request: ChatRequest) -> Tool | None:
    """The tool that must be called; `not_implemented` where the model would have to choose among several."""
    choice = request.tool_choice
    if isinstance(choice, Named):
        return next(tool for tool in request.tools or () if tool.name == choice.name)
    if choice != "required":
        return None
    tools = request.tools or []
    if len(tools) > 1:
        names = ", ".join(tool.name for tool in tools)
        raise HearthNetError(
            "not_implemented",
            f"this model cannot choose among tools; demand one of {names} with tool_choice {{name}}",
            details={"path": "/input/tool_choice"},
        )
    return tools[0]
