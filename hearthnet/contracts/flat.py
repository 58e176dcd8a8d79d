"""A contract as a tool: params and input in one flat object, and back (resolutions.md 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hearthnet.errors import HearthNetError

SECTIONS: Final = ("params", "input")


class Flat:
    """The fields of one request schema, by name, whichever section they stand in."""

    def __init__(self, identifier: str, request_schema: Mapping[str, Any]) -> None:
        self._identifier = identifier
        self._section: dict[str, str] = {}
        self._schema: dict[str, Any] = {}
        self._required: list[str] = []
        self._choices: list[list[list[str]]] = []
        """Of each choice between fields, the names that each alternative requires."""
        for section in SECTIONS:
            part = request_schema["properties"][section]
            for name, schema in part["properties"].items():
                if name in self._section:
                    raise HearthNetError(
                        "bad_request", f"{identifier} has {name!r} twice and cannot be a tool"
                    )
                self._section[name], self._schema[name] = section, schema
            self._required += part.get("required", [])
            if "oneOf" in part:
                self._choices.append([one.get("required", []) for one in part["oneOf"]])

    def tool_schema(self, hidden: Iterable[str], bound: Iterable[str] = ()) -> dict[str, Any]:
        """The closed schema of the fields that are neither hidden nor bound; `bad_request` for a name there
        is not. Where hiding leaves one alternative of a choice, its fields are required.
        """
        gone = frozenset(hidden).union(bound)
        for name in gone:
            self._home(name)
        return {
            "type": "object",
            "properties": {
                name: _closed(schema) for name, schema in self._schema.items() if name not in gone
            },
            "required": [name for name in self._required if name not in gone]
            + self._left(gone, frozenset(bound)),
            "additionalProperties": False,
        }

    def _left(self, gone: frozenset[str], bound: frozenset[str]) -> list[str]:
        """What must be there since the other alternatives cannot be taken."""
        found = []
        for choice in self._choices:
            left = [names for names in choice if gone.isdisjoint(names)]
            if len(left) == 1 and bound.isdisjoint(name for names in choice for name in names):
                found += left[0]
        return found

    def split(self, flat: Mapping[str, Any], bound: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """`flat` and `bound` as a request; `bad_request` for an unknown name or one that is bound."""
        body: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for name, value in bound.items():
            body[self._home(name)][name] = value
        for name, value in flat.items():
            if name in bound:
                raise HearthNetError(
                    "bad_request",
                    f"{name!r} is fixed for this tool; leave it out",
                    details={"path": "/" + name},
                )
            body[self._home(name)][name] = value
        return body

    def _home(self, name: str) -> str:
        section = self._section.get(name)
        if section is None:
            raise HearthNetError(
                "bad_request",
                f"{self._identifier} has no field {name!r}; it has {', '.join(self._section) or 'none'}",
                details={"path": "/" + name, "rule": "additionalProperties"},
            )
        return section


def _closed(schema: Any) -> Any:
    """A copy of `schema` in which each object that lists its fields allows no others, unless it says so.

    Only what describes the value itself is closed; what merely tests it (`if`, `contains`, `not`) stays open.
    """
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _closed(inner) for name, inner in schema["properties"].items()}
        if schema.get("type") == "object":
            closed.setdefault("additionalProperties", False)
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            closed[keyword] = [_closed(inner) for inner in schema[keyword]]
    return closed
