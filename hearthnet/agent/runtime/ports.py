"""The ports of a run: bus, person, listener, client, results and clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypedDict, Unpack

from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.tools.providers import Offers
from hearthnet.agent.tools.types import ClientCallRequest, Decision, PendingApproval
from hearthnet.bus.calls.attempt import CallOptions
from hearthnet.bus.calls.gathering import Gathered
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.trust.keys import Identity

Decide = Callable[[PendingApproval], Awaitable[Decision | None]]
"""Requests a decision of a person; returns None where no person can be reached.

Called concurrently when a model makes several calls.
"""


class ResultsPort(Protocol):
    """The store of large results, as `hearthnet.agent.runtime.result_store.HomeResults` implements it."""

    async def put(self, data: bytes, by: str) -> str: ...
    async def read(self, cid: str, offset: int, length: int) -> tuple[bytes, int]: ...


RunTool = Callable[[ClientCallRequest], Awaitable[ClientResult | None]]
"""Has the client run a tool of its own; returns None where it is not connected."""

Listener = Callable[[dict[str, Any]], Awaitable[None]]
"""Takes one frame `{"event", "data", "seq"}`."""


class RunPorts(TypedDict, total=False):
    """The ends of a run beside its bus: its listener, a person who decides, the client with its own tools."""

    stream_to: Listener | None
    decide: Decide | None
    run_tool: RunTool | None


class AnswerPort(Protocol):
    """A reply of the bus."""

    @property
    def output(self) -> Any: ...
    @property
    def meta(self) -> dict[str, Any]: ...
    @property
    def provider(self) -> str: ...
    @property
    def entry(self) -> str: ...


class FramePort(Protocol):
    """A frame of a stream of the bus."""

    @property
    def event(self) -> str: ...
    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def signed_by(self) -> str: ...
    @property
    def entry(self) -> str: ...


StreamPort = AbstractAsyncContextManager[AsyncIterator[FramePort]]
"""A stream of the bus: opened and left as a context manager, read as an iterator."""


class PeerPort(Protocol):
    """The owner of the runs."""

    @property
    def identity(self) -> Identity: ...
    @property
    def community(self) -> str: ...


class BusPort(Offers, Protocol):
    """The part of `hearthnet.bus.bus.Bus` that runs use."""

    @property
    def peer(self) -> PeerPort: ...

    async def call(
        self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]
    ) -> AnswerPort: ...
    async def gather(
        self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]
    ) -> Gathered: ...
    def stream(self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]) -> StreamPort: ...


class Clock:
    """A clock in milliseconds since the epoch that never jumps.

    Correcting the computer's clock must not end a run.
    """

    def __init__(self) -> None:
        self._offset_ms = now_ms() - steady_ms()

    def now_ms(self) -> int:
        """Return the time at which the clock was made plus the time that has passed since."""
        return self._offset_ms + steady_ms()
