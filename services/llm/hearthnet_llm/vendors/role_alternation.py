"""Grouping of messages into turns, for protocols with alternating users and assistants.

In these, results of tools are user content. A tool's result and the next user message are one turn unless
`Message.turn` states otherwise; two user messages without results are two turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from hearthnet_llm.interface.content_parts import (
    CallPart,
    Part,
    ServerCallPart,
    ServerResultPart,
    TextPart,
    ThinkingPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import Message


def group_turns(messages: Iterable[Message]) -> list[list[Message]]:
    """Return the messages of each turn, in order."""
    made: list[list[Message]] = []
    for message in messages:
        if made and _joins(made[-1][-1], message):
            made[-1].append(message)
        else:
            made.append([message])
    return made


def marked(read: Iterable[Sequence[Message]]) -> list[Message]:
    """Return the messages of given turns, with `turn` set where `group_turns` would differ."""
    made: list[Message] = []
    for turn in read:
        for place, message in enumerate(turn):
            together = bool(made) and _joins(made[-1], message)
            if together != bool(place):
                message = msgspec.structs.replace(message, turn="same" if place else "new")
            made.append(message)
    return made


def message_parts(message: Message) -> list[Part]:
    """Return the parts of a message in order: thoughts first, a `CallPart` for each call.

    An empty text is no part.
    """
    content = message.content
    parts: list[Part] = [*(message.thinking or ())]
    if isinstance(content, str):
        parts += [TextPart(content)] if content else []
    else:
        parts += content or []
    placed = {part.id for part in parts if isinstance(part, CallPart)}
    return [*parts, *(CallPart(call.id) for call in message.tool_calls if call.id not in placed)]


def may_return(part: Part, form: str) -> bool:
    """Return whether a vendor accepts a part: thoughts of its `form`, calls and results with an id."""
    if isinstance(part, ServerCallPart | ServerResultPart):
        return part.id is not None
    return not isinstance(part, ThinkingPart) or part.format in (None, form)


def user_messages(read: Iterable[Part | Message]) -> list[Message]:
    """Return the messages of a user's turn: its results, and one for each run of other content."""
    made: list[Message] = []
    run: list[Part] | None = None
    for one in read:
        if isinstance(one, Message):
            made.append(one)
            run = None
        elif run is None:
            run = [one]
            made.append(Message(role="user", content=run))
        else:
            run.append(one)
    return made or [Message(role="user", content=[])]


def assistant_message(read: Iterable[Part | ToolCall]) -> Message:
    """Return the message of an assistant's parts and calls, without the places of calls that come last."""
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for one in read:
        if isinstance(one, ToolCall):
            calls.append(one)
            parts.append(CallPart(one.id))
        else:
            parts.append(one)
    while parts and isinstance(parts[-1], CallPart):
        parts.pop()
    return Message(role="assistant", content=None if calls and not parts else parts, tool_calls=calls)


def _joins(before: Message, message: Message) -> bool:
    if message.turn is not None:
        return message.turn == "same"
    return before.role == "tool" and message.role in ("tool", "user")
