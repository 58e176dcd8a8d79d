"""Parser of JSON objects in bytes that arrive in pieces, without I/O.

The objects may be one a line (NDJSON), the items of one array, or a single one over many lines. Between
objects only white space, commas and the brackets of the array are allowed.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, Final

from hearthnet_llm.vendors.json_access import parsed

_MARK: Final = re.compile(r'["{}\\]')
_BETWEEN: Final = re.compile(r"[\s,\[\]]*")


class JsonObjects:
    """Parser of JSON objects, fed with bytes as they arrive."""

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._seen = 0
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
            self._text, self._seen = self._text[end:], 0
            yield value

    def _end(self) -> int:
        """Return the end of the first object of the text, or 0 if it is incomplete."""
        if not self._depth and not self._begins():
            return 0
        text = self._text
        while mark := _MARK.search(text, self._seen):
            self._seen = mark.end()
            sign = mark.group()
            if sign == "\\":
                if self._seen == len(text):
                    self._seen -= 1  # the escaped character has not arrived
                    return 0
                self._seen += 1
            elif sign == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if sign == "{" else -1
                if not self._depth:
                    return self._seen
        self._seen = len(text)
        return 0

    def _begins(self) -> bool:
        """Return whether an object begins, after dropping separators."""
        between = _BETWEEN.match(self._text)
        self._text = self._text[between.end() if between else 0 :]
        if self._text and self._text[0] != "{":
            raise ValueError(f"no JSON object: {self._text[:80]}")
        return bool(self._text)
