"""The JSON objects of an answer in any framing, and the decoder around them, without I/O.

The first byte tells the framing: an object, an array or lines of objects, else server-sent events. HTML and
anything else is no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from hearthnet import HearthNetError
from hearthnet_llm.interface.frames import Frame
from hearthnet_llm.vendors import answer_errors
from hearthnet_llm.vendors.frame_validation import MISSHAPEN, checked
from hearthnet_llm.vendors.json_access import parsed
from hearthnet_llm.vendors.json_objects import JsonObjects
from hearthnet_llm.vendors.sse import EventLines
from hearthnet_llm.vendors.wire import Json

_BLANK = b"\xef\xbb\xbf \t\r\n"
_DONE = "[DONE]"


class JsonStream(Protocol):
    """Parser of objects in bytes; both methods raise `HearthNetError` for an invalid answer."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    def feed(self, data: bytes) -> Iterator[Json]:
        """Yield the objects that `data` completes."""
        ...

    def finish(self) -> Iterator[Json]:
        """Yield the objects that were still open at the end."""
        ...


class ContentAssembler(Protocol):
    """Accumulated objects of one answer; like a `Decoder`, but of objects."""

    def feed(self, value: Json) -> Iterator[Frame]:
        """Yield the frames of one object."""
        ...

    def finish(self) -> Iterator[Frame]:
        """Yield the frames that were still open, and `Done`."""
        ...


class Decoding:
    """A `Decoder` made of a framing and a content; JSON of another form is no answer."""

    def __init__(self, pieces: JsonStream, content: ContentAssembler) -> None:
        self._pieces = pieces
        self._content = content

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes, as `Decoder.feed`."""
        yield from self._sound(self._content.feed(value) for value in self._pieces.feed(data))

    def finish(self) -> Iterator[Frame]:
        """Yield the last frames, as `Decoder.finish`."""
        yield from self._sound(self._content.feed(value) for value in self._pieces.finish())
        yield from self._sound([self._content.finish()])

    def _sound(self, frames: Iterable[Iterator[Frame]]) -> Iterator[Frame]:
        try:
            for some in frames:
                for frame in some:
                    yield checked(frame)
        except MISSHAPEN as error:
            raise answer_errors.no_answer(self._pieces.name, "") from error
        except HearthNetError as error:
            if "path" not in error.details:
                raise
            raise answer_errors.no_answer(self._pieces.name, "") from error  # refused by a reader of requests


class TextPieces:
    """An answer that is text: JSON or server-sent events; `name` is the backend's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._head = b""
        self._events: EventLines | None = None
        self._objects: JsonObjects | None = None
        self._any = False
        self.said_done = False
        """True after the server has sent [DONE]."""

    def feed(self, data: bytes) -> Iterator[Json]:
        """Yield the objects that `data` completes, as `JsonStream.feed`."""
        if self._events is None and self._objects is None:
            self._head += data
            start = self._head.lstrip(_BLANK)
            if not start:
                return
            data, self._head = start, b""
            if start[:1] in b"{[<":
                self._objects = JsonObjects()
            else:
                self._events = EventLines()
        if self._objects is not None:
            yield from self._json(self._objects, data)
        elif self._events is not None:
            yield from self._values(self._events.feed(data))

    def finish(self) -> Iterator[Json]:
        """Yield the last objects, as `JsonStream.finish`."""
        if self._events is not None:
            yield from self._values(self._events.end())
            if not self._any:
                raise answer_errors.no_answer(self.name, "")
        elif self._objects is None or self._objects.open:
            raise answer_errors.broken(self.name)

    def _json(self, objects: JsonObjects, data: bytes) -> Iterator[Json]:
        try:
            yield from objects.feed(data)
        except ValueError as error:
            raise answer_errors.no_answer(self.name, data.decode("utf-8", "replace")) from error

    def _values(self, events: Iterator[str]) -> Iterator[Json]:
        for event in events:
            self._any = True
            if event.strip() == _DONE:
                self.said_done = True
            elif event.strip():
                yield self._value(event)

    def _value(self, text: str) -> Json:
        value = parsed(text)
        if not isinstance(value, dict):
            raise answer_errors.no_answer(self.name, text)
        return value
