"""Waiting for a condition with a deadline, the only way a test here may wait."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

_T = TypeVar("_T")
_PAUSE_SECONDS = 0.01
DEADLINE_SECONDS = 20.0
"""Ends what hangs, also on a busy machine; shorter than the deadline of a call, which must not be its end."""


def wait_for_sync(
    condition: Callable[[], _T | None], deadline_seconds: float = DEADLINE_SECONDS, what: str = ""
) -> _T:
    """The first true value of `condition`, asked over and over; a `TimeoutError` names `what`."""
    end = time.monotonic() + deadline_seconds
    while not (value := condition()):
        if time.monotonic() >= end:
            raise TimeoutError(_complaint(condition, deadline_seconds, what, value))
        time.sleep(_PAUSE_SECONDS)
    return value


@overload
async def wait_for(
    condition: Callable[[], Awaitable[_T | None]], deadline_seconds: float = DEADLINE_SECONDS, what: str = ""
) -> _T: ...
@overload
async def wait_for(
    condition: Callable[[], _T | None], deadline_seconds: float = DEADLINE_SECONDS, what: str = ""
) -> _T: ...
async def wait_for(
    condition: Callable[[], Any], deadline_seconds: float = DEADLINE_SECONDS, what: str = ""
) -> Any:
    """`wait_for_sync` for a running event loop; `condition` may be a coroutine function."""
    end = time.monotonic() + deadline_seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() >= end:
            raise TimeoutError(_complaint(condition, deadline_seconds, what, value))
        await asyncio.sleep(_PAUSE_SECONDS)


def _complaint(condition: object, seconds: float, what: str, value: object) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"waited {seconds:g} s in vain for {name}; it last gave {value!r}"
