"""The record of one call at each of its ends."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

import msgspec

Side = Literal["caller", "provider", "run"]
Kind = Literal["internal", "server", "client"]
NO_SPAN: Final = "0" * 16
"""The parent of the first step of a trace."""


class Detail(msgspec.Struct, frozen=True):
    """The properties of a span beyond its call, by OpenTelemetry's conventions.

    In a provider's entry it describes the span of the method. An empty `name` means the capability's; `links`
    are the `traceparent` of related spans that are not its parents.
    """

    name: str = ""
    kind: Kind = "internal"
    attributes: dict[str, Any] = {}
    links: tuple[str, ...] = ()


class Tracer(Protocol):
    """A maker of the steps of a process, which keeps those that ended."""

    def step(self, name: str, run: str, above: str, detail: Detail) -> SpanRecord: ...
    def fail(self, entry: SpanRecord, error: BaseException) -> None: ...
    def end(self, entry: SpanRecord) -> None: ...


class SpanRecord(msgspec.Struct, gc=False):
    """One step of a trace: a call at its caller or at its provider, or a run of the tool loop.

    Made when the step begins and filled in until it ends. Never holds input, output, token or key. Derived
    values are computed on reading, since most entries are never read.

    `above` is the `traceparent` of the parent, `span` the id of this step. `handler` is the span of the
    provider's method, the parent of the calls that it makes; empty until there are any. Times are of the
    steady clock in nanoseconds; plus `epoch_ns` they are since 1970. `code` is empty after success,
    `cancelled` after a cancellation. Bytes are those of bodies; `frames` counts those of a stream. `until` is
    the loop time at which its caller gives up, by which the calls inside it must end; else 0. `hops` is the
    nesting depth of the calls inside it; 0 in the entry of a caller. `path` is the way taken by a provider
    that has several (`trace.went`). `tracer` makes the steps below it; None once it has ended.
    """

    side: Side
    capability: str
    above: str
    span: str
    run: str
    epoch_ns: int
    began_ns: int
    peer: str = ""
    call: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    attempts: int = 0
    frames: int = 0
    code: str = ""
    took_ns: int = 0
    handler: str = ""
    handler_began_ns: int = 0
    handler_took_ns: int = 0
    until: float = 0.0
    hops: int = 0
    path: str = ""
    detail: Detail | None = None
    tracer: Tracer | None = None

    @property
    def traceparent(self) -> str:
        """The `traceparent` that names this step to others."""
        return f"{self.above[:36]}{self.span}{self.above[52:]}"

    @property
    def trace(self) -> str:
        """The id of the trace, 32 hexadecimal digits."""
        return self.above[3:35]

    @property
    def parent(self) -> str:
        """The id of the parent span; empty at the root."""
        span = self.above[36:52]
        return "" if span == NO_SPAN else span

    @property
    def sampled(self) -> bool:
        """True if the trace was begun with the flag for being exported."""
        return int(self.above[53:], 16) & 1 == 1
