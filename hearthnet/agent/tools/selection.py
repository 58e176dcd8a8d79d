"""The selection of tools for a question: those whose words fit it best.

A model chooses worse among hundreds of tools than among a few dozen, and every tool uses up context. So of
more than `MAX_TOOLS` tools the best ones are shown, by BM25 over name and description; a demanded tool is
always shown. Pure and deterministic: ties keep the order in which the tools were declared.

See: docs/protocol/agent.md#selection.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from hearthnet.agent.tools.toolbox import Tool, Toolbox
from hearthnet.agent.tools.types import ToolChoice, ToolDefinition
from hearthnet.core.errors import HearthNetError

MAX_TOOLS: Final = 64
_WORD: Final = re.compile(r"[^\W_]+")
_NAME_WEIGHT: Final = 3
_K1: Final = 1.2
_B: Final = 0.75
_UNFORCED: Final = frozenset({"auto", "none", "required"})


def select(
    tools: Sequence[ToolDefinition], question: str, forced: str = "", most: int = MAX_TOOLS
) -> list[ToolDefinition]:
    """Return at most `most` of `tools`, in their order, with the one called `forced`."""
    if len(tools) <= most:
        return list(tools)
    scores = _scores([_words(tool) for tool in tools], _split(question))
    ranked = sorted(range(len(tools)), key=lambda at: (tools[at].name != forced, -scores[at], at))
    return [tools[at] for at in sorted(ranked[:most])]


def offered_tools(toolbox: Toolbox, messages: Sequence[dict[str, Any]], choice: ToolChoice) -> list[Tool]:
    """Return the tools to show to the model: all, or those that fit the question best."""
    forced = toolbox.find(choice["name"]) if isinstance(choice, dict) else None
    name = "" if forced is None else forced.definition.name
    definitions = [tool.definition for tool in toolbox]
    chosen = {tool.name for tool in select(definitions, question_of(messages), name)}
    return [tool for tool in toolbox if tool.definition.name in chosen]


def first_choice(toolbox: Toolbox, wanted: ToolChoice) -> ToolChoice:
    """Return the tool choice of a conversation's first turn, in the model's names.

    Raises:
        HearthNetError: `not_found` for a demanded tool that is not declared; `bad_request` for a value that
            is no tool choice, and for `required` without tools.
    """
    if isinstance(wanted, dict):
        name = str(wanted.get("name", ""))
        tool = toolbox.find(name)
        if tool is None:
            raise toolbox.unknown(name)
        return {"name": tool.safe_name}
    if wanted not in _UNFORCED:
        raise HearthNetError(
            "bad_request",
            f"{wanted!r} is no tool choice; write auto, none, required or a tool's name as {{name}}",
            details={"path": "/input/tool_choice", "rule": "enum"},
        )
    if wanted == "required" and not len(toolbox):
        raise HearthNetError("bad_request", "a tool is required, but none is declared")
    return wanted


def question_of(messages: Sequence[dict[str, Any]]) -> str:
    """Return the text of the last message of the user."""
    content = next((one.get("content") for one in reversed(messages) if one.get("role") == "user"), "")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _words(tool: ToolDefinition) -> Counter[str]:
    return Counter(_split(tool.name) * _NAME_WEIGHT + _split(tool.description))


def _split(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _scores(texts: list[Counter[str]], query: list[str]) -> list[float]:
    lengths = [text.total() for text in texts]
    mean = sum(lengths) / len(lengths) or 1.0
    found = {word: sum(word in text for text in texts) for word in set(query)}
    rare = {word: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for word, n in found.items()}
    return [
        sum(
            rare[word] * text[word] * (_K1 + 1) / (text[word] + _K1 * (1 - _B + _B * length / mean))
            for word in sorted(rare)
        )
        for text, length in zip(texts, lengths, strict=True)
    ]
