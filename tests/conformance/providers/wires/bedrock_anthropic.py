"""Anthropic Messages in Amazon Bedrock's envelope, read by hand."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

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
    )
}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    data = recording.response.data
    if data[:1] == b"{":
        return of_events([json.loads(data)])
    events = [json.loads(base64.b64decode(body["bytes"])) for kind, body in frames(data) if kind == "chunk"]
    failed = any(kind.endswith("Exception") for kind, _ in frames(data))
    return Expected(failed=True) if failed else of_events(events)


def frames(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Type and body of each frame, without a look at checksums."""
    while data:
        total, head = struct.unpack("!II", data[:8])
        names = _headers(data[12 : 12 + head])
        payload = data[12 + head : total - 4]
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
