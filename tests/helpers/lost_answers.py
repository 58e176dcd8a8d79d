"""A store whose answers are lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def losing(publish: Any, count: int, *, written: bool) -> Callable[..., Any]:
    """A `publish` whose first `count` answers are lost, after the message was `written` or before."""
    left = [count]

    async def lose(*given: Any, **more: Any) -> Any:
        if not left[0]:
            return await publish(*given, **more)
        left[0] -= 1
        if written:
            await publish(*given, **more)
        raise TimeoutError

    return lose
