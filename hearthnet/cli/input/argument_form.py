"""The arguments of a tool as fields that a person can type, from its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import HearthNetError

_REMOVED: Final = "-"
_EXAMPLES: Final = {
    "integer": "a whole number such as 12",
    "number": "a number such as 2.5",
    "boolean": "true or false",
    "array": 'a list such as ["a", "b"]',
    "object": 'an object such as {"key": "value"}',
}


@dataclass(frozen=True, slots=True)
class Field:
    """One argument; its value is validated together with all others, by the whole schema."""

    name: str
    schema: dict[str, Any]
    required: bool

    @property
    def hint(self) -> str:
        """A hint at allowed values that are not obvious, such as ` (offer, request)`."""
        choices = self.schema.get("enum")
        if isinstance(choices, list):
            return f" ({', '.join(one_line(str(choice)) for choice in choices)})"
        return " (separated by commas)" if self._is_list_of_text else ""

    def apply(self, typed: str, arguments: dict[str, Any]) -> None:
        """Put typed text into `arguments`: an empty line keeps the value, `-` removes it.

        Raises:
            ValueError: The text is not valid, or the field is required.
        """
        text = typed.strip()
        if not text:
            return
        if text == _REMOVED:
            if self.required:
                raise ValueError(f"{self.name} cannot be left out")
            arguments.pop(self.name, None)
        else:
            arguments[self.name] = self.parse(text)

    @property
    def _is_list_of_text(self) -> bool:
        items = self.schema.get("items")
        return (
            self.schema.get("type") == "array" and isinstance(items, dict) and items.get("type") == "string"
        )

    @property
    def _takes_text(self) -> bool:
        choices = [self.schema, *(one for one in self.schema.get("anyOf", ()) if isinstance(one, dict))]
        return any(one.get("type") == "string" or "enum" in one for one in choices)

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for: itself where the field takes text, else JSON.

        Raises:
            ValueError: The text is not valid.
        """
        if self._takes_text:
            return _quoted(text)
        if self._is_list_of_text and not text.startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
        try:
            return json.loads(text)
        except ValueError as error:
            kind = str(self.schema.get("type"))
            example = _EXAMPLES.get(kind, "a value as in JSON")
            raise ValueError(f"not a value that {self.name} can have; type {example}") from error


def fields(schema: dict[str, Any]) -> list[Field]:
    """Return the fields of a tool's flat schema, in order; the schema `true` allows any value."""
    required, properties = schema.get("required", []), schema.get("properties", {})
    return [
        Field(name, inner if isinstance(inner, dict) else {}, name in required)
        for name, inner in properties.items()
        if inner is not False
    ]


def read_pairs(pairs: Iterable[str], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in `FIELD=VALUE` texts for a tool's flat schema; they are not validated.

    Raises:
        HearthNetError: `bad_request` for another form, a field that is given twice, and text without one.
    """
    known = {field.name: field for field in fields(schema)}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise HearthNetError("bad_request", f"{one_line(pair)!r} has no value; write FIELD=VALUE")
        if name in found:
            raise HearthNetError("bad_request", f"{one_line(name)!r} is given twice")
        try:
            found[name] = known.get(name, Field(name, {"type": "string"}, required=False)).parse(text)
        except ValueError as error:
            raise HearthNetError("bad_request", str(error)) from error
    return found


def _quoted(text: str) -> str:
    """Return the typed text; text in double quotes is parsed as JSON, to allow line breaks."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return text
