"""Which fields of a rebuilt request may differ from the recorded one, and why."""

from __future__ import annotations

import re
from typing import Final

import msgspec

MOST: Final = 10
"""Per vendor, those for all vendors of the wire included."""

NEVER: Final = (
    "messages", "tools", "tool_choice", "functions", "function_call", "system", "contents",
    "systemInstruction", "system_instruction", "toolConfig", "tool_config",
)  # fmt: skip
"""Fields inside which nothing may differ, wherever in a body they stand."""


class Differ(msgspec.Struct, frozen=True):
    """A field that may differ: a dotted path from the top of the body, and all below it; and the reason."""

    path: str
    why: str

    def covers(self, path: str) -> bool:
        """Whether a difference at `path` is meant; Google's fields may be written snake_case as well."""
        camel = re.sub(r"_([a-z])", lambda letter: letter[1].upper(), path)
        return any(
            one == self.path or one.startswith((f"{self.path}.", f"{self.path}[")) for one in (path, camel)
        )


def allowed(table: dict[str, tuple[Differ, ...]], vendor: str) -> tuple[Differ, ...]:
    """The list for one vendor; ValueError for one that is longer or wider than it may be."""
    found = (*table.get("", ()), *(table.get(vendor, ()) if vendor else ()))
    if len(found) > MOST:
        raise ValueError(f"{vendor}: {len(found)} fields may differ; at most {MOST} are allowed")
    for one in found:
        if not one.why or any(step.split("[")[0] in NEVER for step in one.path.split(".")):
            raise ValueError(f"{vendor}: {one.path} may not differ, or says not why")
    return found
