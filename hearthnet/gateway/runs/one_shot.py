"""One turn for a client that sends one request per turn, as frames.

Closing such a stream early cancels the work behind it; a run that was saved can still be continued. Errors
are raised and are not among the frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.sse import end

if TYPE_CHECKING:
    from hearthnet.agent.runtime.driver import Outcome
    from hearthnet.agent.runtime.ports import Listener
    from hearthnet.bus import Bus
    from hearthnet.gateway.runs.runs import GatewayRun

Frame = dict[str, Any]
Frames = AsyncGenerator[Frame, None]
_MOST_WAITING: Final = 32


async def stream_frames(
    bus: Bus,
    capability: str,
    body: dict[str, Any],
    *,
    token: str,
    timeout_seconds: float | None = None,
    node: str = "",
) -> Frames:
    """Yield the frames of a streaming capability, of `node` if given; raises its error."""
    asked = bus.stream(capability, body, token=token, timeout_seconds=timeout_seconds, node=node)
    async with asked as stream:
        async for frame in stream:
            yield {"event": frame.event, "data": frame.data, "seq": frame.seq}


async def run_frames(opening: Callable[[Listener], Awaitable[GatewayRun]]) -> Frames:
    """Yield the frames of a run, from `iteration` to `done` or `suspended`; raises its error."""
    waiting: asyncio.Queue[Frame] = asyncio.Queue(_MOST_WAITING)
    run = await opening(waiting.put)
    driving = run.drive()
    taking: asyncio.Future[Frame] | None = None
    try:
        while not (driving.done() and waiting.empty()):
            taking = asyncio.ensure_future(waiting.get())
            await asyncio.wait((driving, taking), return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                await end(taking)
                continue
            frame = taking.result()
            if frame["event"] != "error":
                yield frame
        driving.result()
    finally:
        if taking is not None:
            await end(taking)
        await end(driving)


async def collected(frames: Frames) -> tuple[list[Frame], Frame]:
    """Return all frames but the last, and the last; raises the errors of `frames`."""
    every: list[Frame] = []
    async with aclosing(frames):
        async for frame in frames:
            every.append(frame)  # noqa: PERF401
    if not every:
        raise HearthNetError(
            "partition", "the answer ended before it was done; ask again", details={"rule": "stream_broken"}
        )
    return every[:-1], every[-1]


class RunDeduplicator:
    """The runs that are driven for such clients now, so that a repeated request runs once.

    A second request about a run that is being driven waits for the same outcome. The run is stopped when no
    request waits for it any more.
    """

    def __init__(self) -> None:
        self._going: dict[tuple[str, str], asyncio.Future[Outcome]] = {}
        self._waiters: dict[tuple[str, str], int] = {}

    async def outcome(
        self, principal: str, run: str, opening: Callable[[], Awaitable[GatewayRun]]
    ) -> tuple[Outcome, bool]:
        """Return the outcome of the turn, and whether another request began it."""
        key = principal, run
        joined = key in self._going
        if not joined:
            self._going[key] = asyncio.ensure_future(_driven(opening))
            self._waiters[key] = 0
        going = self._going[key]
        self._waiters[key] += 1
        try:
            return await asyncio.shield(going), joined
        finally:
            self._waiters[key] -= 1
            if not self._waiters[key]:
                del self._waiters[key], self._going[key]
                await end(going)


async def _driven(opening: Callable[[], Awaitable[GatewayRun]]) -> Outcome:
    return await (await opening()).drive()
