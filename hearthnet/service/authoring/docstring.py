"""The docstring of a function: a summary, a description, and a text for each parameter. Pure.

Parameters are read from an `Args:` section, or from `:param name: text`.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, NamedTuple

_SECTIONS: Final = frozenset({"args:", "arguments:", "parameters:"})
_OTHERS: Final = frozenset({"returns:", "raises:", "yields:", "example:", "examples:", "note:", "notes:"})
_ARGUMENT: Final = re.compile(r"(?P<name>\w+)(?:\s*\([^)]*\))?:\s+(?P<text>\S.*)")
_PARAM: Final = re.compile(r":param\s+(?:[^:]*\s)?(?P<name>\w+):\s*(?P<text>.*)")
_FIELD: Final = re.compile(r":\w+[^:]*:")
_LONGEST_SUMMARY: Final = 160


class Docstring(NamedTuple):
    """The parts of a docstring; `description` is empty where it says no more than `summary`."""

    summary: str
    description: str
    parameters: dict[str, str]


def read_docstring(documented: Any, otherwise: str) -> Docstring:
    """Return the parts of the docstring of `documented`; without one, the summary is `otherwise`."""
    lines = (inspect.getdoc(documented) or otherwise).splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    section = last = ""
    for line in lines:
        text = line.strip()
        form = _ARGUMENT if section == "args" else _PARAM
        if not line[:1].isspace() and text.lower() in _SECTIONS | _OTHERS:
            section, last = ("args" if text.lower() in _SECTIONS else "other"), ""
        elif found := form.fullmatch(text):
            last = found["name"]
            parameters[last] = found["text"]
        elif not text or _FIELD.match(text):
            last = ""
            kept += [""] if not text and not section else []
        elif last:
            parameters[last] += f" {text}"
        elif not section or not line[:1].isspace():
            section = ""
            kept.append(line.rstrip())
    summary = next((line.strip() for line in kept if line.strip()), otherwise)
    description = "\n".join(kept).strip()
    return Docstring(_cut(summary), "" if description == summary else description, parameters)


def _cut(summary: str) -> str:
    """Return the summary, as long as a contract has one."""
    return summary if len(summary) <= _LONGEST_SUMMARY else f"{summary[: _LONGEST_SUMMARY - 3]}..."
