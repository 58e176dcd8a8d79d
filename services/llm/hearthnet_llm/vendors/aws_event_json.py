"""Objects of an answer of Amazon Bedrock: frames of an event stream, or one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hearthnet.models import reported_error
from hearthnet_llm.vendors import decoding
from hearthnet_llm.vendors.decoding import TextPieces
from hearthnet_llm.vendors.event_stream import AwsEvent, EventStream
from hearthnet_llm.vendors.json_access import parsed
from hearthnet_llm.vendors.wire import Json


class AwsPieces:
    """Reader of an answer's objects, as `decoding.JsonStream`.

    `opened` makes an object of the type and the body of one frame; `name` is for messages. A frame with an
    exception is raised as the corresponding error.
    """

    def __init__(self, name: str, opened: Callable[[str, Json], Any]) -> None:
        self.name = name
        self._opened = opened
        self._text: TextPieces | None = None
        self._stream: EventStream | None = None

    def feed(self, data: bytes) -> Iterator[Json]:
        """Yield the complete objects, as `JsonStream.feed`.

        A frame is recognised by its first byte, a zero, which begins its length.
        """
        if self._text is None and self._stream is None and data:
            if data[:1] == b"\x00":
                self._stream = EventStream()
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

    def _frames(self, stream: EventStream, data: bytes) -> Iterator[Json]:
        try:
            for event in stream.feed(data):
                yield self._value(event)
        except ValueError as error:
            raise decoding.no_answer(self.name, "") from error

    def _value(self, event: AwsEvent) -> Json:
        body = parsed(event.payload.decode("utf-8", "replace"))
        body = body if isinstance(body, dict) else {}
        if event.kind != "event":
            said = str(body.get("message") or body.get("Message") or event.payload.decode("utf-8", "replace"))
            raise reported_error(self.name, None, said, event.type)
        made = self._opened(event.type, body)
        if not isinstance(made, dict):
            raise decoding.no_answer(self.name, "")
        return made
