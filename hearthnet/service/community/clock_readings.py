"""The decision about a home's time, from the clocks of other homes (no I/O).

    homes      the computer's clock         learned
    none       -                            nothing
    one        agrees with the other        the computer's clock is right
               is before the home's time    the other clock, up to a year later
               else                         the other clock, up to `ALONE_MS` away; else nothing
    more       is before the home's time    the middle of the others' clocks, if two clocks agree on it
               else                         the middle of all clocks, if two agree on it

The homes of one line of invites are one home here, so that inviting adds no voice. The learned time is never
before the last one at which this computer's clock agreed with another home's.

See: docs/protocol/frames.md#clock-rules, docs/decisions/0226.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

NEAR_MS: Final = 60_000
"""Clocks that are no farther from each other agree: frames between their homes are in the window."""
ALONE_MS: Final = 3_600_000
"""The most by which one other home alone corrects a clock that may be right."""
_YEAR_MS: Final = 366 * 24 * 3_600_000
_SLACK_MS: Final = 30_000


class Reading(NamedTuple):
    """The lead of the clock of a home over this computer's in milliseconds; `line` answers for that home."""

    line: str
    ahead_ms: int


class Decision(NamedTuple):
    """`ahead_ms` is the lead of the right time over the computer's clock, None where it stays as it was.

    `homes` were heard; the middle of their clocks is ahead of this computer's by `others_ms`. `is_confirmed`
    is set where the computer's clock agrees with the decision.
    """

    ahead_ms: int | None
    homes: int
    others_ms: int
    is_confirmed: bool


def decide(readings: Iterable[Reading], system_ms: int, home_ms: int, confirmed_ms: int) -> Decision:
    """Decide about the right time.

    `system_ms` is the computer's clock, `home_ms` the home's time, and `confirmed_ms` the last time at which
    the computer's clock agreed with another home, 0 if never.
    """
    lines: dict[str, list[int]] = {}
    for one in readings:
        lines.setdefault(one.line, []).append(one.ahead_ms)
    others = sorted(_middle(clocks) for clocks in lines.values())
    if not others:
        return Decision(None, 0, 0, False)
    middle = _middle(others)
    found = _found(others, home_ms - system_ms)
    if found is not None and system_ms + found < confirmed_ms - _SLACK_MS:
        found = None
    return Decision(found, len(others), middle, found == 0)


def _found(others: list[int], home_ahead_ms: int) -> int | None:
    """Return the lead of the right time over the computer's clock; None if `others` do not show it."""
    is_possible = home_ahead_ms <= _SLACK_MS
    if len(others) == 1:
        return _by_one(others[0], home_ahead_ms, is_possible=is_possible)
    clocks = sorted([*others, 0]) if is_possible else others
    middle = _middle(clocks)
    # Where the computer's clock is before the home's time but agrees with another home, it is one of the two.
    agreeing = sum(abs(one - middle) <= NEAR_MS for one in [*others, 0])
    if agreeing < 2:
        return None
    return 0 if abs(middle) <= NEAR_MS else middle


def _by_one(other: int, home_ahead_ms: int, *, is_possible: bool) -> int | None:
    if abs(other) <= NEAR_MS:
        return 0
    if is_possible:
        return other if abs(other) <= ALONE_MS else None
    return other if home_ahead_ms - _SLACK_MS <= other <= home_ahead_ms + _YEAR_MS else None


def _middle(values: list[int]) -> int:
    """Return the median; of two in the middle the one nearer to 0, the computer's clock."""
    ordered = sorted(values)
    return min(ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2], key=abs)
