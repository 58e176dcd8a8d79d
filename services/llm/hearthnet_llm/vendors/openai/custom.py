"""Tools called with one text instead of arguments, which OpenAI calls custom.

Canonically the text is the argument `input`, so that only this protocol has to handle the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import TextForm, Tool
from hearthnet_llm.vendors.json_access import fields, text, without_nones
from hearthnet_llm.vendors.wire import Json

KIND: Final = "custom"
INPUT: Final = "input"
_SYNTAX: Final = "lark"
"""Default syntax of a grammar; OpenAI requires one."""


def names(tools: list[Tool] | None) -> set[str]:
    """Return the names of such tools."""
    return {tool.name for tool in tools or () if tool.text is not None}


def write_tool(tool: Tool, form: TextForm) -> Json:
    """Return the native tool."""
    made = {"name": tool.name, **without_nones(description=tool.description)}
    if form.definition is not None:
        grammar = {"syntax": form.syntax or _SYNTAX, "definition": form.definition}
        made["format"] = {"type": "grammar", "grammar": grammar}
    elif form.syntax is not None:
        made["format"] = {"type": form.syntax}
    return {"type": KIND, KIND: made}


def read_tool(native: Json, path: str) -> Json:
    """Return the canonical tool."""
    given = fields(native.get(KIND), f"{path}.{KIND}")
    form = given.get("format") or {}
    grammar = form.get("grammar")
    known = grammar if isinstance(grammar, dict) else {"syntax": form.get("type")}
    name = text(given.get("name"), f"{path}.{KIND}.name")
    return {
        "name": name,
        **without_nones(description=given.get("description")),
        "text": without_nones(syntax=known.get("syntax"), definition=known.get("definition")),
    }


def write_call(call: ToolCall) -> Json:
    """Return the native fields of an earlier call."""
    return {"type": KIND, KIND: {"name": call.name, INPUT: call.arguments[INPUT]}}


def read_call(native: Json, path: str) -> Json:
    """Return the canonical fields of an earlier call."""
    given = fields(native.get(KIND), f"{path}.{KIND}")
    return {"name": given.get("name"), "arguments": {INPUT: text(given.get(INPUT), f"{path}.{KIND}.{INPUT}")}}


def is_call(native: Mapping[str, Any]) -> bool:
    """Return whether a call in an answer, or a piece of one, is of this form."""
    return isinstance(native.get(KIND), Mapping)
