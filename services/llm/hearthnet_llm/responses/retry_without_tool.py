"""Removal of tools: all of them for a model without, or one whose schema a vendor rejects.

Schemas are valid JSON Schema when they arrive here, and each vendor supports another subset. The rejected
tool is known only from the server's error:

    OpenAI       Invalid schema for function 'book': ...
    Anthropic    tools.1.custom.input_schema: ...
    Gemini       ...tools[0].function_declarations[1].parameters...
    Bedrock      toolConfig.tools.1.member.toolSpec.inputSchema...     counted from 1

If an error names one declared tool, the request is repeated without it, and a notice reports that. A demanded
tool cannot be removed: then the error is raised. Without tools, earlier results become text.

See: docs/protocol/failures.md#vendor-limits.
"""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.interface.backend import AskModel, FrameStream
from hearthnet_llm.interface.content_parts import JsonPart, TextPart
from hearthnet_llm.interface.frames import Notice
from hearthnet_llm.interface.request import ChatRequest, Message, Named, Tool

_IGNORED: Final = "tools_ignored"
DROPPED: Final = "tool_dropped"
MOST: Final = 8
"""Tools removed at most before the error is raised."""
_SCHEMA: Final = re.compile(r"schema|parameter|propert|\$ref|\$defs|keyword|json", re.IGNORECASE)
_FUNCTION: Final = re.compile(r"function_?declarations(?:\.|\[)(\d+)", re.IGNORECASE)
_MEMBER: Final = re.compile(r"\btools\.(\d+)\.member")
_PLACE: Final = re.compile(r"\btools(?:\.|\[)(\d+)")


def without_tools(request: ChatRequest, model: str) -> ChatRequest:
    """Return the request in a form for a model without tools.

    Raises:
        HearthNetError: `not_implemented` if a tool call is demanded.
    """
    if request.demands_tool:
        raise HearthNetError(
            "not_implemented",
            f"{model} cannot call tools; ask a model whose offer says tools_supported",
            details={"path": "/input/tool_choice"},
        )
    return msgspec.structs.replace(
        request,
        messages=[_plain(message) for message in request.messages],
        tools=None,
        tool_choice=None,
        parallel_tool_calls=None,
    )


def notice(model: str) -> Notice:
    """Return the notice for the caller."""
    return Notice(_IGNORED, f"{model} cannot call tools, so it answers without them")


def _plain(message: Message) -> Message:
    if message.role == "tool":
        result = f"[result of {message.name or 'a tool'}]\n{_result_text(message)}"
        return Message("user", [TextPart(result), *message.images] if message.images else result)
    if message.tool_calls:
        names = ", ".join(call.name for call in message.tool_calls)
        return Message("assistant", "\n".join(part for part in (message.text, f"[asked {names}]") if part))
    return message


def _result_text(message: Message) -> str:
    if isinstance(message.content, list):
        values = [part.value for part in message.content if isinstance(part, JsonPart)]
        written = [json.dumps(value, ensure_ascii=False) for value in values]
        return "\n".join([message.text, *written]).strip()
    return message.text


async def stream(request: ChatRequest, model: str, ask: AskModel) -> FrameStream:
    """Yield the frames of `ask`, without the tools that its server rejects.

    Raises:
        HearthNetError: any other error of `ask`.
    """
    for left in range(MOST, -1, -1):
        answered = False
        try:
            async with aclosing(ask(request)) as frames:
                async for frame in frames:
                    answered = True
                    yield frame
            return
        except HearthNetError as error:
            tool = None if answered or not left else refused_tool(request, error)
            if tool is None:
                raise
            request = _without(request, tool, model, error)
            yield Notice(DROPPED, f"the tool {tool.name} is left out: {error.message}")


def refused_tool(request: ChatRequest, error: HearthNetError) -> Tool | None:
    """Return the one declared tool whose schema the server rejects, or None."""
    message, tools = error.message, request.tools or []
    if error.code != "bad_request" or "status" not in error.details or not _SCHEMA.search(message):
        return None
    named = [tool for tool in tools if re.search(rf"""['"`]{re.escape(tool.name)}['"`]""", message)]
    if len(named) == 1:
        return named[0]
    return _at_its_place(tools, message)


def _at_its_place(tools: list[Tool], message: str) -> Tool | None:
    """Return the tool at the index in the message, if that names exactly one place."""
    own = [tool for tool in tools if tool.server is None]
    for pattern, places, first in ((_FUNCTION, own, 0), (_MEMBER, tools, 1), (_PLACE, tools, 0)):
        found = {int(place) - first for place in pattern.findall(message)}
        if found:
            (place, *more) = found
            return places[place] if not more and 0 <= place < len(places) else None
    return None


def _without(request: ChatRequest, tool: Tool, model: str, error: HearthNetError) -> ChatRequest:
    """Return the request without the tool.

    Raises:
        HearthNetError: `error`, if the tool is demanded, or any is and none is left.
    """
    choice, tools = request.tool_choice, [one for one in request.tools or [] if one is not tool]
    demanded = isinstance(choice, Named) and tool.name in (choice.name, *choice.others)
    if demanded or (choice == "required" and not tools):
        raise error
    return msgspec.structs.replace(request, tools=tools) if tools else without_tools(request, model)
