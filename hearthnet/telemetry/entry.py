"""What one call leaves behind at each end of it."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

import msgspec

Side = Literal["caller", "provider", "run"]
Kind = Literal["internal", "server", "client"]
NO_SPAN: Final = "0" * 16
"""The span above the first step of a trace."""


class Detail(msgspec.Struct, frozen=True):
    """What a span says besides its call, by OpenTelemetry's conventions.

    Of a provider's entry it describes the span of the method. `name` is empty where it is the capability's;
    `links` are the `traceparent` of spans that it belongs to and does not lie under.
    """

    name: str = ""
    kind: Kind = "internal"
    attributes: dict[str, Any] = {}
    links: tuple[str, ...] = ()


class Tracer(Protocol):
    """Makes the steps of a process, and keeps those that ended."""

    def step(self, name: str, run: str, above: str, detail: Detail) -> Entry: ...
    def fail(self, entry: Entry, error: BaseException) -> None: ...
    def end(self, entry: Entry) -> None: ...


class Entry(msgspec.Struct, gc=False):
    """One step of a trace: a call at its caller, the same call at its provider, or a run of the tool loop.

    Made when it begins and filled in until it ends. Never holds input, output, token or key. What a reader
    wants to see is put together when somebody reads: most entries are seen by nobody.

    `above` is the `traceparent` of the step above, `span` the id of this one. `handler` is the span of the
    provider's method, under which lie the calls that it makes; empty as long as there are none. Times are of
    the steady clock in nanoseconds; with `epoch_ns` added they are since 1970. `code` is empty where it
    worked, `cancelled` where it was stopped. Bytes are those of bodies; `frames` counts those of a stream.
    `until` is the loop time at which its caller gives up, while what it calls has to end by then; else 0.
    `hops` is how deep in other calls lies what it calls; of a call that is made, 0. `path` is which of a few
    ways its provider went, where there are several (`trace.went`). `tracer` is what makes the steps below it,
    None once it has ended.
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
        """What names this step to others."""
        return f"{self.above[:36]}{self.span}{self.above[52:]}"

    @property
    def trace(self) -> str:
        """The id of the trace, 32 hexadecimal digits."""
        return self.above[3:35]

    @property
    def parent(self) -> str:
        """The span above; empty at the root."""
        span = self.above[36:52]
        return "" if span == NO_SPAN else span

    @property
    def sampled(self) -> bool:
        """Whether whoever began the trace wants it exported."""
        return int(self.above[53:], 16) & 1 == 1
