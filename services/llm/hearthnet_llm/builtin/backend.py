"""A GGUF model as a `Backend`: prompts in, frames out.

The engine's chunks become text, the reason of its end, token counts, and progress at a rate suitable for
display: the engine reports each batch of 4 tokens of a prompt, and a frame is made at most every
`PAUSE_SECONDS`, none for a prompt that is read within that time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from hearthnet import HearthNetError
from hearthnet_llm.builtin import grammar
from hearthnet_llm.builtin.engine import Chunk, Engine
from hearthnet_llm.builtin.forced_call import WIDEST, ForcedCall
from hearthnet_llm.builtin.grammar import bounded
from hearthnet_llm.builtin.model_file import MOST_QUOTES, NOTES_BUDGET
from hearthnet_llm.builtin.prompt import prompt
from hearthnet_llm.interface.backend import FrameStream, Profile
from hearthnet_llm.interface.frames import (
    Done,
    Notice,
    PrefillProgress,
    StopReason,
    TextDelta,
    ToolCall,
    ToolPath,
)
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Named, Tool
from hearthnet_llm.interface.stop_sequences import Stopper
from hearthnet_llm.vendors.json_access import ungrammatical

CALL_ID: Final = "call_1"
_ONE_LINE: Final = ("\n",)
_MOST_ANSWERED: Final = 1024
_MOST_CONTINUED: Final = 256
"""Default limit of tokens: so small a model may never end by itself."""
_TEMPERATURE: Final = 0.7
_TOP_P: Final = 0.95
_SEEDS: Final = 1 << 32
_REASONS: Final[dict[str, StopReason]] = {"length": "max_tokens", "stop": "end"}
PAUSE_SECONDS: Final = 0.25
_STAGE: Final = "reading"


class BuiltinBackend:
    """One model in this process."""

    def __init__(self, engine: Engine, profile: Profile) -> None:
        self._engine = engine
        self.profile = profile

    def stream(self, request: ChatRequest) -> FrameStream:
        """Continue a conversation, as `Backend.stream`; a tool is called only on demand."""
        tool = _demanded(request)
        return self._answer(request) if tool is None else self._call(tool, request)

    async def complete(self, request: CompleteRequest) -> FrameStream:
        """As `Backend.complete`."""
        body = {"prompt": request.prompt, **_drawing(request, _MOST_CONTINUED)}
        text = Generation(request.stop)
        async with aclosing(self._engine.complete(body)) as chunks:
            async for frame in _text_frames(chunks, text):
                yield frame
        yield text.done("none")

    async def aclose(self) -> None:
        """As `Backend.aclose`."""
        await self._engine.close()

    async def _answer(self, request: ChatRequest) -> FrameStream:
        ungrammatical(request)
        if request.tools and request.tool_choice in (None, "auto"):
            yield Notice(
                "tools_ignored",
                f"{self.profile.model} calls a tool only when one is demanded by name",
            )
        shown = prompt(request.messages, NOTES_BUDGET)
        body: Chunk = {"messages": shown.turns, **_drawing(request, _MOST_ANSWERED)}
        if request.response_schema is not None:
            body["grammar"] = grammar.of_json(bounded(request.response_schema.schema or {}, WIDEST))
        elif shown.sentences and self.profile.quotes:
            body |= {"grammar": grammar.of_quotes(shown.sentences, MOST_QUOTES), "temperature": 0}
        # After a result with nothing to quote, all but the first line of so small a model is noise.
        brief = request.messages[-1].role == "tool" and not shown.sentences and not request.stop
        if brief:
            body |= {"timings_per_token": True, **({} if request.temperature else {"temperature": 0})}
        text = Generation(_ONE_LINE if brief else request.stop or ())
        async with aclosing(self._engine.chat(body)) as chunks:
            async for frame in _text_frames(chunks, text):
                yield frame
        yield text.done("none", "end" if brief and text.stopped else None)

    async def _call(self, tool: Tool, request: ChatRequest) -> FrameStream:
        calling = ForcedCall(tool, request.messages)
        text = Generation()
        while not calling.over:
            ask = calling.ask()
            seed = (request.seed or 0) + ask.attempt
            text = Generation()
            body = {
                "messages": ask.turns,
                "grammar": ask.grammar,
                **_drawing(request, _MOST_ANSWERED),
                "temperature": ask.temperature,
                "top_p": 1.0,
                "seed": seed % _SEEDS,
            }
            async with aclosing(self._engine.chat(body)) as chunks:
                async for frame in _text_frames(chunks, text):
                    if isinstance(frame, PrefillProgress):
                        yield frame
            arguments = calling.check(text.whole, text.ended)
            if arguments is not None:
                yield ToolCall(CALL_ID, tool.name, arguments)
                yield text.done("grammar", "tool_calls")
                return
        if text.ended:
            raise HearthNetError(
                "internal_error",
                f"{self.profile.model} found no arguments that fit {tool.name}: {calling.reason}; "
                "ask a larger model",
            )
        yield Notice(
            "tool_call_incomplete",
            f"no call of {tool.name} fits into {request.max_tokens or _MOST_ANSWERED} tokens",
        )
        yield text.done("grammar", "max_tokens")


async def _text_frames(
    chunks: AsyncGenerator[list[Chunk], None], text: Generation
) -> AsyncGenerator[TextDelta | PrefillProgress, None]:
    """Yield the progress of reading the prompt, then the new text of the answer.

    `text` accumulates the answer.
    """
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
            yield TextDelta(shown)
        if text.stopped:
            return


def _drawing(request: ChatRequest | CompleteRequest, most: int) -> dict[str, Any]:
    """Return the engine's sampling parameters, with at most `most` tokens by default.

    Stop sequences are detected here, because the engine does not report which condition ended the text.
    """
    drawing: dict[str, Any] = {
        "max_tokens": most if request.max_tokens is None else request.max_tokens,
        "temperature": _TEMPERATURE if request.temperature is None else request.temperature,
        "top_p": _TOP_P if request.top_p is None else request.top_p,
        "timings_per_token": bool(request.stop),
    }
    return drawing if request.seed is None else {**drawing, "seed": request.seed % _SEEDS}


def _demanded(request: ChatRequest) -> Tool | None:
    """Return the tool that must be called, or None.

    Raises:
        HearthNetError: `not_implemented` if the model would have to choose among several.
    """
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


class Generation:
    """One generation; feed it each chunk of the engine in order. `whole` is the text so far."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stopper = Stopper(stops)
        self._stop_reason: StopReason = "end"
        self._tokens_in = self._tokens_out = 0
        self.whole = ""

    @property
    def stopped(self) -> bool:
        """True after a stop sequence, when the engine need not continue."""
        return self._stopper.stopped

    @property
    def ended(self) -> bool:
        """True if the model ended by itself."""
        return self._stop_reason == "end"

    def feed(self, chunk: dict[str, Any]) -> str:
        """Return the new text to show."""
        choice = chunk["choices"][0]
        text = choice["delta"].get("content") if "delta" in choice else choice.get("text")
        timings = chunk.get("timings")
        if timings is not None:
            self._tokens_in = timings["prompt_n"] + timings["cache_n"]
            self._tokens_out = timings["predicted_n"]
        shown = self._stopper.feed(text or "")
        if choice["finish_reason"] is not None:
            self._stop_reason = _REASONS[choice["finish_reason"]]
            shown += self._stopper.flush()
        self.whole += shown
        return shown

    def done(self, tool_path: ToolPath, stop_reason: StopReason | None = None) -> Done:
        """Return the last frame."""
        reason = stop_reason or ("stop_sequence" if self.stopped else self._stop_reason)
        return Done(reason, self._tokens_in, self._tokens_out, tool_path)


class Reading:
    """Converter of engine chunks to progress; `now` is in seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._sent_at = now

    def feed(self, chunk: dict[str, Any], now: float) -> PrefillProgress | None:
        """Return the progress in a chunk, counted in tokens, if it has any and the pause is over."""
        told = chunk.get("prompt_progress")
        if told is None or now - self._sent_at < PAUSE_SECONDS:
            return None
        self._sent_at = now
        return PrefillProgress(_STAGE, told["processed"], told["total"])
