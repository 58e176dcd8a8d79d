"""Completion of requests that have only new messages, and storage of answers for the next.

A caller that names a thread gives in `thread_length` the number of messages that it believes to be stored; 0
begins the thread (again) with a whole conversation. If the number differs from the stored one, the error is
`thread_missing`, and the caller sends the whole conversation with 0. Only completed turns are stored; a
principal can only use its own threads.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.threads.store import Row, ThreadsFile

_log = logging.getLogger(__name__)
_SWEEP_SECONDS: Final = 3600.0
_PLACE: Final = re.compile(r"/input/messages/(\d+)")


class Turn(msgspec.Struct, frozen=True):
    """One complete request, of which the first `held` messages were stored in `row`.

    `thread` is None for a request without a thread.
    """

    request: ChatRequest
    principal: str = ""
    thread: str | None = None
    row: Row | None = None
    held: int = 0

    @contextmanager
    def places(self) -> Iterator[None]:
        """Make errors in the block name messages by their index among those that the caller sent."""
        try:
            yield
        except HearthNetError as error:
            raise self._told(error) from error.__cause__

    def _told(self, error: HearthNetError) -> HearthNetError:
        if not self.held or "path" not in error.details:
            return error

        def moved(found: re.Match[str]) -> str:
            place = int(found[1]) - self.held
            return f"/input/messages/{place}" if place >= 0 else "/input/messages"

        return HearthNetError(
            error.code,
            _PLACE.sub(moved, error.message),
            retry_after_ms=error.retry_after_ms,
            details={**error.details, "path": _PLACE.sub(moved, str(error.details["path"]))},
        )


class Threads:
    """The threads of this node."""

    def __init__(self, folder: Path) -> None:
        self._file = ThreadsFile(folder)

    async def follow(self) -> None:
        """Delete expired threads, now and every hour, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self._file.sweep)
            except HearthNetError as error:
                _log.warning("%s", error.message)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def whole(self, principal: str, request: ChatRequest) -> Turn:
        """Return the request with the stored messages of its thread before its own.

        Raises:
            HearthNetError: `thread_missing` if the stored thread differs from the caller's belief;
                `bad_request` for a length without a thread.
        """
        bare = msgspec.structs.replace(request, thread_id=None, thread_length=None)
        if request.thread_id is None:
            if request.thread_length is not None:
                raise HearthNetError(
                    "bad_request",
                    "/input/thread_length: say the thread_id as well",
                    details={"path": "/input/thread_length"},
                )
            return Turn(bare)
        if request.thread_length == 0:
            return Turn(bare, principal, request.thread_id)
        row = await asyncio.to_thread(self._file.read, principal, request.thread_id)
        held = [] if row is None else msgspec.json.decode(row.messages, type=list[Message])
        if row is None or request.thread_length not in (None, len(held)):
            raise _missing(request, len(held))
        return Turn(
            msgspec.structs.replace(bare, messages=[*held, *request.messages]),
            principal,
            request.thread_id,
            row,
            len(held),
        )

    async def keep(self, turn: Turn, answer: Message) -> int | None:
        """Store the turn and its answer; return the number of stored messages, None if not stored."""
        if turn.thread is None:
            return None
        messages = [*turn.request.messages, answer]
        try:
            kept = await asyncio.to_thread(
                self._file.write, turn.principal, turn.thread, msgspec.json.encode(messages), turn.row
            )
        except HearthNetError as error:
            _log.warning("a conversation is not kept: %s", error.message)
            return None
        return len(messages) if kept else None

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._file.close)


def _missing(request: ChatRequest, held: int) -> HearthNetError:
    what = f"holds {held} messages here, not {request.thread_length}" if held else "is not kept here"
    return HearthNetError(
        "thread_missing",
        f"the thread {request.thread_id} {what}; send the whole conversation, with thread_length 0",
        details={"thread_id": request.thread_id, "thread_length": held},
    )
