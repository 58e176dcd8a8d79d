"""Compiled JSON Schemas (2020-12): a fast check, and the faults of a refused value.

One validator does both (docs/decisions/0003): a second one, used only after a failure, would cost its import
at the worst moment and run foreign patterns on an engine without a limit. References outside a schema are
refused, never fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsonschema_rs import ValidationError

_LONGEST: Final = 240
"""Maximum length of a message in characters; its middle is cut out, which is the refused value."""
_MOST_PARTS: Final = 32
"""Maximum number of parts of a value of which all faults are listed: with alternatives each takes 1 ms."""
_MOST_ITEMS: Final = 4_096
"""Number of items, in the order of the value, among which the first fault of a large value is looked for."""
_MOST_COPIED: Final = 4_096
"""Maximum number of parts that an error may copy: one error for each alternative, 30 us for 1,000 parts."""
_MAX_PATTERN_BYTES: Final = 1024 * 1024
"""Maximum size of a compiled pattern. Matching takes linear time, without lookaround and backreferences."""
_MAX_SUPPLIED_PATTERN_BYTES: Final = 16 * 1024
"""The same in a schema of a neighbour: the time for a character grows with it, to 1.2 us."""
_MAX_WORK: Final = 4_000_000
"""Maximum product of the weight of a schema from outside and the parts of a value: up to 0.3 s."""
_MAX_ERROR_WORK: Final = 20_000
"""The same for listing the faults, which copies a part of the value for each branch of the schema."""
_TEXT_PART: Final = 64
"""Number of characters of a text that count as one more part."""
_ALTERNATIVES: Final = frozenset({"anyOf", "oneOf"})
_OF_SHORT: Final = frozenset({"const", "contains", "enum", "minItems"})
"""Errors that a list may have because its end was cut off."""
_WRONG_KIND: Final = frozenset({"type", "const", "enum"})


class Problem(NamedTuple):
    """One fault of a value."""

    path: str
    """JSON pointer into the value, empty for the whole value."""
    rule: str
    """The keyword of the schema that refused the value, such as `maximum`."""
    message: str


class SchemaCheck:
    """A compiled schema; build it with `compile_schema` and keep it."""

    __slots__ = ("_schema", "_validator", "_weight")

    def __init__(self, schema: Any, weight: int | None = None) -> None:
        from jsonschema_rs import Draft202012Validator, RegexOptions

        limit = _MAX_PATTERN_BYTES if weight is None else _MAX_SUPPLIED_PATTERN_BYTES
        options = RegexOptions(size_limit=limit)
        self._validator = Draft202012Validator(schema, offline=True, pattern_options=options)
        self._schema = schema
        self._weight = weight

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is valid; a value that is not JSON is invalid."""
        if self._exceeds(value, _MAX_WORK):
            return False
        try:
            return self._validator.is_valid(value)
        except ValueError:
            return False

    def errors(self, value: Any) -> list[Problem]:
        """Return the faults of `value`, in the order of the schema; empty if it is valid.

        Of a large value those of the first list item that has one, or only that it does not fit: each error
        holds a copy of its part of the value, and each alternative of the schema has errors of its own, so
        that 570 KB of malformed parts of a message took 65 s and 5.3 GB.
        """
        if self._exceeds(value, _MAX_WORK):
            return [Problem("", "size", "has more parts than may be checked with its schema")]
        try:
            if self._validator.is_valid(value):
                return []
            return self._faults(value)
        except ValueError as error:
            return [Problem("", "type", f"is not JSON: {error}")]
        except RecursionError:  # of the copies that are made to find the fault
            return [Problem("", "type", "is nested too deeply")]

    def _faults(self, value: Any) -> list[Problem]:
        """Return the faults of an invalid `value`, at most as many as may be looked for."""
        if not self._exceeds(value, _MAX_ERROR_WORK) and _is_smaller(value, _MOST_PARTS):
            found = list(self._validator.iter_errors(value))
        elif not _has_alternatives(self._schema):
            found = self._first(value)
        else:
            found = [] if self._exceeds(value, _MAX_ERROR_WORK) else self._first_with_alternatives(value)
        problems = [_problem(error, self._schema) for error in found]
        return problems or [Problem("", "schema", "does not fit its schema")]

    def _first_with_alternatives(self, value: Any) -> list[ValidationError]:
        """Return the errors of the first faulty list item; none where finding them costs too much."""
        part = self._up_to_first_fault(value) if _has_few_parts(_beginning(value, _MOST_PARTS)) else value
        if not _has_few_parts(part):
            return []
        errors = self._validator.iter_errors(part)
        return [error for error in errors if error.kind.name not in _OF_SHORT or not _is_cut(error, value)]

    def _up_to_first_fault(self, value: Any) -> Any:
        """Return `value` with its lists cut behind the first item that makes it invalid.

        Items are counted in the order in which they are written; checking a value is cheap, listing faults is
        not. With more than `_MOST_ITEMS` before the fault the value is returned as it is.
        """
        least, most = 0, _MOST_PARTS
        while self._validator.is_valid(_beginning(value, most)):
            if most >= _MOST_ITEMS:
                return value
            least, most = most, 2 * most
        while most - least > 1:
            middle = (least + most) // 2
            if self._validator.is_valid(_beginning(value, middle)):
                least = middle
            else:
                most = middle
        return _beginning(value, most)

    def _exceeds(self, value: Any, work: int) -> bool:
        """Return whether a schema from outside times the parts of `value` is more than `work`."""
        return self._weight is not None and not _is_smaller(value, work // max(1, self._weight))

    def _first(self, value: Any) -> list[ValidationError]:
        from jsonschema_rs import ValidationError

        found = list[ValidationError]()
        try:
            self._validator.validate(value)
        except ValidationError as error:
            found.append(error)
        return found


def _beginning(value: Any, items: int) -> Any:
    """Return a copy of `value` with the first `items` items of its lists, and all members of its objects.

    A list keeps its first item always.
    """
    left = items

    def copied(part: Any) -> Any:
        nonlocal left
        if isinstance(part, dict):
            return {name: copied(inner) for name, inner in part.items()}
        if not isinstance(part, list):
            return part
        kept: list[Any] = []
        for inner in part:
            if left <= 0 and kept:
                break
            left -= 1
            kept.append(copied(inner))
        return kept

    return copied(value)


def _is_cut(error: ValidationError, value: Any) -> bool:
    """Return whether the list with the error has more items in `value`."""
    for step in error.instance_path:
        value = value[step]
    there = error.instance
    return isinstance(value, list) and isinstance(there, list) and len(value) > len(there)


def _has_few_parts(value: Any) -> bool:
    """Return whether `value` has at most `_MOST_COPIED` parts, texts of any length counted as one."""
    left, parts = _MOST_COPIED, [value]
    while parts and left > 0:
        part = parts.pop()
        if isinstance(part, dict | list):
            left -= len(part)
            parts += part.values() if isinstance(part, dict) else part
    return left > 0


def _has_alternatives(schema: Any) -> bool:
    """Return whether an error of `schema` may hold the errors of alternatives."""
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not part.keys().isdisjoint(_ALTERNATIVES):
                return True
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return False


def _is_smaller(value: Any, parts_allowed: int) -> bool:
    """Return whether `value` has fewer parts; texts and names count by their length."""
    left, parts = parts_allowed, [value]
    while parts and left > 0:
        part = parts.pop()
        left -= 1 + (len(part) // _TEXT_PART if isinstance(part, str) else 0)
        if isinstance(part, dict | list):
            left -= len(part)
            if isinstance(part, dict):
                left -= sum(len(name) for name in part if isinstance(name, str)) // _TEXT_PART
            parts += part.values() if isinstance(part, dict) else part
    return left > 0


def compile_schema(schema: Any, weight: int | None = None) -> SchemaCheck:
    """Compile `schema`; with the `weight` of a schema from outside, large values are refused unchecked.

    Raises:
        HearthNetError: `bad_request` if it is not a JSON Schema 2020-12 or has external references.
    """
    try:
        return SchemaCheck(schema, weight)
    except ValueError as error:
        reason = str(getattr(error, "message", None) or error)
        if reason.endswith('is not a "regex"'):
            reason += ", or is too large, or has lookaround or a backreference"
        raise HearthNetError(
            "bad_request", f"not a JSON Schema (2020-12): {_cut(reason)}", rule="schema"
        ) from error


def pointer(path: Sequence[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _problem(error: ValidationError, schema: Any) -> Problem:
    """Convert `error`; of alternatives, take the innermost error of the closest one."""
    here, rule = error.instance_path, error.kind.name
    branches: list[list[ValidationError]] = [
        branch for branch in getattr(error.kind, "context", []) if branch
    ]
    if not branches:
        return Problem(pointer(here), rule, _cut(_wording(error, schema)))
    best = min(branches, key=lambda branch: _distance(branch, here))
    if _distance(best, here)[0]:
        reasons = dict.fromkeys(_wording(branch[0], schema) for branch in branches)
        return Problem(pointer(here), rule, _cut(", and ".join(reasons)))
    return _problem(best[0], schema)


def _distance(branch: list[ValidationError], here: list[str | int]) -> tuple[bool, bool, int]:
    """Rate an alternative: another kind of value, another constant, number of errors."""
    other_kind = any(error.kind.name in _WRONG_KIND and error.instance_path == here for error in branch)
    return other_kind, any(error.kind.name == "const" for error in branch), len(branch)


def _wording(error: ValidationError, schema: Any) -> str:
    """Return the validator's message, or a better one where it lacks necessary facts."""
    kind: Any = error.kind
    if kind.name == "enum":
        return f"{_show(error.instance)} is not one of {', '.join(map(_show, kind.options))}"
    if kind.name == "const":
        return f"{_show(error.instance)} is not {_show(kind.expected_value)}"
    if kind.name == "contains":
        wanted = _at(schema, error.schema_path).get("description")
        return f"no item is {wanted or 'of the kind that the list must contain'}"
    if kind.name == "minItems" and not error.instance:
        return f"the list is empty; it needs at least {kind.limit} item{'s' if kind.limit > 1 else ''}"
    if kind.name == "additionalProperties" and (
        known := _at(schema, error.schema_path[:-1]).get("properties")
    ):
        return f"has no field {' or '.join(map(_show, kind.unexpected))}; it has {', '.join(known)}"
    return error.message


def _at(schema: Any, path: Sequence[str | int]) -> dict[str, Any]:
    """Return the object at a place of `schema`; empty if none, or if a reference leads there."""
    for step in path:
        schema = schema.get(step) if isinstance(schema, dict) else None
    return schema if isinstance(schema, dict) else {}


def _show(value: Any) -> str:
    import json

    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(message: str) -> str:
    if len(message) <= _LONGEST:
        return message
    half = _LONGEST // 2
    return f"{message[:half]} ... {message[-half:]}"
