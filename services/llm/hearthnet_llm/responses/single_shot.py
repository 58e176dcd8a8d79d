"""A conversation for a model without tools, in which earlier tool results become text."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_llm.interface.content_parts import ImagePart, JsonPart, TextPart
from hearthnet_llm.interface.frames import Notice
from hearthnet_llm.interface.request import ChatRequest, Message, Named

DROPPED: Final = "tools_ignored"


def without_tools(request: ChatRequest, model: str) -> ChatRequest:
    """Return the request in a form for a model without tools.

    Raises:
        HearthNetError: `not_implemented` if a tool call is demanded.
    """
    choice = request.tool_choice
    if choice == "required" or (isinstance(choice, Named) and choice.required):
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
    return Notice(DROPPED, f"{model} cannot call tools, so it answers without them")


def _plain(message: Message) -> Message:
    if message.role == "tool":
        said = f"[result of {message.name or 'a tool'}]\n{_text(message)}"
        shown = [part for part in message.content or () if isinstance(part, ImagePart)]
        return Message("user", [TextPart(said), *shown] if shown else said)
    if message.tool_calls:
        asked = ", ".join(call.name for call in message.tool_calls)
        return Message("assistant", "\n".join(part for part in (message.text, f"[asked {asked}]") if part))
    return message


def _text(message: Message) -> str:
    if isinstance(message.content, list):
        values = [part.value for part in message.content if isinstance(part, JsonPart)]
        written = [json.dumps(value, ensure_ascii=False) for value in values]
        return "\n".join([message.text, *written]).strip()
    return message.text
