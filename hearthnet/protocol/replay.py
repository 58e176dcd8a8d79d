"""Freshness: each frame is accepted once, and only near the time at which it was made.

    older or newer than the window                   stale
    its id is remembered                             replayed
    made before the time up to which the sender's
    ids had to be forgotten for lack of room         crowded
    else                                             fresh, and its id is remembered

Each sender has room for `MOST_IDS` ids. A sender that exceeds this inside the window displaces its own oldest
ids only, and its frames made up to then are refused from then on: no id is forgotten whose frame could still
be fresh (docs/decisions/0136).

See: docs/protocol/frames.md#replay-window, docs/protocol/frames.md#clock-rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

WINDOW_MS: Final = 60_000
MOST_IDS: Final = 16_384
"""Ids per sender, 2.4 MB: at 10,000 frames per second more than a second and a half."""
STRANGERS: Final = ""
"""The one sender under which all unknown nodes are counted: keys are free, and each would get its own room.
"""
Verdict = Literal["fresh", "stale", "replayed", "crowded"]
_SLICE: Final = 8
"""Ids are forgotten in slices of 2^8 ms."""
_SWEEP_MS: Final = 8_000


@dataclass(slots=True)
class _Seen:
    """The ids of one sender; frames made before `floor_ms` are no longer accepted."""

    floor_ms: int = 0
    ids: set[str] = field(default_factory=set)
    slices: dict[int, list[str]] = field(default_factory=dict)
    swept_ms: int = 0

    def forget(self, number: int) -> None:
        """Forget the ids of one slice."""
        self.ids.difference_update(self.slices.pop(number))

    def make_room(self) -> None:
        """Forget the oldest slice, and accept no more frames from its time."""
        oldest = min(self.slices)
        self.forget(oldest)
        self.floor_ms = max(self.floor_ms, (oldest + 1) << _SLICE)


class ReplayWindow:
    """The ids that this instance received inside the window, by sender.

    An id is remembered for at least one window after the last moment at which its frame would be fresh, so
    that setting the clock back accepts no frame twice.
    """

    def __init__(self, most_ids: int = MOST_IDS) -> None:
        self._most = most_ids
        self._strangers = _Seen()
        self._senders: dict[str, _Seen] = {STRANGERS: self._strangers}
        self._swept_ms = 0

    def __len__(self) -> int:
        """Return the number of remembered ids."""
        return sum(len(seen.ids) for seen in self._senders.values())

    def check(self, sender: str, frame_id: str, time_ms: int, now_ms: int) -> Verdict:
        """Check a frame that `sender` made at `time_ms`, and remember the id of a fresh one."""
        if abs(now_ms - time_ms) > WINDOW_MS:
            return "stale"
        seen = self._senders.get(sender) or self._newcomer(sender, now_ms)
        if frame_id in seen.ids or frame_id in self._strangers.ids:
            return "replayed"
        if abs(now_ms - seen.swept_ms) >= _SWEEP_MS:
            self._sweep(seen, now_ms)
        if len(seen.ids) >= self._most:
            seen.make_room()
        if time_ms < seen.floor_ms:
            return "crowded"
        seen.ids.add(frame_id)
        made = time_ms >> _SLICE
        if made in seen.slices:
            seen.slices[made].append(frame_id)
        else:
            seen.slices[made] = [frame_id]
        return "fresh"

    def wait_ms(self, sender: str, time_ms: int) -> int:
        """Return by how much later than `time_ms` a frame of `sender` must be made to be accepted."""
        seen = self._senders.get(sender)
        return 0 if seen is None else max(0, seen.floor_ms - time_ms)

    def _newcomer(self, sender: str, now_ms: int) -> _Seen:
        """Make room for one more sender, and forget the senders without remembered ids.

        It may have been a stranger a moment before, so the strangers' floor applies to it too.
        """
        if abs(now_ms - self._swept_ms) >= WINDOW_MS:
            self._swept_ms = now_ms
            for name, seen in list(self._senders.items()):
                self._sweep(seen, now_ms)
                if not seen.ids and name != STRANGERS and seen.floor_ms <= now_ms - WINDOW_MS:
                    del self._senders[name]
        made = self._senders[sender] = _Seen(self._strangers.floor_ms)
        return made

    def _sweep(self, seen: _Seen, now_ms: int) -> None:
        seen.swept_ms = now_ms
        last = (now_ms - 2 * WINDOW_MS) >> _SLICE
        for number in [number for number in seen.slices if number < last]:
            seen.forget(number)
