"""The client's tools and tool choice, mapped from OpenAI's form to `llm.chat`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.gateway.openai.messages import invalid_part


class _FunctionTool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _CustomTool(msgspec.Struct):
    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class OpenAITool(msgspec.Struct):
    """A tool as declared by the client, which runs it itself."""

    type: str = "function"
    function: _FunctionTool | None = None
    custom: _CustomTool | None = None


class _ToolName(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    type: str = "function"
    function: _ToolName | None = None
    custom: _ToolName | None = None

    @property
    def name(self) -> str:
        named = self.function or self.custom
        return "" if named is None else named.name


class _AllowedTools(msgspec.Struct):
    mode: str
    tools: list[_ToolChoice]


class Choice(_ToolChoice):
    """The tool that must be called, or the tools that may be."""

    allowed_tools: _AllowedTools | None = None


_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_TEXT: Final = {"syntax": "text"}


def read_tools(tools: list[OpenAITool]) -> list[dict[str, Any]]:
    """Return the declarations as `llm.chat` takes them.

    Raises:
        HearthNetError: `bad_request` for an unknown type.
    """
    return [_tool(tool, f"/tools/{place}") for place, tool in enumerate(tools)]


def custom_names(tools: list[OpenAITool]) -> frozenset[str]:
    """Return the tools that take one text, whose calls are returned in another form."""
    return frozenset(tool.custom.name for tool in tools if tool.custom is not None)


def _tool(tool: OpenAITool, path: str) -> dict[str, Any]:
    if tool.function is not None:
        function = tool.function
        read: dict[str, Any] = {
            "name": function.name,
            "parameters_schema": function.parameters or _NO_ARGUMENTS,
        }
        if function.strict is not None:
            read["strict"] = function.strict
        return read | _described(function.description)
    if tool.custom is not None:
        custom = tool.custom
        return {"name": custom.name, "text": _form(custom.format)} | _described(custom.description)
    raise invalid_part(
        f"a tool of type {tool.type[:40]!r} cannot be declared here; function and custom can", path
    )


def _described(description: str | None) -> dict[str, Any]:
    return {"description": description} if description else {}


def _form(given: dict[str, Any] | None) -> dict[str, Any]:
    grammar = (given or {}).get("grammar")
    if not isinstance(grammar, dict):
        return _ANY_TEXT
    return {"syntax": grammar.get("syntax"), "definition": grammar.get("definition")}


def read_choice(choice: str | Choice) -> str | dict[str, Any]:
    """Return the choice as `llm.chat` takes it: a word, or `{"name"}` with allowed `others`."""
    if isinstance(choice, str):
        return choice
    if choice.allowed_tools is None:
        if not choice.name:
            raise invalid_part("this choice names no tool", "/tool_choice")
        return {"name": choice.name}
    names = [tool.name for tool in choice.allowed_tools.tools if tool.name]
    if not names:
        raise invalid_part(
            "this choice allows no tool; write none instead", "/tool_choice/allowed_tools/tools"
        )
    others = {"others": names[1:]} if names[1:] else {}
    return {"name": names[0], "required": choice.allowed_tools.mode == "required", **others}
