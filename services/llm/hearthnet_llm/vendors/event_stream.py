"""The frames in which AWS streams (application/vnd.amazon.eventstream), out of bytes that come in pieces.

Needs `botocore` (the extra `bedrock`), which knows the framing and its checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet.errors import HearthNetError

if TYPE_CHECKING:
    from botocore.eventstream import EventStreamBuffer

_MISSING: Final = "streams from Amazon Bedrock need botocore; install hearthnet-llm[bedrock]"


class AwsEvent(msgspec.Struct, frozen=True):
    """One frame. `kind` is event, exception or error; `type` is such as contentBlockDelta or
    throttlingException.
    """

    kind: str
    type: str
    payload: bytes


class EventStream:
    """Feed it bytes as they come; gives each frame that is complete and whose checksums are right.

    Raises ValueError for what is no such stream; nothing may be fed after that.
    """

    def __init__(self) -> None:
        self._buffer: EventStreamBuffer = _buffer()

    def feed(self, data: bytes) -> Iterator[AwsEvent]:
        """The frames that `data` completes."""
        from botocore.eventstream import ParserError

        self._buffer.add_data(data)
        while True:
            try:
                message = next(self._buffer, None)
            except (ParserError, KeyError, struct.error) as error:
                raise ValueError(f"no event stream: {error}") from error
            if message is None:
                return
            headers = message.headers
            kind = str(headers.get(":message-type", "event"))
            named = headers.get(":event-type") or headers.get(":exception-type") or headers.get(":error-code")
            said = headers.get(":error-message", "")
            payload = message.payload or str(said).encode()
            yield AwsEvent(kind, str(named or ""), payload)


def _buffer() -> EventStreamBuffer:
    try:
        from botocore.eventstream import EventStreamBuffer
    except ImportError as error:
        raise HearthNetError("not_implemented", _MISSING) from error
    return EventStreamBuffer()
