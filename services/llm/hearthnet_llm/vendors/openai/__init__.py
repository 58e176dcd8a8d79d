"""OpenAI's Chat Completions, and everything compatible with it; vendors differ by profile (profiles.py)."""

from __future__ import annotations

from typing import Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet_llm.request import ChatRequest, CompleteRequest
from hearthnet_llm.vendors.openai import fields, messages, tools
from hearthnet_llm.vendors.openai.answer import Answer
from hearthnet_llm.vendors.openai.spelling import SPELLINGS, Choices
from hearthnet_llm.vendors.wire import Decoder, Heard, HttpRequest, Json, Target

__all__ = ["SPELLINGS", "decoder", "encode", "encode_complete", "read"]

_CHAT: Final = "/chat/completions"
_COMPLETE: Final = "/completions"
_VERSION: Final = "?api-version="


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """POST of the native request; `bad_request` for an image that nobody has loaded."""
    choices = Choices(target)
    body: Json = {"model": target.model, "messages": messages.write_messages(request.messages, choices)}
    fields.write(request, choices, body)
    fields.write_usage(choices, body)
    tools.write(request, choices, body)
    tools.write_format(request.response_schema, choices, body)
    return HttpRequest("POST", _url(target, _CHAT), body)


def encode_complete(request: CompleteRequest, target: Target) -> HttpRequest:
    """POST of a text that is to be continued (the legacy endpoint)."""
    choices = Choices(target)
    body: Json = {"model": target.model, "prompt": request.prompt}
    fields.write(request, choices, body)
    fields.write_usage(choices, body)
    return HttpRequest("POST", _url(target, _COMPLETE), body)


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """The canonical request and its target."""
    spelling: dict[str, str] = {}
    made = {
        "messages": messages.read_messages(native.body.get("messages"), spelling),
        **fields.read(native.body, spelling),
        **tools.read(native.body, spelling),
        **tools.read_format(native.body, spelling),
    }
    fields.read_usage(native.body, spelling)
    base, _, rest = native.url.partition(_CHAT)
    target = Target(
        model=str(native.body.get("model") or ""),
        base=base,
        vendor=vendor,
        api_version=rest.removeprefix(_VERSION) if rest.startswith(_VERSION) else "",
        spelling=spelling,
    )
    try:
        return msgspec.convert(made, ChatRequest), target
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", str(error)) from error


def decoder(heard: Heard) -> Decoder:
    """For one answer, streamed or in one piece."""
    return Answer(heard)


def _url(target: Target, path: str) -> str:
    return target.base + path + (_VERSION + target.api_version if target.api_version else "")
