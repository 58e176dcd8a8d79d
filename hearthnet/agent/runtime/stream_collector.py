"""Reading a streaming capability to its end, as one result.

See: docs/protocol/agent.md#results-as-the-model-reads-them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.agent.runtime.ports import StreamPort
from hearthnet.core.errors import HearthNetError

OnProgress = Callable[[dict[str, Any]], None]
MOST_COLLECTED: Final = 64 << 20
"""The most bytes of frames that are collected into one result."""
MOST_PROGRESS: Final = 1000
"""The most progress frames of one call that are passed on, each of `MOST_PROGRESS_BYTES` at most."""
MOST_PROGRESS_BYTES: Final = 4096
RESULT: Final = "result"
"""The event of a frame that holds the output of a capability which streams only its progress."""
_ENCODE: Final = msgspec.json.Encoder().encode


class Answered(NamedTuple):
    """The answer to a call, with the node and the call of the frame that its provider has signed."""

    output: Any
    meta: dict[str, Any]
    signed_by: str
    entry: str


async def drain(
    capability: str, opened: StreamPort, on_progress: OnProgress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the output and the meta of `collect`."""
    answered = await collect(capability, opened, on_progress)
    return answered.output, answered.meta


async def collect(capability: str, opened: StreamPort, on_progress: OnProgress) -> Answered:
    """Return `{frames, final}` and the meta of a stream; pass its progress to `on_progress`.

    A frame `result` holds the whole output, which then replaces `{frames, final}`. Errors of the stream are
    passed through.

    Raises:
        HearthNetError: `payload_too_large` for a stream of more than `MOST_COLLECTED` bytes.
    """
    frames: list[dict[str, Any]] = []
    final: dict[str, Any] = {}
    result: list[dict[str, Any]] = []
    signed_by = entry = ""
    size = progress = 0
    async with opened as stream:
        async for frame in stream:
            if frame.event == "progress":
                progress += 1
                if progress <= MOST_PROGRESS:
                    on_progress(_bounded(frame.data))
            elif frame.event == "done":
                final, signed_by, entry = frame.data, frame.signed_by, frame.entry
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
    output = result[-1] if result else {"frames": frames, "final": final}
    return Answered(output, final, signed_by, entry)


def _bounded(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a progress frame, reduced to its numbers where it is too large."""
    if len(_ENCODE(data)) <= MOST_PROGRESS_BYTES:
        return data
    return {name: value for name, value in data.items() if name in ("current", "total")}
