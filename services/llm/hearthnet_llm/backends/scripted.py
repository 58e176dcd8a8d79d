"""A model that answers from a script, for tests and demonstrations without any server.

    pause_ms = 30                        # between two words; left out: none
    [[questions]]
    asked = "How do I keep water clean?" # left out: any question that no other one has
    [[questions.turns]]                  # one for each time that the model is asked about it
    calls = [{ tool = "search_corpus", arguments = { query = "clean water" } }]
    [[questions.turns]]
    text = "Boil it."                    # also: thinking = "...", error = "rate_limited"

The file is read at each request, so a change takes effect at once.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import ScriptedConfig
from hearthnet_llm.context.token_count import of_request, of_text
from hearthnet_llm.interface.backend import FrameStream, Profile
from hearthnet_llm.interface.frames import Done, ReasoningDelta, StopReason, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message
from hearthnet_llm.interface.stop_sequences import Stopper
from hearthnet_llm.vendors import openai

_CTX: Final = 32_768
_WORD: Final = re.compile(r"\s*\S+\s*")
_NO_ANSWER: Final = "The script has nothing to say to that."
_RETRY_MS: Final = 1000


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a tool."""

    tool: str
    arguments: dict[str, Any] = {}


class ScriptedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of the model; with `error`, a wire code, it fails after its other content."""

    text: str = ""
    thinking: str = ""
    calls: list[ScriptedCall] = []
    error: str = ""

    def __post_init__(self) -> None:
        if self.error:
            try:
                HearthNetError(self.error, "")
            except ValueError as error:
                raise ValueError(f"error: there is no wire code {self.error}") from error


class ScriptedQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The turns for one question, in order; `asked` None matches any other question."""

    turns: list[ScriptedTurn]
    asked: str | None = None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    questions: list[ScriptedQuestion]
    pause_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0

    def turn(self, messages: Sequence[Message]) -> ScriptedTurn:
        """Return the next turn of a conversation."""
        places = [place for place, message in enumerate(messages) if message.role == "user"]
        question = next(
            (place for place in reversed(places) if place == 0 or messages[place - 1].role != "tool"), 0
        )
        text = messages[question].text.strip()
        answers = sum(message.role == "assistant" for message in messages[question:])
        fitting = [one for one in self.questions if one.asked is None or one.asked.strip() == text]
        fitting.sort(key=lambda one: one.asked is None)
        turns = fitting[0].turns if fitting else []
        return turns[answers] if answers < len(turns) else ScriptedTurn(_NO_ANSWER)


class Scripted:
    """A scripted model as a `Backend`; `folder` is that of a relative file name."""

    def __init__(self, config: ScriptedConfig, folder: Path) -> None:
        self._file = folder / config.file
        self.profile = Profile(
            model=config.name,
            backend="scripted",
            ctx=_CTX,
            tool_mode="native",
            languages=config.languages,
            advice=f"It is no model: it says what stands in {self._file.name}.",
        )

    async def stream(self, request: ChatRequest) -> FrameStream:
        """Answer from the script, as `Backend.stream`.

        Raises:
            HearthNetError: `not_implemented` if the file cannot be used; the error of the script.
        """
        script = await asyncio.to_thread(self._read)
        turn = script.turn(request.messages)
        tokens_in = of_request(request)
        if turn.thinking:
            yield ReasoningDelta(turn.thinking)
        stopper, tokens_out = Stopper(request.stop or []), of_text(turn.thinking)
        ended: StopReason = "end"
        for word in _WORD.findall(turn.text):
            if request.max_tokens is not None and tokens_out >= request.max_tokens:
                ended = "max_tokens"
                break
            tokens_out += of_text(word)
            if shown := stopper.feed(word):
                yield TextDelta(shown)
            if stopper.stopped:
                ended = "stop_sequence"
                break
            await asyncio.sleep(script.pause_ms / 1000)
        if rest := stopper.flush():
            yield TextDelta(rest)
        if turn.error:
            raise HearthNetError(
                turn.error, f"{self.profile.model}: the script fails here", retry_after_ms=_RETRY_MS
            )
        calls = [] if request.tool_choice == "none" or ended != "end" else turn.calls
        before = sum(len(message.tool_calls) for message in request.messages)
        for number, call in enumerate(calls, start=before + 1):
            yield ToolCall(f"call_{number}", call.tool, call.arguments)
        yield Done("tool_calls" if calls else ended, tokens_in, tokens_out, "native")

    def complete(self, request: CompleteRequest) -> FrameStream:
        """Answer from the script, as `Backend.complete`; the prompt is the question."""
        return self.stream(openai.as_chat(request))

    async def aclose(self) -> None:
        """As `Backend.aclose`."""

    def _read(self) -> Script:
        try:
            return msgspec.convert(tomllib.loads(self._file.read_text(encoding="utf-8")), Script)
        except (OSError, ValueError, msgspec.ValidationError) as error:
            raise HearthNetError(
                "not_implemented",
                f"{self.profile.model}: the script {self._file} cannot be used: {error}",
            ) from error
