"""JSON objects out of bytes that come in pieces, without I/O: one a line (NDJSON), the items of one array, or
a single one over many lines.

Between objects only white space, commas and the brackets of the array may stand.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, Final

from hearthnet_llm.vendors.values import parsed

_MARK: Final = re.compile(r'["{}\\]')
_BETWEEN: Final = re.compile(r"[\s,\[\]]*")


class JsonObjects:
    """Feed it bytes as they come; gives each object as soon as it is complete.

    Raises ValueError where something else comes, such as HTML; nothing may be fed after that.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._seen = 0
        self._depth = 0
        self._in_string = False

    @property
    def open(self) -> bool:
        """Whether an object has begun and not ended."""
        return self._depth > 0

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The objects that `data` completes."""
        self._text += self._decode(data)
        while end := self._end():
            value = parsed(self._text[:end])
            if not isinstance(value, dict):
                raise ValueError(f"no JSON object: {self._text[:80]}")
            self._text, self._seen = self._text[end:], 0
            yield value

    def _end(self) -> int:
        """Where the first object of the text ends; 0 while it has not."""
        if not self._depth and not self._begins():
            return 0
        text = self._text
        while mark := _MARK.search(text, self._seen):
            self._seen = mark.end()
            sign = mark.group()
            if sign == "\\":
                if self._seen == len(text):
                    self._seen -= 1  # what it escapes is still to come
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
        """Whether an object begins; what stands before it is dropped."""
        between = _BETWEEN.match(self._text)
        self._text = self._text[between.end() if between else 0 :]
        if self._text and self._text[0] != "{":
            raise ValueError(f"no JSON object: {self._text[:80]}")
        return bool(self._text)
