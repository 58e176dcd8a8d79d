"""Common to both protocols of Amazon Bedrock: paths of models, and event streams of answers.

Event streams (application/vnd.amazon.eventstream) need `botocore` (the extra `bedrock`) for the framing and
its checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from hearthnet import HearthNetError
from hearthnet.models import reported_error
from hearthnet_llm.vendors import decoding
from hearthnet_llm.vendors.decoding import TextPieces
from hearthnet_llm.vendors.json_access import parsed, refuse
from hearthnet_llm.vendors.wire import Json

if TYPE_CHECKING:
    from botocore.eventstream import EventStreamBuffer

SPELLING: Final = ("escaped", "plain", "slashed", "raw")
"""Variants of the id in the path: all escaped; colons unescaped; the slashes of an ARN unescaped; both."""
_SAFE: Final = {"plain": ":", "slashed": "/", "raw": ":/"}
_MISSING: Final = "streams from Amazon Bedrock need botocore; install hearthnet-llm[bedrock]"


def model_path(model: str, action: str, spelling: str) -> str:
    """Return `/model/{id}/{action}`."""
    return f"/model/{quote(model, safe=_SAFE.get(spelling, ''))}/{action}"


def parse_path(url: str, actions: tuple[str, str], spelling: dict[str, str]) -> tuple[str, str, bool]:
    """Return the base URL, the model's id, and whether the second action (a stream) is meant."""
    base, found, rest = url.partition("/model/")
    written, _, action = rest.rpartition("/")
    if not found or action not in actions:
        refuse("path", f"must be /model/ID/{actions[0]} or /model/ID/{actions[1]}")
    left = "".join(sign for sign in ":/" if sign in written)
    spelling["id"] = next((how for how, safe in _SAFE.items() if safe == left), "escaped")
    return base, unquote(written), action == actions[1]


class AwsPieces:
    """Reader of an answer's objects, as `decoding.JsonStream`.

    `opened` makes an object of the type and the body of one frame; `name` is for messages. A frame with an
    exception is raised as the corresponding error.
    """

    def __init__(self, name: str, opened: Callable[[str, Json], Any]) -> None:
        self.name = name
        self._opened = opened
        self._text: TextPieces | None = None
        self._stream: EventStreamBuffer | None = None

    def feed(self, data: bytes) -> Iterator[Json]:
        """Yield the complete objects, as `JsonStream.feed`.

        A frame is recognised by its first byte, a zero, which begins its length.
        """
        if self._text is None and self._stream is None and data:
            if data[:1] == b"\x00":
                self._stream = _buffer()
            else:
                self._text = TextPieces(self.name)
        if self._text is not None:
            yield from self._text.feed(data)
        elif self._stream is not None:
            yield from self._frames(self._stream, data)

    def finish(self) -> Iterator[Json]:
        """Check the end, as `JsonStream.finish`."""
        if self._text is not None:
            yield from self._text.finish()
        elif self._stream is None:
            raise decoding.broken(self.name)

    def _frames(self, stream: EventStreamBuffer, data: bytes) -> Iterator[Json]:
        """Yield the objects of the frames that `data` completes, with verified checksums."""
        from botocore.eventstream import ParserError

        stream.add_data(data)
        try:
            while (message := next(stream, None)) is not None:
                yield self._value(message.headers, message.payload)
        except (ParserError, KeyError, ValueError, struct.error) as error:
            raise decoding.no_answer(self.name, "") from error

    def _value(self, headers: Json, payload: bytes) -> Json:
        """Return the object of a frame; its type is, for instance, contentBlockDelta."""
        kind = str(
            headers.get(":event-type") or headers.get(":exception-type") or headers.get(":error-code") or ""
        )
        payload = payload or str(headers.get(":error-message", "")).encode()
        body = parsed(payload.decode("utf-8", "replace"))
        body = body if isinstance(body, dict) else {}
        if headers.get(":message-type", "event") != "event":
            words = str(body.get("message") or body.get("Message") or payload.decode("utf-8", "replace"))
            raise reported_error(self.name, None, words, kind)
        made = self._opened(kind, body)
        if not isinstance(made, dict):
            raise decoding.no_answer(self.name, "")
        return made


def _buffer() -> EventStreamBuffer:
    try:
        from botocore.eventstream import EventStreamBuffer
    except ImportError as error:
        raise HearthNetError("not_implemented", _MISSING) from error
    return EventStreamBuffer()
