"""Removal of a single tool whose schema a vendor rejects; the others stay.

Schemas are valid JSON Schema when they arrive here, and each vendor supports another subset. The rejected
tool is known only from the server's error:

OpenAI       Invalid schema for function 'book': ... Anthropic    tools.1.custom.input_schema: ... Gemini
...tools[0].function_declarations[1].parameters... Bedrock
toolConfig.tools.1.member.toolSpec.inputSchema...     counted from 1

If an error names one declared tool, the request is repeated without it, and a notice reports that. A demanded
tool cannot be removed: then the error is raised.

See: docs/protocol/failures.md#vendor-limits.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.interface.backend import FrameStream
from hearthnet_llm.interface.frames import Frame, Notice
from hearthnet_llm.interface.request import ChatRequest, Named, Tool
from hearthnet_llm.responses.single_shot import without_tools

DROPPED: Final = "tool_dropped"
MOST: Final = 8
"""Tools removed at most before the error is raised."""
_SCHEMA: Final = re.compile(r"schema|parameter|propert|\$ref|\$defs|keyword|json", re.IGNORECASE)
_FUNCTION: Final = re.compile(r"function_?declarations(?:\.|\[)(\d+)", re.IGNORECASE)
_MEMBER: Final = re.compile(r"\btools\.(\d+)\.member")
_PLACE: Final = re.compile(r"\btools(?:\.|\[)(\d+)")


async def stream(
    request: ChatRequest, model: str, ask: Callable[[ChatRequest], FrameStream]
) -> AsyncGenerator[Frame, None]:
    """Yield the frames of `ask`, without the tools that its server rejects.

    Raises:
        HearthNetError: any other error of `ask`.
    """
    for left in range(MOST, -1, -1):
        heard = False
        try:
            async with aclosing(ask(request)) as frames:
                async for frame in frames:
                    heard = True
                    yield frame
            return
        except HearthNetError as error:
            tool = None if heard or not left else refused_tool(request, error)
            if tool is None:
                raise
            request = _without(request, tool, model, error)
            yield Notice(DROPPED, f"the tool {tool.name} is left out: {error.message}")


def refused_tool(request: ChatRequest, error: HearthNetError) -> Tool | None:
    """Return the one declared tool whose schema the server rejects, or None."""
    said, tools = error.message, request.tools or []
    if error.code != "bad_request" or "status" not in error.details or not _SCHEMA.search(said):
        return None
    named = [tool for tool in tools if re.search(rf"""['"`]{re.escape(tool.name)}['"`]""", said)]
    if len(named) == 1:
        return named[0]
    return _at_its_place(tools, said)


def _at_its_place(tools: list[Tool], said: str) -> Tool | None:
    """Return the tool at the index in the message, if that names exactly one place."""
    own = [tool for tool in tools if tool.server is None]
    for pattern, places, first in ((_FUNCTION, own, 0), (_MEMBER, tools, 1), (_PLACE, tools, 0)):
        found = {int(place) - first for place in pattern.findall(said)}
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
