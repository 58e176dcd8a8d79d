"""Traces: what every call leaves in its process, and how the steps of several processes make one trace.

Nothing here waits or writes. The newest 10,000 entries of a process are kept (conventions.md 16); the step
that the running code belongs to is a context variable, so that a handler's own calls continue its caller's
trace. Where spans are exported, the exporter hears of each entry when it ends (hearthnet/telemetry).
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from itertools import count, islice
from time import perf_counter_ns, time_ns
from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet.telemetry.entry import NO_SPAN, Entry, Side
from hearthnet.wire import traceparent
from hearthnet.wire.header import Header

KEPT: Final = 10_000
"""Entries of one process."""
UNTRACED: Final = "node.trace.list@1.0"
"""Who looks at the traces leaves none: following them would push everything else out."""
CANCELLED: Final = "cancelled"
_LONGEST_NAME: Final = 140
_EPOCH_NS: Final = 1_000_000_000
_DRAWN_BYTES: Final = 4096

_current: Final[ContextVar[Entry | None]] = ContextVar("hearthnet_step", default=None)
"""The step that the running code belongs to."""
_spans: Final[list[str]] = []
"""Ids of spans, 16 hexadecimal digits each, drawn in blocks: asking the system for each costs more."""
# A child must not draw what its parent draws.
os.register_at_fork(after_in_child=_spans.clear)


def _new_span() -> str:
    """The id of a span; other threads, with a bus of their own, may take of the same store at any moment."""
    try:
        return _spans.pop()
    except IndexError:
        digits = os.urandom(_DRAWN_BYTES).hex()
        first, *others = (digits[at : at + 16] for at in range(0, len(digits), 16))
        _spans.extend(others)
        return first


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
        step = _current.get()
        above = self._root() if step is None else below(step)
        span = _new_span()
        return Entry("caller", capability, above, span, run, self._epoch_ns, perf_counter_ns())

    def serving(self, header: Header, bytes_in: int) -> Entry:
        """A call to this process begins; it belongs to its caller's step, where the header names one."""
        said = header.traceparent
        return Entry(
            "provider",
            header.capability[:_LONGEST_NAME],
            (traceparent.read(said) if said else "") or self._root(),
            _new_span(),
            header.run[:_LONGEST_NAME],
            self._epoch_ns,
            perf_counter_ns(),
            header.sender,
            header.id,
            bytes_in,
            0,
            1,
            hops=header.hops + 1,
        )

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
        if entry.capability != UNTRACED:
            self.count += 1
            self._ring.append(entry)
            if self.on_end is not None:
                self.on_end(entry)

    @contextlib.contextmanager
    def run(self, name: str, run: str) -> Iterator[Entry]:
        """A step that makes calls and is none: what is called inside is one trace. It ends with the block."""
        step = _current.get()
        above = self._root() if step is None else below(step)
        span = _new_span()
        began = perf_counter_ns()
        entry = Entry("run", name, above, span, run, self._epoch_ns, began, until=limit(), hops=hops())
        token = _current.set(entry)
        try:
            yield entry
        except BaseException as error:
            entry.code = code_of(error)
            raise
        finally:
            entry.until = 0.0
            _current.reset(token)
            self.end(entry)

    def after(self, number: int) -> Iterator[tuple[int, Entry]]:
        """The entries that are kept and come after that number, oldest first, each with its own number."""
        forgotten = self.count - len(self._ring)
        skipped = max(number - forgotten, 0)
        return zip(count(forgotten + skipped + 1), islice(self._ring, skipped, None), strict=False)

    def _root(self) -> str:
        """What stands above the first step of a new trace."""
        trace = _new_span() + _new_span()
        sampled = self.sampled is None or self.sampled(trace)
        return traceparent.write(trace, NO_SPAN, traceparent.SAMPLED if sampled else traceparent.UNSAMPLED)


def below(step: Entry) -> str:
    """The `traceparent` of what is called inside `step`."""
    if step.side != "provider":
        return step.traceparent
    above = step.above
    return f"{above[:36]}{handler_of(step)}{above[52:]}"


def handler_of(step: Entry) -> str:
    """The span of a provider's method; it gets its id when somebody asks for it."""
    if not step.handler:
        step.handler = _new_span()
    return step.handler


def limit() -> float:
    """The loop time by which the calls of the running code have to end, since nobody waits any longer; 0
    where there is none. What a provider's method began and left running has none.
    """
    step = _current.get()
    return 0.0 if step is None else step.until


def hops() -> int:
    """How deep in other calls the calls of the running code lie; 0 where nobody waits for them."""
    step = _current.get()
    return step.hops if step is not None and step.until else 0


def went(path: str) -> None:
    """The call that the running code answers is done in this way: one word of a few, for its metrics."""
    step = _current.get()
    if step is not None and step.side == "provider":
        step.path = path


def handling(entry: Entry, until: float = 0.0) -> Token[Entry | None]:
    """The provider's method begins: what it calls lies under it, and ends at the loop time `until`. To be
    ended with `handled`.
    """
    entry.until = until
    entry.handler_began_ns = perf_counter_ns()
    return _current.set(entry)


def handled(entry: Entry, token: Token[Entry | None]) -> None:
    """The provider's method has ended, in whichever way."""
    entry.until = 0.0
    entry.handler_took_ns = perf_counter_ns() - entry.handler_began_ns
    _current.reset(token)


def code_of(error: BaseException) -> str:
    """What an entry says of how its step ended."""
    if isinstance(error, HearthNetError):
        return error.code
    return "internal_error" if isinstance(error, Exception) else CANCELLED
