"""Attempts at one demanded tool call, without I/O: requests to the engine, and results.

    ask        greedily, with bounds on strings and arrays, under a grammar that admits only such arguments
    too long   the text ended at the token limit: ask again with tighter bounds, which need fewer tokens
    invalid    the text is JSON, but breaks a rule of the schema that no grammar expresses: sample again
    give up    after `_MOST_ATTEMPTS`; invalid arguments are never returned

The arguments are the model's own tokens; nothing is filled in, cut or repaired here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.contracts import SchemaCheck, compile_schema, self_contained
from hearthnet_llm.builtin import grammar
from hearthnet_llm.builtin.demonstrations import Demonstrations, for_tool
from hearthnet_llm.builtin.grammar import SchemaBounds, bounded
from hearthnet_llm.builtin.prompt import PromptTurn, escape_control_tokens
from hearthnet_llm.interface.request import Message, Tool
from hearthnet_llm.vendors.json_access import as_text

WIDEST: Final = SchemaBounds(text=200, items=4)
_MOST_ATTEMPTS: Final = 5
_TIGHTER: Final = 0.4
_VARIED: Final = 0.8
_VALUE_CHARACTERS: Final = 4
"""Characters of JSON for each value in a schema, about; its weight is the number of its values."""


class CallAttempt(msgspec.Struct, frozen=True):
    """The request of one attempt, counted from 0; `temperature` 0 is greedy."""

    attempt: int
    turns: list[PromptTurn]
    grammar: str
    temperature: float


class ForcedCall:
    """The attempts at one call.

    Send what `ask` returns and pass the result to `check`, until that returns arguments or `over` is true.
    """

    def __init__(self, tool: Tool, messages: list[Message]) -> None:
        self._tool = tool
        said = (message.text for message in reversed(messages) if message.role == "user")
        self._said = next(said, "")
        schema, self._check = _check_of(tool)
        self._demonstrations = for_tool(tool.schema)
        # What the check leaves out as unknown, lookaround say, would leave the grammar without an end.
        self._patterns = _patterns(schema) >= _patterns(tool.schema)
        self._bounds = msgspec.structs.replace(WIDEST, patterns=self._patterns)
        self._attempts = 0
        self._unfit = 0
        self.reason = ""

    @property
    def over(self) -> bool:
        """True if no further attempt is allowed."""
        return self._attempts >= _MOST_ATTEMPTS

    def ask(self) -> CallAttempt:
        """Return the next attempt."""
        shown = self._demonstrations
        schema = bounded(_demonstrated(self._tool.schema, shown), self._bounds)
        free = self._unfit or self._bounds.text != WIDEST.text or self._bounds.patterns != self._patterns
        key_words = shown.key_words if shown is not None and not free else {}
        rules = grammar.of_call(schema, self._said, key_words)
        return CallAttempt(self._attempts, self._turns(), rules, _VARIED if self._unfit else 0.0)

    def check(self, text: str, ended: bool) -> dict[str, Any] | None:
        """Return the arguments in `text` if they are complete and valid, else None.

        `ended` is False if the text was cut at the token limit.
        """
        self._attempts += 1
        if not ended:
            self.reason = "they did not fit into the token limit"
            self._bounds = self._bounds.tighter(_TIGHTER)
            return None
        arguments = _parsed(text)
        if arguments is None:
            self.reason = "the engine could not hold the model to the tool's schema"
            self._bounds = msgspec.structs.replace(self._bounds, patterns=False)
            return None
        problem = next(iter(self._check.errors(arguments)), None)
        if problem is None:
            return arguments
        self.reason = f"{problem.path or '/'}: {problem.message}"
        self._unfit += 1
        return None

    def _turns(self) -> list[PromptTurn]:
        if self._demonstrations is None:
            return [
                {"role": "system", "content": _description(self._tool)},
                {"role": "user", "content": escape_control_tokens(self._said)},
            ]
        turns: list[PromptTurn] = []
        for example in self._demonstrations.examples:
            turns.append({"role": "user", "content": example.said})
            turns.append({"role": "assistant", "content": as_text(example.arguments)})
        return [*turns, {"role": "user", "content": escape_control_tokens(self._said)}]


def _patterns(schema: Mapping[str, Any]) -> int:
    return json.dumps(schema).count('"pattern": "')


def _check_of(tool: Tool) -> tuple[dict[str, Any], SchemaCheck]:
    """Return the schema by which the arguments are checked, and its check.

    It is a copy of the tool's without references and without what exceeds the bounds of schemas from outside,
    which may accept more.
    """
    try:
        schema = self_contained(tool.schema)
        return schema, compile_schema(schema, len(json.dumps(schema)) // _VALUE_CHARACTERS)
    except HearthNetError as error:
        raise HearthNetError(
            "bad_request",
            f"the tool {tool.name} has no valid JSON Schema: {error.message}",
            details={"path": "/input/tools", "tool": tool.name},
        ) from error


def _demonstrated(schema: Mapping[str, Any], demonstrations: Demonstrations | None) -> dict[str, Any]:
    """Return `schema` with only the demonstrated fields, if there are demonstrations."""
    if demonstrations is None:
        return dict(schema)
    names = list(demonstrations.fields)
    properties = {name: schema["properties"][name] for name in names}
    return {**schema, "properties": properties, "required": names}


def _description(tool: Tool) -> str:
    lines = [f"Fill in the form for {tool.name}: {tool.description or ''} Answer with JSON only."]
    for name, schema in tool.schema.get("properties", {}).items():
        about = schema.get("description", "") if isinstance(schema, Mapping) else ""
        lines.append(f"- {name}: {about}" if about else f"- {name}")
    return escape_control_tokens("\n".join(lines))


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
