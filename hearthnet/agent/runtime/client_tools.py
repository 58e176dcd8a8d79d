"""Tools that the client runs itself while it is connected.

    client = ClientTools()
    run = executor.open_run(body, stream_to=show, run_tool=client)      # the frame `tool_wanted` goes out
    client.give("call_1", {"colour": "red"})                            # ... and the client answers

A client that sends one request and disconnects (plain HTTP) does not need this: without `run_tool` the run
is suspended with the wanted calls, and is resumed with their results.

See: docs/protocol/agent.md#client-tools.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from hearthnet.agent.tools.types import ClientCallRequest
from hearthnet.core.errors import HearthNetError

_MOST_ENDED: Final = 1024


class ClientResult(msgspec.Struct, frozen=True):
    """The result of a client tool; with `is_error`, the text of its error."""

    content: Any
    is_error: bool = False


class ClientTools:
    """The calls that were handed to one client, and its results."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ClientResult]] = {}
        self._ended: dict[str, str] = {}

    async def __call__(self, wanted: ClientCallRequest) -> ClientResult | None:
        """Wait for the client's result of one call; for `ToolExecutor.open_run(run_tool=...)`."""
        future: asyncio.Future[ClientResult] = asyncio.get_running_loop().create_future()
        self._waiting[wanted.tool_call_id] = future
        how = "late"
        try:
            result = await future
            how = "repeated"
            return result
        finally:
            del self._waiting[wanted.tool_call_id]
            self._end(wanted.tool_call_id, how)

    def give(self, tool_call_id: str, content: Any, *, is_error: bool = False) -> None:
        """Pass in the client's result of one call.

        Raises:
            HearthNetError: `not_found` for a call that was not handed to this client; `bad_request` for one
                that has its result already; `expired` for one that no longer waits.
        """
        future = self._waiting.get(tool_call_id)
        if future is None or future.done():
            raise self._refusal(tool_call_id)
        future.set_result(ClientResult(content, is_error))

    def _refusal(self, tool_call_id: str) -> HearthNetError:
        how = "repeated" if tool_call_id in self._waiting else self._ended.get(tool_call_id)
        details = {"path": "/tool_call_id", "rule": how or "unknown"}
        name = repr(tool_call_id[:80])
        if how == "repeated":
            return HearthNetError("bad_request", f"the call {name} has its result already", details=details)
        if how == "late":
            return HearthNetError("expired", f"the call {name} is no longer waited for", details=details)
        return HearthNetError(
            "not_found",
            f"no call {name} waits for this client; answer the tool_call_id of a tool_wanted frame",
            details=details,
        )

    def _end(self, tool_call_id: str, how: str) -> None:
        self._ended[tool_call_id] = how
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
