"""The grammar of one call's arguments, in the Lark form of llguidance.

Punctuation is fixed and there is no optional white space, so the model spends its tokens on values. A value
has a bounded JSON schema, or consists of key words: words of the question in their order, of which the model
may skip a few. When a model of this size rephrases freely, it drops the decisive word
in about one question out of six; restricted to the words of the question it does not (docs/models.md has the
figures).

A bounded schema is finite. It is less specific than the tool's schema where a grammar cannot express it, and
never admits a field that the schema lacks: only keywords known to the grammar compiler are kept, and the
generated value is validated with the tool's own schema afterwards. Optional fields are omitted, because a
small model fills them with noise.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError

_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_HEAD: Final = "%llguidance {}"
_MOST_WORDS: Final = 32
_COMPACT: Final = {"whitespace_flexible": False}
Schema = dict[str, Any]

PLAIN: Final = r"^[^\x00-\x1f\x7f-\x9f\\\"`{}<>\[\]|~^#*_=@$%]*$"
"""Ordinary prose: no line ends, no markup, no characters that JSON would escape."""

_NUMBER_LIMITS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COMBINED: Final = ("anyOf", "oneOf")
_INTEGERS: Final = {"minimum": -999_999_999, "maximum": 999_999_999}
_DEPTH: Final = 6
_MOST_PARTS: Final = 4_000
"""Subschemas of one grammar; references make a small schema large."""
_PATTERN_TEXT: Final = 200


class KeyWords(msgspec.Struct, frozen=True):
    """Rules for key words.

    At most `skip` words of the question are left out in a row. With `lower` False its words keep their case.
    """

    skip: int
    lower: bool = True


def of_json(schema: Mapping[str, Any]) -> str:
    """Return the grammar of JSON that fits the bounded `schema`."""
    return f"{_HEAD}\nstart: {_json_rule(schema)}\n"


def of_call(schema: Mapping[str, Any], said: str, key_words: Mapping[str, KeyWords]) -> str:
    """Return the grammar of arguments for the bounded object `schema`.

    The fields in `key_words` hold key words from `said`; if there is one, all fields must be required.
    """
    styles = {name: style for name, style in key_words.items() if name in schema.get("properties", {})}
    words = words_of(said)
    if not styles or not words:
        return of_json(schema)
    start: list[str] = []
    rules: list[str] = []
    for number, (name, part) in enumerate(schema["properties"].items()):
        comma = "," if number else "{"
        start.append(f"{_literal(f'{comma}{json.dumps(name)}:')} f{number}")
        if name in styles:
            rules += _key_word_rules(f"f{number}", words, styles[name])
        else:
            rules.append(f"f{number}: {_json_rule(part)}")
    return "\n".join([_HEAD, f'start: {" ".join(start)} "}}"', *rules, ""])


def of_quotes(sentences: Sequence[str], most: int) -> str:
    """Return the grammar of an answer of up to `most` of the `sentences`, in their order."""
    rules = [_HEAD, f"start: {' | '.join(f'q0x{index}' for index in range(len(sentences)))}"]
    for depth in range(most):
        for index, sentence in enumerate(sentences):
            later = [f"q{depth + 1}x{other}" for other in range(index + 1, len(sentences))]
            more = f' (" " ({" | ".join(later)}))?' if later and depth + 1 < most else ""
            rules.append(f"q{depth}x{index}: {_literal(sentence)}{more}")
    return "\n".join([*rules, ""])


def words_of(said: str) -> list[str]:
    """Return the words of a text in order; at most 32."""
    return _WORD.findall(said)[:_MOST_WORDS]


def _json_rule(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': _COMPACT})}"


def _key_word_rules(name: str, words: list[str], style: KeyWords) -> Iterator[str]:
    """Yield one rule for each word, with the words that may follow it.

    The end may follow only the last `skip` + 1 words.
    """
    words = [word.lower() for word in words] if style.lower else words
    yield f'{name}: "\\"" {name}s "\\""'
    yield f"{name}s: {' | '.join(_steps(name, words, -1, style.skip))}"
    for index in range(len(words)):
        yield f"{name}w{index}: {' | '.join(_steps(name, words, index, style.skip))}"


def _steps(name: str, words: list[str], index: int, skip: int) -> Iterator[str]:
    blank = " " if index >= 0 else ""
    for later in range(index + 1, min(len(words), index + skip + 2)):
        yield f"{_literal(blank + words[later])} {name}w{later}"
    if index >= 0 and len(words) - 1 - index <= skip:
        yield '""'


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class SchemaBounds(msgspec.Struct, frozen=True):
    """Limits of generation: characters of a string and items of an array.

    The schema's own minimum has priority.
    """

    text: int
    items: int
    patterns: bool = True
    """Whether the tool's own patterns and formats are kept; the grammar compiler does not know all of them.
    """

    def tighter(self, factor: float) -> SchemaBounds:
        """Return bounds multiplied by `factor`, at least 1."""
        text, items = max(1, int(self.text * factor)), max(1, int(self.items * factor))
        return msgspec.structs.replace(self, text=text, items=items)


def bounded(schema: Mapping[str, Any], bounds: SchemaBounds) -> Schema:
    """Return the closed and finite part of a tool's `schema` that a grammar can express.

    Raises:
        HearthNetError: `bad_request` if it has too many parts.
    """
    return _Bounding(schema, bounds).of(schema, 0)


def fields(schema: Mapping[str, Any]) -> list[str]:
    """Return the fields of a call: the required ones as declared, or all if none is required."""
    declared = [name for name, inner in schema.get("properties", {}).items() if inner is not False]
    required = frozenset(schema.get("required", ()))
    return [name for name in declared if name in required] if required else declared


class _Bounding:
    def __init__(self, root: Mapping[str, Any], bounds: SchemaBounds) -> None:
        self._root = root
        self._bounds = bounds
        self._left = _MOST_PARTS

    def of(self, schema: Any, depth: int) -> Schema:
        """Return the bounded form of one subschema; deeper than `_DEPTH` it is null."""
        self._left -= 1
        if self._left < 0:
            raise HearthNetError("bad_request", f"a schema of more than {_MOST_PARTS} parts; make it smaller")
        if not isinstance(schema, Mapping) or not schema:
            return self._text({})
        if depth > _DEPTH:
            return {"type": "null"}
        if "$ref" in schema:
            return self.of(self._resolve(str(schema["$ref"])), depth + 1)
        for key in ("const", "enum"):
            if key in schema:
                return {key: schema[key]}
        for key in _COMBINED:
            if key in schema:
                options = [option for option in schema[key] if option is not False] or [True]
                return {"anyOf": [self.of(option, depth + 1) for option in options]}
        if isinstance(schema.get("allOf"), list) and schema["allOf"]:
            return self.of(_merged(schema), depth)
        return self._typed(schema, depth)

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Schema:
        kind = schema.get("type", _kind_of(schema))
        if isinstance(kind, list):
            return {"anyOf": [self.of({**schema, "type": one}, depth + 1) for one in kind]}
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _number(schema, kind)
        return self._text(schema) if kind == "string" else {"type": kind}

    def _object(self, schema: Mapping[str, Any], depth: int) -> Schema:
        required = frozenset(schema.get("required", ()))
        names = [name for name in fields(schema) if depth == 0 or name in required]
        return {
            "type": "object",
            "properties": {name: self.of(schema["properties"][name], depth + 1) for name in names},
            "required": [name for name in names if name in required],
            "additionalProperties": False,
        }

    def _array(self, schema: Mapping[str, Any], depth: int) -> Schema:
        least = int(schema.get("minItems", 0))
        most = 0 if schema.get("items") is False else int(schema.get("maxItems", self._bounds.items))
        most = max(least, min(most, self._bounds.items))
        return {
            "type": "array",
            "items": self.of(schema.get("items", {}), depth + 1),
            "minItems": least,
            "maxItems": most,
        }

    def _text(self, schema: Mapping[str, Any]) -> Schema:
        if self._bounds.patterns and "format" in schema:
            return {"type": "string", "format": schema["format"]}
        if self._bounds.patterns and "pattern" in schema:
            # Its length is never tightened: the pattern may require it, and an empty grammar is an error.
            return {"type": "string", "pattern": schema["pattern"], **_lengths(schema, _PATTERN_TEXT)}
        return {"type": "string", "pattern": PLAIN, **_lengths(schema, self._bounds.text)}

    def _resolve(self, reference: str) -> Any:
        place: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            place = (
                place.get(step.replace("~1", "/").replace("~0", "~"), {})
                if isinstance(place, Mapping)
                else {}
            )
        return place if reference.startswith("#") else {}


def _lengths(schema: Mapping[str, Any], most: int) -> Schema:
    least = int(
        schema.get("minLength", 0 if "pattern" in schema else min(1, int(schema.get("maxLength", 1))))
    )
    return {"minLength": least, "maxLength": max(least, min(int(schema.get("maxLength", most)), most))}


def _number(schema: Mapping[str, Any], kind: str) -> Schema:
    limits = {key: schema[key] for key in _NUMBER_LIMITS if key in schema and math.isfinite(schema[key])}
    has = {key.removeprefix("exclusive").lower() for key in limits}
    return {"type": kind, **{key: value for key, value in _INTEGERS.items() if key not in has}, **limits}


def _kind_of(schema: Mapping[str, Any]) -> str:
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _merged(schema: Mapping[str, Any]) -> Schema:
    """Return `schema` with its `allOf` merged; exact if the parts have no keyword in common."""
    merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        for key, value in part.items() if isinstance(part, Mapping) else ():
            if isinstance(value, dict):
                before = merged.get(key)  # may be the boolean schema `true`
                merged[key] = {**(before if isinstance(before, dict) else {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, []), *value]
            else:
                merged.setdefault(key, value)
    return merged
