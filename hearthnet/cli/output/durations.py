"""Times and lengths of time for people, and their input."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

import click

_SPAN: Final = re.compile(r"(\d{1,7})\s*(s|m|min|h|d)?")
_UNITS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def format_time(ms: int, now_ms: int) -> str:
    """Return `ms` since 1970 in local time, as exactly as a person needs it.

    `today 14:05`, `yesterday 09:12`, `3 Nov 18:40`, `3 Nov 2025`.
    """
    then, now = datetime.fromtimestamp(ms / 1000), datetime.fromtimestamp(now_ms / 1000)
    near = {-1: "yesterday", 0: "today", 1: "tomorrow"}.get((then.date() - now.date()).days)
    if near is not None:
        return f"{near} {then:%H:%M}"
    day = f"{then.day} {then:%b}"
    if abs(then - now) < timedelta(days=300):
        return f"{day} {then:%H:%M}"
    return f"{day} {then.year}"


class Span(click.ParamType[int]):
    """A length of time on the command line, such as `90m`, `24h` or `7d`, as whole seconds."""

    name = "span"

    def __init__(self, least: int, most: int) -> None:
        """Set the limits in seconds, both allowed."""
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds in `value`; a number alone is seconds."""
        if isinstance(value, int):
            return value
        found = _SPAN.fullmatch(str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is no length of time; write it like 90m, 24h or 7d", param, ctx)
        seconds = int(found[1]) * _UNITS[found[2] or "s"]
        if not self._least <= seconds <= self._most:
            bounds = f"{format_duration(self._least)} to {format_duration(self._most)}"
            self.fail(f"{value!r} is outside what is allowed, {bounds}", param, ctx)
        return seconds


def format_duration(seconds: int) -> str:
    """Return `seconds` in the largest exact unit: `90 min`, `24 h`, `7 d`; days from two on."""
    for unit, factor in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds % factor == 0 and seconds >= factor * (2 if unit == "d" else 1):
            return f"{seconds // factor} {unit}"
    return f"{seconds} s"
