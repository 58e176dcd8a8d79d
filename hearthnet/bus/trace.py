"""Traces: what every call leaves in its process, and how the steps of several processes make one trace.

Nothing here waits or writes. The newest 10,000 entries of a process are kept (conventions.md 16); the step
that the running code belongs to is a context variable, so that a handler's own calls continue its caller's
trace. Where spans are exported, the exporter hears of each entry when it ends (hearthnet/telemetry).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from time import perf_counter_ns, time_ns
from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet.telemetry.entry import Entry, Side
from hearthnet.wire import traceparent
from hearthnet.wire.header import Header

KEPT: Final = 10_000
"""Entries of one process."""
UNTRACED: Final = "node.trace.list@1.0"
"""Who looks at the traces leaves none: following them would push everything else out."""
CANCELLED: Final = "cancelled"
_LONGEST_NAME: Final = 140
_BLOCK: Final = 4096
_EPOCH_NS: Final = 1_000_000_000

CURRENT: Final[ContextVar[str]] = ContextVar("hearthnet_traceparent", default="")
"""The `traceparent` of the step that the running code belongs to; empty where it belongs to none."""


_spans: Final[list[str]] = []
"""Ids of spans, 16 hexadecimal digits each, drawn in blocks: asking the system for each costs more."""


def _more() -> str:
    """Fills the store of ids and returns one."""
    digits = os.urandom(_BLOCK).hex()
    _spans.extend(digits[at : at + 16] for at in range(0, len(digits), 16))
    return _spans.pop()


class Traces:
    """The entries of one process, newest last."""

    def __init__(self, kept: int = KEPT) -> None:
        self._ring: list[Entry | None] = [None] * kept
        self._kept = kept
        self._epoch_ns = time_ns() - perf_counter_ns()
        self._epoch_until_ns = 0
        self.count = 0
        """How many entries there ever were; the number of the newest one."""
        self._calling = 0
        self.in_flight: dict[Side, Callable[[], int]] = {"caller": lambda: self._calling}
        """Who can say how many calls are on their way, by the side of this process."""
        self.dropped: dict[Side, Callable[[], int]] = {}
        """Who can say how many frames were dropped."""
        self.on_end: Callable[[Entry], None] | None = None
        """Hears of every entry; must not block or raise."""
        self.sampled: Callable[[str], bool] | None = None
        """Whether a trace that begins here is exported, by its id."""

    def calling(self, capability: str, run: str) -> Entry:
        """A call by this process begins; it belongs to the step that the running code belongs to."""
        self._calling += 1
        return self._begin("caller", capability, CURRENT.get(), run)

    def serving(self, header: Header, bytes_in: int) -> Entry:
        """A call to this process begins; it belongs to its caller's step, where the header names one."""
        above = traceparent.read(header.traceparent) if header.traceparent else ""
        entry = self._begin("provider", header.capability[:_LONGEST_NAME], above, header.run[:_LONGEST_NAME])
        entry.peer = header.sender
        entry.call = header.id
        entry.bytes_in = bytes_in
        entry.attempts = 1
        return entry

    def end(self, entry: Entry) -> None:
        """The step is over; keeps its entry."""
        now = perf_counter_ns()
        entry.took_ns = now - entry.began_ns
        if entry.side == "caller":
            self._calling -= 1
        if now > self._epoch_until_ns:
            # A computer may learn the time, or sleep; reading both clocks for each entry would cost more.
            self._epoch_ns = time_ns() - now
            self._epoch_until_ns = now + _EPOCH_NS
        if entry.capability == UNTRACED:
            return
        count = self.count
        self._ring[count % self._kept] = entry
        self.count = count + 1
        if self.on_end is not None:
            self.on_end(entry)

    @contextlib.contextmanager
    def run(self, name: str, run: str) -> Iterator[Entry]:
        """A step that makes calls and is none: what is called inside is one trace. It ends with the block."""
        entry = self._begin("run", name, CURRENT.get(), run)
        token = CURRENT.set(entry.traceparent)
        try:
            yield entry
        except BaseException as error:
            entry.code = code_of(error)
            raise
        finally:
            CURRENT.reset(token)
            self.end(entry)

    def after(self, number: int) -> Iterator[tuple[int, Entry]]:
        """The entries that are kept and come after that number, oldest first, each with its own number."""
        for position in range(max(number, self.count - self._kept, 0), self.count):
            entry = self._ring[position % self._kept]
            if entry is not None:
                yield position + 1, entry

    def _begin(self, side: Side, name: str, above: str, run: str) -> Entry:
        span = _spans.pop() if _spans else _more()
        text = f"{above[:36]}{span}{above[52:]}" if above else self._root(span)
        return Entry(side, name, text, above, run, self._epoch_ns, perf_counter_ns())

    def _root(self, span: str) -> str:
        trace = (_spans.pop() if _spans else _more()) + (_spans.pop() if _spans else _more())
        sampled = self.sampled is None or self.sampled(trace)
        return traceparent.write(trace, span, traceparent.SAMPLED if sampled else traceparent.UNSAMPLED)


def handling(entry: Entry) -> Token[str]:
    """The provider's method begins: what it calls lies under it. To be ended with `handled`."""
    entry.handler = span = _spans.pop() if _spans else _more()
    entry.handler_began_ns = perf_counter_ns()
    text = entry.traceparent
    return CURRENT.set(f"{text[:36]}{span}{text[52:]}")


def handled(entry: Entry, token: Token[str]) -> None:
    """The provider's method has ended, in whichever way."""
    entry.handler_took_ns = perf_counter_ns() - entry.handler_began_ns
    CURRENT.reset(token)


def code_of(error: BaseException) -> str:
    """What an entry says of how its step ended."""
    if isinstance(error, HearthNetError):
        return error.code
    return "internal_error" if isinstance(error, Exception) else CANCELLED
