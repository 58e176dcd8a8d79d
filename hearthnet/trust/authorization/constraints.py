"""Limits of a token or a standing grant on the arguments of a call.

See: docs/protocol/tokens.md#scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hearthnet.core.canonical_json import canonical_json

_ABSENT: Final = object()
_INPUT: Final = "input."


class Constraints:
    """The allowed values of some fields, prepared for checking many calls.

    A key names a member of `params`, or with the prefix `input.` one of `input`. Values are compared as
    canonical JSON: 1 equals 1.0, and neither equals true.
    """

    def __init__(self, allowed: Mapping[str, list[Any]]) -> None:
        """Prepare the values of `allowed`, by key.

        Raises:
            HearthNetError: `bad_request` for a value without canonical JSON.
        """
        self._fields = tuple(_field(key, values) for key, values in allowed.items())

    def violated(self, body: Mapping[str, Any]) -> str | None:
        """Return the first key whose value in the call `body` is absent or not allowed, or None."""
        for key, section, name, texts, others in self._fields:
            members = body.get(section)
            value = members.get(name, _ABSENT) if isinstance(members, dict) else _ABSENT
            if type(value) is str:
                # Nearly every constrained value is a name, and equal texts are equal JSON.
                fits = value in texts
            else:
                fits = value is not _ABSENT and canonical_json(value) in others
            if not fits:
                return key
        return None


class _Field(NamedTuple):
    key: str
    section: str
    name: str
    texts: frozenset[str]
    others: frozenset[bytes]


def _field(key: str, values: list[Any]) -> _Field:
    section, name = ("input", key.removeprefix(_INPUT)) if key.startswith(_INPUT) else ("params", key)
    texts = frozenset(value for value in values if isinstance(value, str))
    others = frozenset(canonical_json(value) for value in values if not isinstance(value, str))
    return _Field(key, section, name, texts, others)
