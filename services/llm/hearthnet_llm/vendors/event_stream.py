"""Parser of AWS's event streams (application/vnd.amazon.eventstream), fed with pieces.

It needs `botocore` (the extra `bedrock`) for the framing and its checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet import HearthNetError

if TYPE_CHECKING:
    from botocore.eventstream import EventStreamBuffer

_MISSING: Final = "streams from Amazon Bedrock need botocore; install hearthnet-llm[bedrock]"


class AwsEvent(msgspec.Struct, frozen=True):
    """One frame; `kind` is event, exception or error.

    `type` is, for instance, contentBlockDelta or throttlingException.
    """

    kind: str
    type: str
    payload: bytes


class EventStream:
    """Parser of an event stream, fed with bytes as they arrive."""

    def __init__(self) -> None:
        self._buffer: EventStreamBuffer = _buffer()

    def feed(self, data: bytes) -> Iterator[AwsEvent]:
        """Yield the frames that `data` completes, with verified checksums.

        Raises:
            ValueError: the data is no event stream; nothing may be fed after that.
        """
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
