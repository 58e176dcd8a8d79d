"""Parser of server-sent events in bytes that arrive in pieces, without I/O.

Only `data:` lines matter here. Lines may end in CR, LF or both; comments, `event:` and `id:` lines are
skipped; a last line without an end counts at the end of the stream. A bare JSON object between events is
returned like an event, because some servers end a stream with such an error.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Final

_FIELD: Final = "data:"


class EventLines:
    """Parser of events, fed with bytes as they arrive; it returns the text of each event."""

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
