"""Traces: the entries of a process's calls, linked to those of other processes.

Nothing here waits or writes. The newest 10,000 entries of a process are kept. The step that the running code
belongs to is a context variable, so that a handler's own calls continue its caller's trace. If spans are
exported, the exporter is called with each entry when it ends (hearthnet/telemetry).
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Token
from hashlib import blake2b
from itertools import count, islice
from time import perf_counter_ns, time_ns
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import traceparent
from hearthnet.protocol.header import Header
from hearthnet.telemetry.span import NO_SPAN, Detail, Side, SpanRecord
from hearthnet.telemetry.steps import current, new_span, traceparent_of

MAX_ENTRIES: Final = 10_000
"""Maximum of entries of one process."""
UNTRACED: Final = "node.trace.list@1.0"
"""Calls that list the traces leave no entries: following the traces would push all others out."""
CANCELLED: Final = "cancelled"
_LONGEST_NAME: Final = 140
_EPOCH_NS: Final = 1_000_000_000
_KEY: Final = os.urandom(32)
"""Draws for traces of others; they must not be able to choose an id that a sampler by ratio always takes."""


class Traces:
    """The entries of one process, newest last."""

    def __init__(self, node: str = "") -> None:
        """`node` is this node: its processes decide for each other which traces are exported."""
        self._node = node
        self._ring: deque[SpanRecord] = deque(maxlen=MAX_ENTRIES)
        self._epoch_ns = time_ns() - perf_counter_ns()
        self._epoch_until_ns = 0
        self._calling = 0
        self.count = 0
        """The number of all entries so far, which is the number of the newest one."""
        self.in_flight: dict[Side, Callable[[], int]] = {"caller": lambda: self._calling}
        """Functions that return the number of running calls, by the side of this process."""
        self.dropped: dict[Side, Callable[[], int]] = {}
        """Functions that return the number of dropped frames."""
        self.on_end: Callable[[SpanRecord], None] | None = None
        """Called with every entry; must not block or raise."""
        self.on_selection: Callable[[dict[str, int], list[str]], None] | None = None
        """Called for every ended run with its calls by tool, and the tools shown but not called."""
        self.sampled: Callable[[str], bool] | None = None
        """Returns whether a trace that begins here is exported, by its id."""

    def calling(self, capability: str, run: str) -> SpanRecord:
        """Begin the entry of a call by this process, below the running step."""
        self._calling += 1
        step = current.get()
        above = self._root() if step is None else traceparent_of(step)
        span = new_span()
        return SpanRecord("caller", capability, above, span, run, self._epoch_ns, perf_counter_ns())

    def serving(self, header: Header, bytes_in: int) -> SpanRecord:
        """Begin the entry of a call to this process, below its caller's step if that is named."""
        parent, is_local = header.traceparent, header.sender == self._node
        above = parent and (traceparent.read(parent) if is_local else self.foreign(parent))
        return SpanRecord(
            "provider",
            header.capability[:_LONGEST_NAME],
            above or self._root(),
            new_span(),
            header.run[:_LONGEST_NAME],
            self._epoch_ns,
            perf_counter_ns(),
            header.sender,
            header.id,
            bytes_in,
            0,
            1,
            hops=header.hops + 1,
            tracer=self,
        )

    def end(self, entry: SpanRecord) -> None:
        """End the step and keep its entry."""
        now = perf_counter_ns()
        entry.took_ns = now - entry.began_ns
        # Code that still runs adds no more steps below it, and entries and ring form no cycle.
        entry.tracer = None
        if entry.side == "caller":
            self._calling -= 1
        if now > self._epoch_until_ns:
            # The clock may be set, or the computer sleep; reading both clocks for each entry would cost more.
            self._epoch_ns = time_ns() - now
            self._epoch_until_ns = now + _EPOCH_NS
        if entry.capability != UNTRACED:
            self.count += 1
            self._ring.append(entry)
            if self.on_end is not None:
                self.on_end(entry)

    def step(self, name: str, run: str, above: str = "", detail: Detail | None = None) -> SpanRecord:
        """Begin a step that is not a call: below `above`, else the running step, else as a root."""
        inside = current.get()
        if not above:
            above = self._root() if inside is None else traceparent_of(inside)
        entry = SpanRecord(
            "run", name, above, new_span(), run, self._epoch_ns, perf_counter_ns(), tracer=self
        )
        entry.until, entry.hops, entry.detail = limit(), hops(), detail
        return entry

    def fail(self, entry: SpanRecord, error: BaseException) -> None:
        """Record the error of a step, unless a more exact one is recorded."""
        entry.code = entry.code or code_of(error)

    @contextlib.contextmanager
    def activate(self, entry: SpanRecord) -> Iterator[None]:
        """Make `entry` the running step inside the block, and record an error that ends it."""
        token = current.set(entry)
        try:
            yield
        except BaseException as error:
            self.fail(entry, error)
            raise
        finally:
            entry.until = 0.0
            current.reset(token)

    @contextlib.contextmanager
    def run(
        self, name: str, run: str, *, above: str = "", detail: Detail | None = None
    ) -> Iterator[SpanRecord]:
        """Record a step that makes calls and is not one itself; it ends with the block.

        The calls inside are one trace. `above` is the `traceparent` of the parent if that is not the running
        step.
        """
        entry = self.step(name, run, above, detail)
        try:
            with self.activate(entry):
                yield entry
        finally:
            self.end(entry)

    def after(self, number: int) -> Iterator[tuple[int, SpanRecord]]:
        """Return the kept entries after that number, oldest first, each with its own number."""
        forgotten = self.count - len(self._ring)
        skipped = min(max(number - forgotten, 0), len(self._ring))  # islice takes no number of any size
        return zip(count(forgotten + skipped + 1), islice(self._ring, skipped, None), strict=False)

    def foreign(self, parent: str) -> str:
        """Return the parent that another node or a client names; empty where it is malformed.

        Where spans are exported, the sampler of this process decides about those below it: with the flag of
        others, a stranger could fill the collector past the sampler (docs/decisions/0180).
        """
        above = traceparent.read(parent)
        if not above or self.sampled is None:
            return above
        drawn = blake2b(above[3:35].encode("ascii"), key=_KEY, digest_size=16).hexdigest()
        return traceparent.write(above[3:35], above[36:52], self._flags(drawn))

    def _root(self) -> str:
        """Return the parent of the first step of a new trace."""
        trace = new_span() + new_span()
        return traceparent.write(trace, NO_SPAN, self._flags(trace))

    def _flags(self, trace: str) -> str:
        sampled = self.sampled is None or self.sampled(trace)
        return traceparent.SAMPLED if sampled else traceparent.UNSAMPLED


