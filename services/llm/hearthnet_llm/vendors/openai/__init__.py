"""OpenAI's Chat Completions, and everything compatible; vendors differ by profile.

See: dialect.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message
from hearthnet_llm.vendors.json_access import checked
from hearthnet_llm.vendors.openai import fields, messages, strict, tools
from hearthnet_llm.vendors.openai.answer import decoder
from hearthnet_llm.vendors.openai.dialect import SPELLINGS, Choices
from hearthnet_llm.vendors.openai.parts import read_cache, write_cache
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

__all__ = ["SPELLINGS", "as_chat", "decoder", "encode", "encode_complete", "read"]

_CHAT: Final = "/chat/completions"
_COMPLETE: Final = "/completions"
_VERSION: Final = "?api-version="
_CONTINUED: Final = 256
"""Default tokens of a continued text; servers would stop after 16."""


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """Return the native POST request.

    Raises:
        HearthNetError: `bad_request` for an image that was not fetched.
    """
    choices = Choices(target)
    body: Json = {} if choices["model"] == "path" else {"model": target.model}
    body["messages"] = messages.write_messages(request.messages, choices, tools.custom_names(request.tools))
    fields.write(request, choices, body)
    fields.write_usage(choices, body)
    tools.write(request, choices, body)
    fields.write_format(request, choices, body)
    body |= write_cache(request.cache)
    if choices["extras"] == "left_out":
        body = strict.narrowed(body)
    return HttpRequest("POST", _url(target, "" if choices["path"] == "own" else _CHAT), body)


def encode_complete(request: CompleteRequest, target: Target) -> HttpRequest:
    """Return the POST request to continue a text, as a chat for vendors without that endpoint."""
    choices = Choices(target)
    if choices["complete"] == "chat":
        return encode(as_chat(request), target)
    body: Json = {"model": target.model, "prompt": request.prompt}
    most = _CONTINUED if request.max_tokens is None else request.max_tokens
    fields.write(msgspec.structs.replace(request, max_tokens=most, stream=True), choices, body)
    if not request.stop:
        body.pop("stop", None)
    fields.write_usage(choices, body)
    return HttpRequest("POST", _url(target, _COMPLETE), body)


def as_chat(request: CompleteRequest) -> ChatRequest:
    """Return the continuation of a text as a conversation of one message."""
    values = msgspec.structs.asdict(request)
    question = Message(role="user", content=values.pop("prompt"))
    return ChatRequest(messages=[question], **{**values, "stop": request.stop or None, "stream": True})


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """Return the canonical request and its target."""
    spelling: dict[str, str] = {"extras": "sent"}
    made = {
        "messages": messages.read_messages(native.body.get("messages"), spelling),
        **fields.read(native.body, spelling),
        **tools.read(native.body, spelling),
        **fields.read_format(native.body, spelling),
        **read_cache(native.body),
    }
    fields.read_usage(native.body, spelling)
    return checked(made), _target(native, vendor, spelling)


def _target(native: HttpRequest, vendor: str, spelling: dict[str, str]) -> Target:
    """Return the target of a native request.

    Azure has the model in the path, and some servers have only one path.
    """
    address, _, version = native.url.partition(_VERSION)
    if not address.endswith(_CHAT):
        spelling["path"] = "own"
    base = address.removesuffix(_CHAT)
    model = native.body.get("model")
    if not isinstance(model, str):
        spelling["model"] = "path"
        model = base.rstrip("/").rpartition("/")[2]
    return Target(model=model, base=base, vendor=vendor, api_version=version, spelling=spelling)


def _url(target: Target, path: str) -> str:
    return target.base + path + (_VERSION + target.api_version if target.api_version else "")
