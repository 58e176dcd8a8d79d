"""Calls of one answer; on Vertex AI their arguments may arrive as values at JSON paths.

That is FunctionCall.partialArgs. A path names one value, such as `$.operations[0].action` or `$['a b'].c`
(RFC 9535, names and indices only). Pieces of a string are joined; any other value arrives complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.frames import Notice, ToolCall
from hearthnet_llm.vendors.calls import CallIds, call, incomplete
from hearthnet_llm.vendors.wire import Json

_STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]]+)
      | \[(?P<index>\d{1,6})\]
      | \[(?P<quote>['"])(?P<quoted>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\]""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_DEEPEST: Final = 64
_MOST_ITEMS: Final = 10_000
_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")


class Calls:
    """Accumulator of calls, fed with each functionCall in order; `name` is the backend's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids = CallIds()
        self._open: _OpenCall | None = None
        self.called = False

    def feed(self, native: Json, signature: Any) -> list[ToolCall | Notice]:
        """Return the calls that one functionCall completes: itself, an earlier one, or none."""
        made: list[ToolCall | Notice] = []
        if native.get("name"):
            made += self.finish()
            self._open = _OpenCall(self._ids.assign(native.get("id")), str(native["name"]), signature)
            if native.get("args") is not None:
                self._open.whole = native["args"]
        opened = self._open
        if opened is None:
            return made
        for part in native.get("partialArgs") or ():
            opened.feed(part)
        if not native.get("willContinue"):
            made.append(self._close(opened))
        return made

    def finish(self) -> list[ToolCall | Notice]:
        """Return a call without a final mark; it is complete if its last value is."""
        return [] if self._open is None else [self._close(self._open)]

    def _close(self, opened: _OpenCall) -> ToolCall | Notice:
        self._open = None
        if opened.broken or opened.unfinished:
            return incomplete(self._name, opened.name)
        native = opened.value if opened.whole is None else opened.whole
        made = call(self._name, opened.id, opened.name, native, opened.signature)
        self.called = self.called or isinstance(made, ToolCall)
        return made


class _OpenCall:
    """A call whose arguments are still arriving: `whole`, or at paths in `value`.

    `broken` tells that an invalid value or path came, `unfinished` that the last string is incomplete.
    """

    def __init__(self, call_id: str, name: str, signature: Any) -> None:
        self.id = call_id
        self.name = name
        self.signature = signature if isinstance(signature, str) else None
        self.whole: Any = None
        self.value: dict[str, Any] = {}
        self.broken = False
        self.unfinished = False

    def feed(self, part: Mapping[str, Any]) -> None:
        """Add one PartialArg."""
        path = _steps(str(part.get("jsonPath", "")))
        kind = next((name for name in _VALUES if name in part), None)
        value = None if kind in (None, "nullValue") else part[kind]
        if path is None or kind is None or not _put(self.value, path, value):
            self.broken = True
        self.unfinished = bool(part.get("willContinue"))


def _steps(path: str) -> list[str | int] | None:
    """Return the member names and indices of `path`, or None if it names no single value."""
    if not path.startswith("$"):
        return None
    found: list[str | int] = []
    place = 1
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None or len(found) == _DEEPEST:
            return None
        place = step.end()
        if step["index"] is not None:
            found.append(int(step["index"]))
        else:
            found.append(step["name"] if step["name"] is not None else _ESCAPED.sub(r"\1", step["quoted"]))
    return found or None


def _put(root: Any, path: list[str | int], value: Any) -> bool:
    """Put `value` at `path`, appending strings; return whether the path fits the structure."""
    here = root
    for place, step in enumerate(path):
        if not _makes_room(here, step):
            return False
        last = place == len(path) - 1
        before = here[step]
        if last:
            here[step] = before + value if isinstance(before, str) and isinstance(value, str) else value
        elif before is None:
            here[step] = [] if isinstance(path[place + 1], int) else {}
        here = here[step]
    return True


def _makes_room(here: Any, step: str | int) -> bool:
    """Return whether `here` can have a member `step`, which is created as None if missing."""
    if isinstance(here, dict) and isinstance(step, str):
        here.setdefault(step, None)
        return True
    if isinstance(here, list) and isinstance(step, int) and step < _MOST_ITEMS:
        here.extend([None] * (step + 1 - len(here)))
        return True
    return False
