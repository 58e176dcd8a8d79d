"""Decoding of answers without I/O: framings, JSON objects, validated frames, and errors.

The first byte tells the framing: an object, an array or lines of objects (NDJSON), else server-sent events.
HTML and anything else is no answer.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec

from hearthnet import HearthNetError, InternalError
from hearthnet_llm.interface.frames import Frame, ServerToolEvent
from hearthnet_llm.vendors.json_access import parsed
from hearthnet_llm.vendors.wire import Json

_BLANK = b"\xef\xbb\xbf \t\r\n"
_DONE = "[DONE]"
MISSHAPEN = (AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError)
"""Exceptions of reading JSON that deviates from the vendor's reference."""
_MARK: Final = re.compile(r'["{}\\]')
_BETWEEN: Final = re.compile(r"[\s,\[\]]*")
_FIELD: Final = "data:"


class JsonStream(Protocol):
    """Parser of objects in bytes; both methods raise `HearthNetError` for an invalid answer."""

    name: str
    """The backend's name."""

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


class Decoder:
    """Decoder of one successful response. Call `feed` with its pieces, then `finish`.

    The last frame is the only `Done`. The division of the body into pieces does not change the frames.

    Raises:
        HearthNetError: after the frames before it, for an error inside the answer, for a body that is not of
            this protocol, and (`finish`) for one that broke off.
    """

    def __init__(self, pieces: JsonStream, content: ContentAssembler) -> None:
        self._pieces = pieces
        self._content = content

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes."""
        yield from self._sound(self._content.feed(value) for value in self._pieces.feed(data))

    def finish(self) -> Iterator[Frame]:
        """Yield the remaining frames, and the last."""
        yield from self._sound(self._content.feed(value) for value in self._pieces.finish())
        yield from self._sound([self._content.finish()])

    def _sound(self, frames: Iterable[Iterator[Frame]]) -> Iterator[Frame]:
        try:
            for some in frames:
                for frame in some:
                    yield checked(frame)
        except MISSHAPEN as error:
            raise no_answer(self._pieces.name, "") from error
        except HearthNetError as error:
            if "path" not in error.details:
                raise
            raise no_answer(self._pieces.name, "") from error  # refused by a reader of requests


class TextPieces:
    """An answer that is text: JSON or server-sent events; `name` is the backend's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._head = b""
        self._events: EventLines | None = None
        self._objects: JsonObjects | None = None
        self._any = False
        self.is_done = False
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
                raise no_answer(self.name, "")
        elif self._objects is None or self._objects.open:
            raise broken(self.name)

    def _json(self, objects: JsonObjects, data: bytes) -> Iterator[Json]:
        try:
            yield from objects.feed(data)
        except ValueError as error:
            raise no_answer(self.name, data.decode("utf-8", "replace")) from error

    def _values(self, events: Iterator[str]) -> Iterator[Json]:
        for event in events:
            self._any = True
            if event.strip() == _DONE:
                self.is_done = True
            elif event.strip():
                yield self._value(event)

    def _value(self, text: str) -> Json:
        value = parsed(text)
        if not isinstance(value, dict):
            raise no_answer(self.name, text)
        return value


def no_answer(model: str, text: str) -> InternalError:
    """Return the error for a successful answer whose body is not in the vendor's form."""
    what = "an HTML page" if text.lstrip()[:1] == "<" else "no JSON object"
    return InternalError(f"{model}: the server answered {what}; check its url in hearthnet.toml")


def broken(model: str) -> InternalError:
    """Return the error for an answer without an end."""
    return InternalError(f"{model}: the server stopped in mid-answer; ask again")


def checked(frame: Frame) -> Frame:
    """Return the frame.

    Raises:
        ValueError: it has values of other types than declared, or a tool without a name.
    """
    if isinstance(frame, ServerToolEvent) and not getattr(frame.part, "name", True):
        raise ValueError("a tool without a name")
    return msgspec.convert(msgspec.to_builtins(frame), type(frame))


def count(value: Any) -> int:
    """Return a number of tokens, 0 for an invalid one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def counted(value: Any) -> int | None:
    """Return a number of tokens, or None without one."""
    return None if value is None else count(value)


class JsonObjects:
    """Parser of JSON objects, fed with bytes as they arrive.

    They may be one a line, the items of one array, or a single one over many lines. Between objects only
    white space, commas and the brackets of the array are allowed.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    @property
    def open(self) -> bool:
        """True inside an object."""
        return self._depth > 0

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the objects that `data` completes.

        Raises:
            ValueError: the data is something else, such as HTML; nothing may be fed after that.
        """
        self._text += self._decode(data)
        while end := self._end():
            value = parsed(self._text[:end])
            if not isinstance(value, dict):
                raise ValueError(f"no JSON object: {self._text[:80]}")
            self._text, self._scanned = self._text[end:], 0
            yield value

    def _end(self) -> int:
        """Return the end of the first object of the text, or 0 if it is incomplete."""
        if not self._depth and not self._begins():
            return 0
        text = self._text
        while mark := _MARK.search(text, self._scanned):
            self._scanned = mark.end()
            sign = mark.group()
            if sign == "\\":
                if self._scanned == len(text):
                    self._scanned -= 1  # the escaped character has not arrived
                    return 0
                self._scanned += 1
            elif sign == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if sign == "{" else -1
                if not self._depth:
                    return self._scanned
        self._scanned = len(text)
        return 0

    def _begins(self) -> bool:
        """Return whether an object begins, after dropping separators."""
        between = _BETWEEN.match(self._text)
        self._text = self._text[between.end() if between else 0 :]
        if self._text and self._text[0] != "{":
            raise ValueError(f"no JSON object: {self._text[:80]}")
        return bool(self._text)


class EventLines:
    """Parser of server-sent events, fed with bytes as they arrive; it returns the text of each.

    Only `data:` lines matter here. Lines may end in CR, LF or both; comments, `event:` and `id:` lines are
    skipped; a last line without an end counts at the end of the stream. A bare JSON object between events is
    returned like an event, because some servers end a stream with such an error.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the events that `data` completes."""
        self._rest += self._decode(data)
        held = self._rest.endswith("\r")
        lines = self._rest.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + ("\r" if held else "")
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[str]:
        """Yield the events that were still open at the end of the stream."""
        rest = self._rest + self._decode(b"", True)
        self._rest = ""
        for line in (*rest.replace("\r", "\n").split("\n"), ""):
            yield from self._line(line)

    def _line(self, line: str) -> Iterator[str]:
        if line.startswith("{"):
            yield line
        elif line.startswith(_FIELD):
            self._data.append(line.removeprefix(_FIELD).removeprefix(" "))
        elif not line and self._data:
            yield "\n".join(self._data)
            self._data = []
