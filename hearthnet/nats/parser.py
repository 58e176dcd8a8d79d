r"""Parser of the NATS client protocol: bytes in, operations out, no I/O.

    MSG <subject> <sid> [reply] <bytes>\r\n<data>\r\n
    HMSG <subject> <sid> [reply] <bytes of headers> <bytes in all>\r\n<headers><data>\r\n
    INFO {...} | PING | PONG | +OK | -ERR '...'

Messages and all other operations are delivered separately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LONGEST_LINE: Final = 1 << 20
"""Maximum length of a line in bytes; the longest is the INFO of a large cluster."""
_NOBODY: Final = b"NATS/1.0 503"

Message = Callable[[int, str, str, bytes, bool], None]
"""Called with the subscription's number, subject, reply subject, data, and True for "no responders"."""

Headed = Callable[[int, str, bytes, bytes], None]
"""Called with the subscription's number, subject, headers as they came, and data."""


class ProtocolError(Exception):
    """Raised when the received bytes are not the NATS protocol."""


class NatsParser:
    """A parser of bytes in pieces of any size.

    It calls `message` for each message, in order, and `line` for every other operation; with `headed`, that
    one for messages with headers. Their exceptions propagate, and the rest of the piece is lost.
    """

    __slots__ = ("_have", "_headed", "_kept", "_line", "_message", "_need")

    def __init__(self, message: Message, line: Callable[[bytes], None], headed: Headed | None = None) -> None:
        self._message = message
        self._line = line
        self._headed = headed
        self._kept: list[bytes] = []
        self._have = 0
        self._need = 0

    def feed(self, data: bytes) -> None:
        """Parse the next bytes.

        Raises:
            ProtocolError: They are malformed; nothing more can be parsed.
        """
        if self._kept:
            self._kept.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = b"".join(self._kept)
            self._kept.clear()
        at, need = self._consume(data)
        if at < len(data):
            self._kept.append(data[at:])
            self._have, self._need = len(data) - at, need

    def _consume(self, data: bytes) -> tuple[int, int]:
        """Parse all complete operations; return the start of the rest, and its minimum size."""
        at, size = 0, len(data)
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                if size - at > LONGEST_LINE:
                    raise ProtocolError("a line without an end")
                return at, size - at + 1
            if data.startswith(b"MSG ", at):
                fields = _words(data[at + 4 : end])
                if not 3 <= len(fields) <= 4:
                    raise ProtocolError("a message without its three words")
                start, length = end + 2, _number(fields[-1])
                after = start + length + 2
                if after > size:
                    return at, after - at
                reply = str(fields[2], "utf-8", "replace") if len(fields) == 4 else ""
                subject = str(fields[0], "utf-8", "replace")
                self._message(_number(fields[1]), subject, reply, data[start : after - 2], False)
                at = after
            elif data.startswith(b"HMSG ", at):
                fields = _words(data[at + 5 : end])
                if not 4 <= len(fields) <= 5:
                    raise ProtocolError("a message with headers without its four words")
                start, length = end + 2, _number(fields[-1])
                after = start + length + 2
                if after > size:
                    return at, after - at
                self._with_headers(fields, data[start : after - 2])
                at = after
            else:
                self._line(data[at:end])
                at = end + 2

    def _with_headers(self, fields: list[bytes], data: bytes) -> None:
        """Deliver a message with headers; without `headed` only the status "no responders" is read."""
        head = _number(fields[-2])
        if self._headed is not None:
            self._headed(_number(fields[1]), str(fields[0], "utf-8", "replace"), data[:head], data[head:])
            return
        reply = str(fields[2], "utf-8", "replace") if len(fields) == 5 else ""
        body = data[head:]
        absent = not body and data.startswith(_NOBODY)
        self._message(_number(fields[1]), str(fields[0], "utf-8", "replace"), reply, body, absent)


def _words(line: bytes) -> list[bytes]:
    """Split at spaces and tabs only: a subject may contain other bytes that Python strips."""
    if b"\t" in line:
        line = line.replace(b"\t", b" ")
    words = line.split(b" ")
    return [word for word in words if word] if b"" in words else words


def _number(field: bytes) -> int:
    if not field.isdigit() or len(field) > 10:
        raise ProtocolError(f"{field[:20]!r} is no number")
    return int(field)
