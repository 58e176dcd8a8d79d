"""Traces: what every call leaves in its process, and how the steps of several processes make one trace.

Nothing here waits or writes. The newest 10,000 entries of a process are kept; the step
that the running code belongs to is a context variable, so that a handler's own calls continue its caller's
trace. Where spans are exported, the exporter hears of each entry when it ends (hearthnet/telemetry).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Token
from itertools import count, islice
from time import perf_counter_ns, time_ns
from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet.telemetry.entry import NO_SPAN, Detail, Entry, Side
from hearthnet.telemetry.steps import below, current, new_span
from hearthnet.wire import traceparent
from hearthnet.wire.header import Header

KEPT: Final = 10_000
"""Entries of one process."""
UNTRACED: Final = "node.trace.list@1.0"
"""Who looks at the traces leaves none: following them would push everything else out."""
CANCELLED: Final = "cancelled"
_LONGEST_NAME: Final = 140
_EPOCH_NS: Final = 1_000_000_000


class Traces:
    """The entries of one process, newest last."""

    def __init__(self, kept: int = KEPT) -> None:
        self._ring: deque[Entry] = deque(maxlen=kept)
        self._epoch_ns = time_ns() - perf_counter_ns()
        self._epoch_until_ns = 0
        self._calling = 0
        self.count = 0
        """How many entries there ever were; the number of the newest one."""
        self.in_flight: dict[Side, Callable[[], int]] = {"caller": lambda: self._calling}
        """Who can say how many calls are on their way, by the side of this process."""
        self.dropped: dict[Side, Callable[[], int]] = {}
        """Who can say how many frames were dropped."""
        self.on_end: Callable[[Entry], None] | None = None
        """Hears of every entry; must not block or raise."""
        self.on_selection: Callable[[dict[str, int], list[str]], None] | None = None
        """Hears of every ended run how often its model called which tools, and which others it was shown."""
        self.sampled: Callable[[str], bool] | None = None
        """Whether a trace that begins here is exported, by its id."""

    def calling(self, capability: str, run: str) -> Entry:
        """A call by this process begins; it belongs to the step that the running code belongs to."""
        self._calling += 1
        step = current.get()
        above = self._root() if step is None else below(step)
        span = new_span()
        return Entry("caller", capability, above, span, run, self._epoch_ns, perf_counter_ns())

    def serving(self, header: Header, bytes_in: int) -> Entry:
        """A call to this process begins; it belongs to its caller's step, where the header names one."""
        said = header.traceparent
        return Entry(
            "provider",
            header.capability[:_LONGEST_NAME],
            (traceparent.read(said) if said else "") or self._root(),
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

    def end(self, entry: Entry) -> None:
        """The step is over; keeps its entry."""
        now = perf_counter_ns()
        entry.took_ns = now - entry.began_ns
        # What still runs makes no more steps below it, and entries and ring do not hold each other.
        entry.tracer = None
        if entry.side == "caller":
            self._calling -= 1
        if now > self._epoch_until_ns:
            # A computer may learn the time, or sleep; reading both clocks for each entry would cost more.
            self._epoch_ns = time_ns() - now
            self._epoch_until_ns = now + _EPOCH_NS
        if entry.capability != UNTRACED:
            self.count += 1
            self._ring.append(entry)
            if self.on_end is not None:
                self.on_end(entry)

    def step(self, name: str, run: str, above: str = "", detail: Detail | None = None) -> Entry:
        """A step that is no call of the mesh begins: below `above`, else the running step, else a root."""
        inside = current.get()
        if not above:
            above = self._root() if inside is None else below(inside)
        entry = Entry("run", name, above, new_span(), run, self._epoch_ns, perf_counter_ns(), tracer=self)
        entry.until, entry.hops, entry.detail = limit(), hops(), detail
        return entry

    def fail(self, entry: Entry, error: BaseException) -> None:
        """Notes in which way a step failed, unless that is known more exactly."""
        entry.code = entry.code or code_of(error)

    @contextlib.contextmanager
    def inside(self, entry: Entry) -> Iterator[None]:
        """What is called inside of the block lies below `entry`, which notes an error that ends it."""
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
    def run(self, name: str, run: str, *, above: str = "", detail: Detail | None = None) -> Iterator[Entry]:
        """A step that makes calls and is none: what is called inside is one trace. It ends with the block.

        `above` is the `traceparent` of the step that it continues, where that is not the running one.
        """
        entry = self.step(name, run, above, detail)
        try:
            with self.inside(entry):
                yield entry
        finally:
            self.end(entry)

    def after(self, number: int) -> Iterator[tuple[int, Entry]]:
        """The entries that are kept and come after that number, oldest first, each with its own number."""
        forgotten = self.count - len(self._ring)
        skipped = max(number - forgotten, 0)
        return zip(count(forgotten + skipped + 1), islice(self._ring, skipped, None), strict=False)

    def _root(self) -> str:
        """What stands above the first step of a new trace."""
        trace = new_span() + new_span()
        sampled = self.sampled is None or self.sampled(trace)
        return traceparent.write(trace, NO_SPAN, traceparent.SAMPLED if sampled else traceparent.UNSAMPLED)


def limit() -> float:
    """The loop time by which the calls of the running code have to end, since nobody waits any longer; 0
    where there is none. What a provider's method began and left running has none.
    """
    step = current.get()
    return 0.0 if step is None else step.until


def hops() -> int:
    """How deep in other calls the calls of the running code lie; 0 where nobody waits for them."""
    step = current.get()
    return step.hops if step is not None and step.until else 0


def went(path: str) -> None:
    """The call that the running code answers is done in this way: one word of a few, for its metrics."""
    step = current.get()
    if step is not None and step.side == "provider":
        step.path = path


def handling(entry: Entry, until: float = 0.0) -> Token[Entry | None]:
    """The provider's method begins: what it calls lies under it, and ends at the loop time `until`. To be
    ended with `handled`.
    """
    entry.until = until
    entry.handler_began_ns = perf_counter_ns()
    return current.set(entry)


def handled(entry: Entry, token: Token[Entry | None]) -> None:
    """The provider's method has ended, in whichever way."""
    entry.until = 0.0
    entry.handler_took_ns = perf_counter_ns() - entry.handler_began_ns
    current.reset(token)


def code_of(error: BaseException) -> str:
    """What an entry says of how its step ended."""
    if isinstance(error, HearthNetError):
        return error.code
    return "internal_error" if isinstance(error, Exception) else CANCELLED
