"""Examples shown to the built-in model before it fills in the arguments of a tool.

A set is used for every tool whose schema has all its fields; nothing else about the tool matters. The topics
are unrelated to any starter document, so that the examples teach the form and not the content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.builtin.grammar import KeyWords


class Demonstration(msgspec.Struct, frozen=True):
    """One example: a user's text and good arguments for it."""

    said: str
    arguments: dict[str, str]


class Demonstrations(msgspec.Struct, frozen=True):
    """Examples for tools with these `fields`; those in `key_words` get words of the user."""

    fields: tuple[str, ...]
    examples: tuple[Demonstration, ...]
    key_words: dict[str, KeyWords] = {}

    def fit(self, schema: Mapping[str, Any]) -> bool:
        """Return whether a tool with `schema` has all the fields as text, and requires no others."""
        declared = schema.get("properties", {})
        return set(schema.get("required", [])) <= set(self.fields) and all(
            name in declared and _may_be_text(declared[name]) for name in self.fields
        )


def _may_be_text(schema: Any) -> bool:
    """Return whether a field accepts text; the schema `true` accepts anything."""
    return schema.get("type", "string") == "string" if isinstance(schema, dict) else bool(schema)


def _search(said: str, query: str) -> Demonstration:
    return Demonstration(said, {"query": query})


def _posted(said: str, category: str, title: str) -> Demonstration:
    return Demonstration(said, {"body": said, "category": category, "title": title})


DEMONSTRATIONS: Final = (
    Demonstrations(
        fields=("query",),
        key_words={"query": KeyWords(skip=2)},
        examples=(
            _search("The dog scratches himself all day long", "dog scratches himself all day long"),
            _search("My bicycle chain keeps falling off, what can I do?", "bicycle chain keeps falling off"),
            _search(
                "When should I plant tomatoes and how often do I pick them?",
                "when plant tomatoes how often pick",
            ),
            _search(
                "The moths have eaten holes in our wool jumpers, can they be mended?",
                "moths eaten holes wool jumpers mended",
            ),
            _search(
                "Grandma cannot read the newspaper without holding it far away",
                "cannot read newspaper without holding far away",
            ),
            _search("How do I stop the kitchen tap from dripping all night?", "stop kitchen tap dripping"),
            _search(
                "Which paint should I take for a garden fence, and does it need two coats?",
                "which paint garden fence need two coats",
            ),
            _search("Is it true that cats see in the dark?", "cats see in dark"),
        ),
    ),
    Demonstrations(
        fields=("body", "category", "title"),
        key_words={"title": KeyWords(skip=4, lower=False)},
        examples=(
            _posted("The bakery opens an hour later next week", "info", "bakery opens later next week"),
            _posted("Fire in the barn, send everybody with buckets now!", "emergency", "Fire in the barn"),
            _posted("Does anyone have a ladder for me on Saturday?", "request", "ladder for Saturday"),
            _posted("I can give away a box of apples", "offer", "box of apples"),
            _posted(
                "We need two more players for the chess evening", "request", "two players for chess evening"
            ),
            _posted("I could teach the piano to a beginner", "offer", "teach the piano to a beginner"),
        ),
    ),
)


def for_tool(schema: Mapping[str, Any]) -> Demonstrations | None:
    """Return the first set that fits a tool with `schema`, or None."""
    return next((known for known in DEMONSTRATIONS if known.fit(schema)), None)
