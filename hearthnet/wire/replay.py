"""Freshness: a frame counts once, and only near the time it was made (wire.md, "Frame", freshness)."""

from __future__ import annotations

from typing import Final, Literal

WINDOW_MS: Final = 60_000
Verdict = Literal["fresh", "stale", "replayed"]


class ReplayWindow:
    """The ids seen by this instance inside the window.

    Two generations, each one window long and swapped when the newer has had its time: an id is remembered
    for at
    least one window after the last moment at which its frame would still count as fresh.
    """

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._span_ms = 2 * window_ms
        self._newer: set[str] = set()
        self._older: set[str] = set()
        self._turned_ms = 0

    def judge(self, frame_id: str, time_ms: int, now_ms: int) -> Verdict:
        """Whether a frame made at `time_ms` may count now; a fresh one is remembered."""
        if abs(now_ms - time_ms) > self._window_ms:
            return "stale"
        self._turn(now_ms)
        if frame_id in self._newer or frame_id in self._older:
            return "replayed"
        self._newer.add(frame_id)
        return "fresh"

    def _turn(self, now_ms: int) -> None:
        if now_ms - self._turned_ms >= self._span_ms:
            gone = now_ms - self._turned_ms >= 2 * self._span_ms
            self._older = set() if gone else self._newer
            self._newer = set()
            self._turned_ms = now_ms
