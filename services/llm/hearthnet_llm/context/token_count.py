"""Estimation of a request's tokens without a tokenizer: by script, rounded up.

Images and other media have fixed estimates, because each vendor counts them in its own way: an image counts
as one of the size to which images are scaled (media.py) at the most expensive vendor.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.text import estimate_tokens
from hearthnet_llm.interface.content_parts import (
    AudioPart,
    DocumentPart,
    ImagePart,
    JsonPart,
    Part,
    RefusalPart,
    SearchResultPart,
    ServerCallPart,
    ServerResultPart,
    SummaryPart,
    TextPart,
    ThinkingPart,
    VideoPart,
)
from hearthnet_llm.interface.request import ChatRequest, Message

MESSAGE: Final = 4
"""Tokens between messages: the role and the marks of a turn."""
IMAGE: Final = 1600
MEDIA: Final = 3000
_CALL: Final = 8
_ANSWER: Final = 1024
_LONG_ANSWER: Final = 8192
"""Upper limit for an answer without `max_tokens`: an eighth of the context, at least `_ANSWER`."""


def of_text(text: str | None) -> int:
    """Return the tokens of a text."""
    return estimate_tokens(text) if text else 0


def of_json(value: Any) -> int:
    """Return the tokens of a value as JSON."""
    return of_text(msgspec.json.encode(value).decode())


def of_message(message: Message, most_result: int = 0) -> int:
    """Return the tokens of a message; a tool's result counts at most `most_result`, if not 0."""
    total = MESSAGE + of_text(message.name) + of_text(message.refusal)
    if isinstance(message.content, str):
        total += of_text(message.content)
    else:
        total += sum(_of_part(part) for part in message.content or ())
    total += sum(_of_part(part) for part in message.thinking or ())
    total += sum(_CALL + of_text(call.name) + of_json(call.arguments) for call in message.tool_calls)
    return min(total, most_result) if message.role == "tool" and most_result else total


def of_rest(request: ChatRequest) -> int:
    """Return the tokens of everything but messages: the tools, and the answer's schema."""
    tools = sum(
        _CALL + of_text(tool.name) + of_text(tool.description) + of_json(tool.schema)
        for tool in request.tools or ()
    )
    schema = request.response_schema
    return tools + (of_json(schema.schema) if schema is not None else 0)


def of_request(request: ChatRequest) -> int:
    """Return the tokens of everything: the messages and the rest."""
    return of_rest(request) + sum(of_message(message) for message in request.messages)


def of_answer(request: ChatRequest, ctx: int) -> int:
    """Return the tokens reserved for the answer, at most half of the context of `ctx` tokens."""
    unbounded = min(max(_ANSWER, ctx // 8), _LONG_ANSWER)
    return min(unbounded if request.max_tokens is None else request.max_tokens, ctx // 2)


def _of_part(part: Part) -> int:
    match part:
        case TextPart(text) | RefusalPart(text) | ThinkingPart(text) | SummaryPart(text):
            return of_text(text)
        case ImagePart():
            return IMAGE
        case DocumentPart():
            written = of_text(part.text) + sum(of_text(piece.text) for piece in part.texts or ())
            return written or MEDIA
        case AudioPart() | VideoPart():
            return MEDIA
        case JsonPart(value):
            return of_json(value)
        case SearchResultPart():
            return of_text(part.title) + sum(of_text(piece.text) for piece in part.texts)
        case ServerCallPart():
            return _CALL + of_json(part.arguments)
        case ServerResultPart():
            return _CALL + of_json(part.result)
        case _:
            return _CALL
