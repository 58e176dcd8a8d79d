"""Arguments of a call that come in as values at JSON paths (Gemini on Vertex, FunctionCall.partialArgs).

A path names one value, such as `$.operations[0].action` or `$['a b'].c` (RFC 9535, names and indices only).
A string comes in pieces that belong together; any other value comes whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

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


def steps(path: str) -> list[str | int] | None:
    """The member names and indices of `path`; None where it is no path to one value."""
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


class PartialArguments:
    """The arguments of one call. `broken`: something came that is no value at a path. `open`: the last string
    is not all there yet.
    """

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.broken = False
        self.open = False

    def feed(self, part: Mapping[str, Any]) -> None:
        """Takes one PartialArg."""
        path = steps(str(part.get("jsonPath", "")))
        given = [name for name in _VALUES if name in part]
        if path is None or not given or not _put(self.value, path, _value(part, given[0])):
            self.broken = True
        self.open = bool(part.get("willContinue"))


def _value(part: Mapping[str, Any], name: str) -> Any:
    return None if name == "nullValue" else part[name]


def _put(root: Any, path: list[str | int], value: Any) -> bool:
    """Puts `value` at `path`, a string after what is there; whether the path fits what is there."""
    here = root
    for place, step in enumerate(path):
        if not _makes_room(here, step):
            return False
        last = place == len(path) - 1
        known = here[step]
        if last:
            here[step] = known + value if isinstance(known, str) and isinstance(value, str) else value
        elif known is None:
            here[step] = [] if isinstance(path[place + 1], int) else {}
        here = here[step]
    return True


def _makes_room(here: Any, step: str | int) -> bool:
    """Whether `here` can have a member `step`; it has one then, None if it is new."""
    if isinstance(here, dict) and isinstance(step, str):
        here.setdefault(step, None)
        return True
    if isinstance(here, list) and isinstance(step, int) and step < _MOST_ITEMS:
        here.extend([None] * (step + 1 - len(here)))
        return True
    return False