def limit() -> float:
    """Return the loop time by which calls of the running code must end; 0 if there is none.

    There is none outside of a call, and in code that a handler started and left running.
    """
    step = current.get()
    return 0.0 if step is None else step.until


def hops() -> int:
    """Return the nesting depth of calls of the running code; 0 if no caller waits for them."""
    step = current.get()
    return step.hops if step is not None and step.until else 0


def record_path(path: str) -> None:
    """Record the way of answering the running call: one word of a few, for its metrics."""
    step = current.get()
    if step is not None and step.side == "provider":
        step.path = path


def span_started(entry: SpanRecord, until: float = 0.0) -> Token[SpanRecord | None]:
    """Begin the provider's method; its calls are below it and end at the loop time `until`.

    Must be ended with `handled`.
    """
    entry.until = until
    entry.handler_began_ns = perf_counter_ns()
    return current.set(entry)


def span_ended(entry: SpanRecord, token: Token[SpanRecord | None]) -> None:
    """End the provider's method, whether it succeeded or not."""
    entry.until = 0.0
    entry.handler_took_ns = perf_counter_ns() - entry.handler_began_ns
    current.reset(token)


def code_of(error: BaseException) -> str:
    """Return the code of an error in an entry."""
    if isinstance(error, HearthNetError):
        return error.code
    return "internal_error" if isinstance(error, Exception) else CANCELLED
