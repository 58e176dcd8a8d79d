"""Anthropic Messages in Amazon Bedrock's envelope, read by hand."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Expected
from tests.conformance.providers.wires.anthropic import DIFFER as ANTHROPICS
from tests.conformance.providers.wires.anthropic import of_events

JSON_TEXTS: tuple[str, ...] = ()

ELSEWHERE = ("fallbacks", "fallback_credit_token", "inference_geo", "diagnostics")
"""What Anthropic offers itself and Bedrock does not."""
DIFFER: dict[str, tuple[Differ, ...]] = {
    "": (
        *(one for one in ANTHROPICS[""] if one.path not in ELSEWHERE),
        Differ("anthropic_beta", "Which trial features are on is the endpoint's configuration."),
        Differ("amazon-bedrock-guardrailConfig", "Which guardrail watches is the endpoint's configuration."),
    )
}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    data = recording.response.data
    if data[:1] == b"{":
        return of_events([json.loads(data)])
    found = list(frames(data))
    events = [json.loads(base64.b64decode(body["bytes"])) for kind, body in found if kind == "chunk"]
    heard = of_events(events) if events else Expected()
    whole = events and len(events) == len(found)
    return heard if whole else msgspec.structs.replace(heard, **lost(found))


def lost(found: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What an answer is that ends in an exception, whose words are told, or in damage."""
    words = [str(body.get("message", "")) for kind, body in found if kind.endswith("Exception")]
    return {"failed": True, "words": "".join(words[:1])}


def frames(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Type and body of each frame; of type damaged where the bytes are none, or not all of them."""
    while data:
        total, head = struct.unpack("!II", data[:8]) if len(data) >= 8 else (0, 0)
        whole = data[:total]
        if total < 16 or len(whole) < total or zlib.crc32(whole[:-4]) != int.from_bytes(whole[-4:]):
            yield "damaged", {}
            return
        names = _headers(whole[12 : 12 + head])
        payload = whole[12 + head : total - 4]
        yield names.get(":event-type") or names.get(":exception-type", ""), json.loads(payload or b"{}")
        data = data[total:]


def _headers(data: bytes) -> dict[str, str]:
    """The headers, which are all texts here (type 7)."""
    found = {}
    while data:
        name_end = 1 + data[0]
        size = struct.unpack("!H", data[name_end + 1 : name_end + 3])[0]
        found[data[1:name_end].decode()] = data[name_end + 3 : name_end + 3 + size].decode()
        data = data[name_end + 3 + size :]
    return found
