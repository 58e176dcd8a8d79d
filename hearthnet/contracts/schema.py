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
_MOST_PARTS: Final = 512
_MAX_PATTERN_BYTES: Final = 128 * 1024
"""Maximum size of a compiled pattern. Matching takes linear time, without lookaround and backreferences."""
_MAX_WORK: Final = 5_000_000
"""Maximum product of the weight of a schema from outside and the parts of a value: some 50 ms."""
_TEXT_PART: Final = 64
"""Number of characters of a text that count as one more part."""
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

    __slots__ = ("_max_parts", "_schema", "_validator")

    def __init__(self, schema: Any, weight: int | None = None) -> None:
        from jsonschema_rs import Draft202012Validator, RegexOptions

        options = RegexOptions(size_limit=_MAX_PATTERN_BYTES)
        self._validator = Draft202012Validator(schema, offline=True, pattern_options=options)
        self._schema = schema
        self._max_parts = None if weight is None else _MAX_WORK // max(1, weight)

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is valid; a value that is not JSON is invalid."""
        if self._is_excessive(value):
            return False
        try:
            return self._validator.is_valid(value)
        except ValueError:
            return False

    def errors(self, value: Any) -> list[Problem]:
        """Return the faults of `value`, in the order of the schema; empty if it is valid.

        Of a large value only the first: each error holds a copy of its part of the value, so that collecting
        all of thousands takes minutes.
        """
        if self._is_excessive(value):
            return [Problem("", "size", f"has more than the {self._max_parts} parts that its schema allows")]
        try:
            found = (
                self._validator.iter_errors(value) if _is_smaller(value, _MOST_PARTS) else self._first(value)
            )
            return [_problem(error, self._schema) for error in found]
        except ValueError as error:
            return [Problem("", "type", f"is not JSON: {error}")]

    def _is_excessive(self, value: Any) -> bool:
        return self._max_parts is not None and not _is_smaller(value, self._max_parts)

    def _first(self, value: Any) -> list[ValidationError]:
        from jsonschema_rs import ValidationError

        try:
            self._validator.validate(value)
        except ValidationError as error:
            return [error]
        return []


def _is_smaller(value: Any, parts_allowed: int) -> bool:
    """Return whether `value` has fewer parts; text counts by its length."""
    left, parts = parts_allowed, [value]
    while parts and left > 0:
        part = parts.pop()
        left -= 1 + (len(part) // _TEXT_PART if isinstance(part, str) else 0)
        if isinstance(part, dict | list):
            left -= len(part)
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
        reason = getattr(error, "message", None) or str(error)
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
