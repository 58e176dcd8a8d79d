"""The frames in which AWS streams (application/vnd.amazon.eventstream), out of bytes that come in pieces.

Needs `botocore` (the extra `bedrock`), which knows the framing and its checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from hearthnet.errors import HearthNetError

if TYPE_CHECKING:
    from botocore.eventstream import EventStreamBuffer

EXTRA = "install the extra hearthnet-llm[bedrock]"


class AwsEvent(msgspec.Struct, frozen=True):
    """One frame: its kind (event, exception or error), its type such as contentBlockDelta, and its body."""

    kind: str
    type: str
    payload: bytes
    message: str = ""


class EventStream:
    """Feed it bytes as they come; gives the frames that are complete and whose checksums are right."""

    def __init__(self) -> None:
        self._buffer: EventStreamBuffer = _new()
        self._bytes = 0

    def feed(self, data: bytes) -> Iterator[AwsEvent]:
        """The frames that `data` completes; `internal_error` for what is no such stream."""
        from botocore.exceptions import EventStreamError  # noqa: F401
