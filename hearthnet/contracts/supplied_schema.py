"""Schemas in contracts that providers supply: how they are made, and the bounds that receivers check.

A contract from another home is data of a stranger. Its schemas have no references, keywords of one list only,
and bounded sizes, so that compiling one takes milliseconds; what a value may cost follows from the weight
(contracts/schema.py). No I/O.

See: docs/contracts.md#schemas-that-providers-supply.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from hearthnet.contracts.schema import compile_schema
from hearthnet.core.errors import HearthNetError

MAX_VALUES: Final = 4_000
"""Maximum number of JSON values in the schemas of one contract."""
MAX_DEPTH: Final = 64
"""Maximum depth of nested JSON values."""
MAX_PATTERNS: Final = 16
"""Maximum number of patterns in the schemas of one contract."""
MAX_PATTERN_CHARACTERS: Final = 256

_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose members are names with a schema each."""
_WITH_SCHEMA: Final = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
)
_WITH_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ASSERTIONS: Final = frozenset(
    {
        "const",
        "dependentRequired",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
        "uniqueItems",
    }
)
_ANNOTATIONS: Final = frozenset(
    {
        "contentEncoding",
        "contentMediaType",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
_CONSTRAINTS: Final = frozenset({"const", "enum", "multipleOf", "pattern", "patternProperties"})
"""Keywords that are left out of a copy with values beyond the bounds."""
_INVERTED: Final = frozenset({"contains", "if", "not", "oneOf"})
"""Keywords that may refuse more values when their schemas refuse fewer."""
_LEFT_OUT: Final = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "additionalItems",
        "dependencies",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Constraints that a contract may not hold; other keywords that are not in `KEYWORDS` constrain nothing."""
KEYWORDS: Final = _BY_NAME | _WITH_SCHEMA | _WITH_SCHEMAS | _ASSERTIONS | _ANNOTATIONS
_DIVISION_WEIGHT: Final = 100
"""Weight of `multipleOf`, which computes exactly."""
_PATTERN_WEIGHT: Final = 1_000
"""Weight of a pattern: matching 64 characters, which count as a part, takes up to 80 us."""
MAX_DIVISOR: Final = 1_000_000
"""Maximum of `multipleOf`."""


class Bounds:
    """What was counted in schemas so far; those of one contract share it.

    `weight` relates to the time that checking a value takes: 1 for each value in a schema, 100 for a
    `multipleOf`, 1,000 for a pattern.
    """

    def __init__(self) -> None:
        self.weight = 0
        self.patterns = 0
        self.values = 0

    def check(self, schema: Any, depth: int = 0) -> None:
        """Check one schema, and count it.

        Raises:
            HearthNetError: `bad_request` for a reference or another keyword that is not in `KEYWORDS`, more
                values, patterns or depth than the bounds allow, a list or object as an alternative of `enum`,
                and a `multipleOf` that is no integer from 1 to `MAX_DIVISOR`.
        """
        self._count(1, depth)
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise _refusal("a schema is an object, true or false")
        for keyword, value in schema.items():
            if keyword in _BY_NAME:
                self._check_names(keyword, value, depth + 1)
            elif keyword in _WITH_SCHEMA:
                self.check(value, depth + 1)
            elif keyword in _WITH_SCHEMAS:
                for inner in value if isinstance(value, list) else ():
                    self.check(inner, depth + 1)
            elif keyword in KEYWORDS:
                self._check_plain(keyword, value, depth + 1)
            else:
                raise _refusal(f"the keyword {keyword[:40]!r} is not among those that a provider may use")

    def _check_names(self, keyword: str, value: Any, depth: int) -> None:
        for name, inner in value.items() if isinstance(value, dict) else ():
            if keyword == "patternProperties":
                self._check_pattern(name)
            self.check(inner, depth + 1)

    def _check_plain(self, keyword: str, value: Any, depth: int) -> None:
        for _ in _values(value, MAX_DEPTH - depth):
            self._count(1, depth)
        if keyword == "pattern":
            self._check_pattern(value)
        elif keyword in ("enum", "const") and not is_scalar_choice(keyword, value):
            raise _refusal(f"{keyword} holds texts, numbers, true, false and null only")
        elif keyword == "multipleOf":
            if not is_divisor(value):
                raise _refusal(f"multipleOf is an integer from 1 to {MAX_DIVISOR}")
            self.weight += _DIVISION_WEIGHT

    def _check_pattern(self, pattern: Any) -> None:
        self.patterns += 1
        self.weight += _PATTERN_WEIGHT
        if self.patterns > MAX_PATTERNS:
            raise _refusal(f"more than {MAX_PATTERNS} patterns")
        if isinstance(pattern, str) and len(pattern) > MAX_PATTERN_CHARACTERS:
            raise _refusal(f"a pattern of more than {MAX_PATTERN_CHARACTERS} characters")

    def _count(self, values: int, depth: int) -> None:
        self.weight += values
        self.values += values
        if self.values > MAX_VALUES:
            raise _refusal(f"more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise _refusal(f"more than {MAX_DEPTH} levels")


def is_scalar_choice(keyword: str, value: Any) -> bool:
    """Return whether the value of `enum` or `const` is compared in constant time."""
    choices = value if keyword == "enum" and isinstance(value, list) else [value]
    return not any(isinstance(choice, list | dict) for choice in choices)


def is_divisor(value: Any) -> bool:
    """Return whether `multipleOf` with this value costs little for every number."""
    return type(value) is int and 1 <= value <= MAX_DIVISOR


def _values(value: Any, depth: int) -> Iterator[None]:
    """Yield once for each JSON value in `value`.

    Raises:
        HearthNetError: `bad_request` for more than `depth` levels.
    """
    if depth < 0:
        raise _refusal(f"more than {MAX_DEPTH} levels")
    yield None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _values(one, depth - 1)


def _refusal(reason: str) -> HearthNetError:
    return HearthNetError("bad_request", f"no schema that a provider may supply: {reason}", rule="schema")


def self_contained(
    raw: Mapping[str, Any], *, max_patterns: int = MAX_PATTERNS, max_values: int = MAX_VALUES
) -> Any:
    """Return a copy of a foreign schema that a contract may hold, with `max_patterns` patterns at most.

    References are replaced by their targets, a recursive one by an unrestricted schema. Keywords that a
    contract may not hold, and patterns and choices beyond the bounds, are left out: the copy accepts what
    `raw` accepts, and more.

    Raises:
        HearthNetError: `bad_request` if a reference leads nowhere, or with more than `max_values` values or
            `MAX_DEPTH` levels.
    """
    return _Reader(raw, max_patterns, max_values).schema(raw, (), 0)


class _Reader:
    """The copying of one schema."""

    def __init__(self, root: Mapping[str, Any], max_patterns: int, max_values: int) -> None:
        self._root = root
        self._left = self._max_values = max_values
        self._patterns_left = max_patterns
        self._loosened = 0
        """Number of constraints that were left out so far."""

    def schema(self, value: Any, within: tuple[str, ...], depth: int) -> Any:
        """Return a copy of a schema; `within` has the references that led to it."""
        self._count(depth)
        if not isinstance(value, dict):
            return value
        own: dict[str, Any] = {}
        for key, item in value.items():
            before = self._loosened
            if key in _LEFT_OUT or (key in _CONSTRAINTS and not self._keeps(key, item)):
                self._loosened += 1
            elif key in KEYWORDS:
                own[key] = self._member(key, item, within, depth + 1)
            if self._loosened > before and key in _INVERTED:
                del own[key]
        if "contains" not in own:
            own.pop("minContains", None)
            own.pop("maxContains", None)
        if "patternProperties" in value and "patternProperties" not in own:
            own.pop("additionalProperties", None)
        reference = value.get("$ref")
        if not isinstance(reference, str):
            return own
        if reference in within:
            self._loosened += 1
            return own
        return _joined(self.schema(self._find(reference), (*within, reference), depth + 1), own)

    def _keeps(self, keyword: str, value: Any) -> bool:
        """Return whether a constraint with this value is within the bounds."""
        match keyword:
            case "multipleOf":
                return is_divisor(value)
            case "pattern":
                return self._keeps_patterns([value])
            case "patternProperties":
                return isinstance(value, dict) and self._keeps_patterns(value)
            case _:
                return is_scalar_choice(keyword, value)

    def _keeps_patterns(self, patterns: Collection[Any]) -> bool:
        """Return whether all `patterns` are usable; those that are not count, since they are compiled."""
        if len(patterns) > self._patterns_left:
            return False
        self._patterns_left -= len(patterns)
        return all(map(_is_usable, patterns))

    def _member(self, key: str, value: Any, within: tuple[str, ...], depth: int) -> Any:
        if key in _BY_NAME and isinstance(value, dict):
            return {name: self.schema(item, within, depth + 1) for name, item in value.items()}
        if key in _WITH_SCHEMAS and isinstance(value, list):
            return [self.schema(item, within, depth + 1) for item in value]
        if key in _WITH_SCHEMA:
            return self.schema(value, within, depth)
        for _ in _values(value, MAX_DEPTH - depth):
            self._count(depth)
        return value

    def _find(self, reference: str) -> Any:
        """Return the target of a reference inside the schema (RFC 6901)."""
        steps = reference.removeprefix("#").split("/")
        place: Any = self._root
        try:
            if not reference.startswith("#") or steps[0]:
                raise KeyError(reference)
            for step in steps[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                place = place[int(name)] if isinstance(place, list) else place[name]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise HearthNetError(
                "bad_request", f"the schema refers to {reference[:80]!r}, which is not in it"
            ) from error
        return place

    def _count(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise _refusal(f"more than {self._max_values} values")
        if depth > MAX_DEPTH:
            raise _refusal(f"more than {MAX_DEPTH} levels")


def _is_usable(pattern: Any) -> bool:
    """Return whether a pattern compiles within the bounds."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARACTERS:
        return False
    try:
        compile_schema({"pattern": pattern}, weight=1)
    except HearthNetError:
        return False
    return True


def _joined(named: Any, own: dict[str, Any]) -> Any:
    """Combine the target of a reference with the keywords beside the reference; both apply."""
    if named is True:
        return own or True
    if not isinstance(named, dict):
        return named
    if own.keys() <= _ANNOTATIONS or named.keys() <= _ANNOTATIONS:
        return {**named, **own}
    return {**own, "allOf": [named, *own.get("allOf", [])]}
