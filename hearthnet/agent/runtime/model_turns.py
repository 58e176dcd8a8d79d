"""The requests of one run to its model, and the frames of the answers.

In a named thread only new messages are sent; the provider keeps the others. Where it does not, the whole
conversation is sent again, without effect on the run: it has its own transcript.

See: docs/protocol/agent.md#requests-to-the-model.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from hearthnet.agent.loop.events import (
    AskModel,
    CallComplete,
    ModelDone,
    ModelEvent,
    ModelFailed,
    TextDelta,
    VendorData,
    model_event,
)
from hearthnet.agent.loop.state import RunState
from hearthnet.agent.runtime.ports import BusPort, Clock
from hearthnet.agent.tools.result_text import DEFINITION as READER
from hearthnet.agent.tools.toolbox import native
from hearthnet.bus.routing.session_affinity import LONGEST_NAME
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError, Unavailable

OnEvent = Callable[[ModelEvent], Awaitable[None]]
CHAT: Final = "llm.chat@2.0"
MAX_TURN_BYTES: Final = 8 << 20
"""The most bytes, about, that are kept of one turn; no sound model sends more."""
_LAST: Final = (ModelDone, ModelFailed)
_ENCODE: Final = msgspec.json.Encoder().encode
_log: Final = logging.getLogger(__name__)


def pop_thread_length(fields: dict[str, Any], messages: list[dict[str, Any]]) -> int:
    """Remove and return `thread_length`: the number of `messages` that the provider keeps.

    Raises:
        HearthNetError: `bad_request` if it is not below the number of messages (all must be here to be sent
            again), or if there is no thread.
    """
    kept = fields.pop("thread_length", 0)
    if not isinstance(kept, int) or not 0 <= kept < len(messages) or (kept and "thread_id" not in fields):
        raise HearthNetError(
            "bad_request",
            "thread_length counts those of the messages that a thread_id keeps; send the whole conversation",
            details={"path": "/input/thread_length"},
        )
    return kept


def session_of(request: dict[str, Any]) -> str:
    """Return the key that routes the turns of a thread to one process; empty without a thread."""
    thread = str(request["input"].get("thread_id", ""))
    return thread if len(thread) <= LONGEST_NAME else content_hash(thread.encode())[-LONGEST_NAME:]


def _size(event: ModelEvent) -> int:
    """Return the approximate number of bytes kept for an event."""
    match event:
        case TextDelta():
            return len(event.text)
        case VendorData():
            return len(_ENCODE(event.data))
        case CallComplete():
            return len(_ENCODE(event.arguments))
    return 0


async def prewarm(bus: BusPort, body: dict[str, Any], token: str) -> None:
    """Send a request of `llm.chat` that has no answer. Raises the model's errors."""
    body = {**body, "input": {**body["input"], "stream": True}}
    async with bus.stream(CHAT, body, token=token, session=session_of(body)) as frames:
        async for frame in frames:
            if frame.event == "error":
                raise HearthNetError.from_body(frame.data)


class ModelClient:
    """The model of one run.

    `request` is the body of `llm.chat` without messages and tool choice.
    """

    def __init__(
        self,
        bus: BusPort,
        request: dict[str, Any],
        state: RunState,
        clock: Clock,
        token: Callable[[], str],
    ) -> None:
        """Create the model of a run.

        `token` returns the token for each turn; where it is empty, the node's own key counts.
        """
        self._bus = bus
        self._token = token
        self._request = request
        self._state = state
        self._clock = clock

    async def turn(self, asked: AskModel, on_event: OnEvent) -> None:
        """Run one turn of the model; `on_event` receives its events.

        The last event is `ModelDone` or `ModelFailed`.
        """
        kept = self._state.thread_kept
        try:
            try:
                await self._stream_turn(asked, kept, on_event)
            except HearthNetError as refused:
                if refused.code != "thread_missing" or not kept:
                    raise
                await self._stream_turn(asked, 0, on_event)
            return
        except HearthNetError as raised:
            error = raised
        except Exception:
            incident = ids.new_ulid()
            _log.exception("the model's turn in run %s broke [%s]", self._state.run, incident)
            error = HearthNetError("internal_error", f"unexpected; look in the log for {incident}")
        await on_event(ModelFailed(now=self._clock.now_ms(), error=error.to_body()))

    async def _stream_turn(self, asked: AskModel, kept: int, on_event: OnEvent) -> None:
        body, session = self._body(asked, kept), session_of(self._request)
        async with self._bus.stream(
            CHAT, body, token=self._token(), run=self._state.run, session=session
        ) as stream:
            size = 0
            async for frame in stream:
                event = model_event(frame.event, frame.data, self._clock.now_ms())
                if event is None:
                    continue
                size += _size(event)
                if size > MAX_TURN_BYTES:
                    raise HearthNetError(
                        "payload_too_large", f"the model said more than {MAX_TURN_BYTES >> 20} MB in one turn"
                    )
                if isinstance(event, ModelFailed) and event.error.get("error") == "thread_missing":
                    raise HearthNetError.from_body(event.error)
                await on_event(event)
                if isinstance(event, _LAST):
                    return
        raise Unavailable("the model's stream ended before it was done; ask again", rule="stream_broken")

    def _body(self, asked: AskModel, kept: int) -> dict[str, Any]:
        fields = {**self._request["input"], "messages": asked.messages[kept:], "stream": True}
        if "thread_id" in fields:
            fields["thread_length"] = kept
        if "tools" in fields:
            fields["tool_choice"] = asked.tool_choice
            if self._state.results:
                fields["tools"] = [*fields["tools"], native(READER)]
        return {**self._request, "input": fields}
