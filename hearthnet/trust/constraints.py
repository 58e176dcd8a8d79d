"""What a token or a standing grant says of the arguments of a call (resolutions.md 66)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet.canonical import canonical_json

_ABSENT: Final = object()
_INPUT: Final = "input."


def violated(constraints: Mapping[str, list[Any]], body: Mapping[str, Any]) -> str | None:
    """The first key whose value in the call `body` is absent or none of those allowed; None where all hold.

    A key names a member of `params`, or with `input.` before it one of `input`. Values are compared as
    canonical JSON: 1 is 1.0, and neither is true.
    """
    for key, allowed in constraints.items():
        value = _value(key, body)
        if value is _ABSENT or canonical_json(value) not in map(canonical_json, allowed):
            return key
    return None


def _value(key: str, body: Mapping[str, Any]) -> Any:
    section, name = ("input", key.removeprefix(_INPUT)) if key.startswith(_INPUT) else ("params", key)
    members = body.get(section)
    return members.get(name, _ABSENT) if isinstance(members, dict) else _ABSENT
