"""Anthropic Messages in the envelope of Amazon Bedrock (InvokeModel).

The path has the model and the choice of streaming, the body has a version, and answers come in AWS's frames.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import bedrock
from hearthnet_llm.vendors.anthropic import request as messages
from hearthnet_llm.vendors.anthropic.answer import Content
from hearthnet_llm.vendors.bedrock import AwsPieces
from hearthnet_llm.vendors.decoding import Decoder
from hearthnet_llm.vendors.json_access import text
from hearthnet_llm.vendors.wire import HttpRequest, Json, ResponseInfo, Target

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {**messages.SPELLINGS, "id": bedrock.SPELLING}
_ACTIONS: Final = ("invoke", "invoke-with-response-stream")
_VERSION: Final = "bedrock-2023-05-31"
_MOST_UNASKED: Final = 16_384
"""Default tokens of an answer: AWS deducts them from the account's quota beforehand."""


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """Return the request POST /model/{id}/invoke, or its streaming variant."""
    path = bedrock.model_path(target.model, _ACTIONS[bool(request.stream)], target.spelling.get("id", ""))
    answer = min(messages.longest_answer(request, target.model, target.answer), _MOST_UNASKED)
    body = messages.write(request, msgspec.structs.replace(target, answer=answer))
    version = target.api_version or _VERSION
    return HttpRequest("POST", target.base + path, {"anthropic_version": version, **body})


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """Return the request of a native one, as `Wire.read`."""
    spelling: dict[str, str] = {}
    base, model, streamed = bedrock.parse_path(native.url, _ACTIONS, spelling)
    request = messages.read_body(native.body, spelling, streamed)
    version = text(native.body.get("anthropic_version"), "anthropic_version")
    return request, Target(model, base, vendor, version, spelling)


def decoder(info: ResponseInfo) -> Decoder:
    """Return a decoder for one answer, streamed or in one piece."""
    return Decoder(AwsPieces(info.name, _opened), Content(info))


def _opened(kind: str, body: Json) -> Any:
    """Return the event in a frame of type chunk, or None."""
    try:
        return msgspec.json.decode(base64.b64decode(body.get("bytes") or ""))
    except (msgspec.DecodeError, binascii.Error, TypeError):
        return None
