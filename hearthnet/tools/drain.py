"""A capability that streams, read to its end and made one result.

See: docs/protocol/agent.md#results-as-the-model-reads-them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.tools.ports import StreamPort

OnProgress = Callable[[dict[str, Any]], None]
MOST_COLLECTED: Final = 64 << 20
"""Bytes of the frames of a tool that streams, of which one result is made."""
MOST_PROGRESS: Final = 1000
"""Progress frames of one call that are passed on, each of at most `MOST_PROGRESS_BYTES`."""
MOST_PROGRESS_BYTES: Final = 4096
RESULT: Final = "result"
"""The event of a frame that is the output of a capability which streams only its progress."""
_ENCODE: Final = msgspec.json.Encoder().encode


async def drain(
    capability: str, opened: StreamPort, on_progress: OnProgress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`{frames, final}` and the meta of what was opened; its progress goes to `on_progress`.

    A frame `result` holds the whole output, which is then all that is given. Raises `payload_too_large` for
    a stream of more than `MOST_COLLECTED` bytes, and what the stream raises.
    """
    frames: list[dict[str, Any]] = []
    final: dict[str, Any] = {}
    result: list[dict[str, Any]] = []
    size = progress = 0
    async with opened as stream:
        async for frame in stream:
            if frame.event == "progress":
                progress += 1
                if progress <= MOST_PROGRESS:
                    on_progress(_bounded(frame.data))
            elif frame.event == "done":
                final = frame.data
            elif frame.event == RESULT:
                result.append(frame.data)
            else:
                size += len(_ENCODE(frame.data))
                if size > MOST_COLLECTED:
                    raise HearthNetError(
                        "payload_too_large",
                        f"{capability} sent more than {MOST_COLLECTED >> 20} MB; ask for less",
                    )
                frames.append({"event": frame.event, "data": frame.data})
    return result[-1] if result else {"frames": frames, "final": final}, final


def _bounded(data: dict[str, Any]) -> dict[str, Any]:
    """What is said of progress; only its numbers where it says too much."""
    if len(_ENCODE(data)) <= MOST_PROGRESS_BYTES:
        return data
    return {name: value for name, value in data.items() if name in ("current", "total")}
