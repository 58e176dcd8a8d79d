"""A contract as a tool: params and input in one flat object, and back.

See: docs/protocol/agent.md#from-a-contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hearthnet.core.errors import HearthNetError

SECTIONS: Final = ("params", "input")
_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_OTHERS: Final = ("additionalProperties", "patternProperties")


class Flat:
    """The fields of one request schema, by name, from both sections."""

    def __init__(self, identifier: str, request_schema: Mapping[str, Any]) -> None:
        self._identifier = identifier
        self._section: dict[str, str] = {}
        self._schema: dict[str, Any] = {}
        self._required: list[str] = []
        self._choices: list[list[list[str]]] = []
        """For each choice between fields, the names that each alternative requires."""
        self._open = ""
        """The section that accepts unnamed fields, if there is one."""
        self._others: dict[str, Any] = {"additionalProperties": False}
        """The keywords for such fields."""
        for section in SECTIONS:
            part = request_schema["properties"][section]
            for name, schema in declared(part).items():
                if name in self._section:
                    raise HearthNetError(
                        "bad_request", f"{identifier} has {name!r} twice and cannot be a tool"
                    )
                self._section[name], self._schema[name] = section, schema
            self._required += _required(part)
            if "oneOf" in part:
                self._choices.append([_required(one) for one in part["oneOf"] if one is not False])
            # Without the keyword, other fields are for later versions of the contract: the tool is closed.
            if part.get("additionalProperties", False) is not False or part.get("patternProperties"):
                self._open = section
                self._others = {key: part[key] for key in _OTHERS if key in part}

    def tool_schema(self, hidden: Iterable[str], bound: Iterable[str] = ()) -> dict[str, Any]:
        """Return the closed schema of the fields that are neither hidden nor bound.

        If hiding leaves one alternative of a choice, its fields are required.

        Raises:
            HearthNetError: `bad_request` if `hidden` or `bound` names an unknown field.
        """
        left_out = frozenset(hidden).union(bound)
        for name in left_out:
            self._home(name)
        required = [name for name in self._required if name not in left_out]
        return {
            "type": "object",
            "properties": {
                name: _closed(schema) for name, schema in self._schema.items() if name not in left_out
            },
            # A field may be required both by the section and by the remaining alternative; names are unique.
            "required": [*dict.fromkeys(required + self._left(left_out, frozenset(bound)))],
            **self._others,
        }

    def _left(self, left_out: frozenset[str], bound: frozenset[str]) -> list[str]:
        """Return the fields required by the only alternative that is left of a choice."""
        found = []
        for choice in self._choices:
            left = [names for names in choice if left_out.isdisjoint(names)]
            if len(left) == 1 and bound.isdisjoint(name for names in choice for name in names):
                found += left[0]
        return found

    def split(self, flat: Mapping[str, Any], bound: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return `flat` and `bound` as a request.

        Raises:
            HearthNetError: `bad_request` for an unknown or bound name in `flat`.
        """
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
        section = self._section.get(name, self._open)
        if not section:
            raise HearthNetError(
                "bad_request",
                f"{self._identifier} has no field {name!r}; it has {', '.join(self._section) or 'none'}",
                details={"path": "/" + name, "rule": "additionalProperties"},
            )
        return section


def declared(schema: Any) -> dict[str, Any]:
    """Return the schema of each property of an object schema, combined schemas included.

    A property of several alternatives may have the values of any of them; the whole schema is checked later.
    A required property without a schema may be anything, and one that is forbidden (`false`) is left out.
    """
    if not isinstance(schema, dict):
        return {}
    own: dict[str, Any] = schema.get("properties", {})
    beside: dict[str, list[Any]] = {}
    for branch in _branches(schema):
        for name, inner in declared(branch).items():
            found = beside.setdefault(name, [])
            if inner not in found:
                found.append(inner)
    named = {name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in beside.items()}
    every = dict.fromkeys((*own, *named, *_required(schema)), True) | named | own
    return {name: inner for name, inner in every.items() if inner is not False}


def _branches(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that apply, or may apply, to the same value as `schema`."""
    for keyword in _COMBINED:
        yield from schema.get(keyword, ())
    yield from (schema[keyword] for keyword in ("then", "else") if keyword in schema)
    yield from schema.get("dependentSchemas", {}).values()


def _required(schema: Any) -> list[str]:
    """Return the properties that are required unconditionally."""
    if not isinstance(schema, dict):
        return []
    names = [*schema.get("required", [])]
    for part in schema.get("allOf", ()):
        names += [name for name in _required(part) if name not in names]
    return names


def _closed(schema: Any) -> Any:
    """Copy `schema` so that objects with listed fields allow no others, unless they say so.

    Only schemas that describe the value itself are closed. Those that merely test it (`if`, `contains`,
    `not`) stay open, and so does an object whose fields are spread over several combined schemas, none of
    which may forbid the fields of another. `true` and `false`, which some models' servers do not accept as
    schemas, become objects.
    """
    if not isinstance(schema, dict):
        return {} if schema else {"not": {}}
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _closed(inner) for name, inner in schema["properties"].items()}
        if schema.get("type") == "object" and declared(schema).keys() <= schema["properties"].keys():
            closed.setdefault("additionalProperties", False)
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and "properties" not in schema:
            closed[keyword] = [_closed(inner) for inner in schema[keyword]]
    return closed
