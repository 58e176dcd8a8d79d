"""Anthropic's Messages through Amazon Bedrock's InvokeModel (AWS's reference; the events are Anthropic's)."""

from __future__ import annotations

import base64
import json

from tests.conformance.exchanges.anthropic import (
    ASKED,
    CUT_OFF,
    ONE_MESSAGE,
    THOUGHTS,
    TWO_CALLS,
    WITH_RESULTS,
)
from tests.conformance.exchanges.writing import Json, frame, framed, whole

MODEL = "/model/eu.anthropic.claude-test-v1%3A0"
STREAMED, WHOLE = f"{MODEL}/invoke-with-response-stream", f"{MODEL}/invoke"


def enveloped(asked: Json) -> Json:
    """The request without what its path says, and with the version that the envelope wants."""
    inner = {name: value for name, value in asked.items() if name not in ("model", "stream")}
    return {"anthropic_version": "bedrock-2023-05-31", **inner}


def chunks(events: list[Json]) -> list[bytes]:
    """Each event in a frame of its own."""
    return [
        frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()}) for event in events
    ]


THROTTLED = frame("throttlingException", {"message": "Too many requests at once"}, "exception")

EXCHANGES: dict[str, dict[str, Json]] = {
    "bedrock-anthropic": {
        "two_calls": framed(STREAMED, enveloped(ASKED), *chunks(TWO_CALLS)),
        "thoughts": framed(STREAMED, enveloped(WITH_RESULTS), *chunks(THOUGHTS)),
        "cut_off": framed(STREAMED, enveloped(ASKED), *chunks(CUT_OFF)),
        "throttled_inside": framed(STREAMED, enveloped(ASKED), *chunks(TWO_CALLS[:4]), THROTTLED),
        "one_message": whole(WHOLE, enveloped(ASKED), ONE_MESSAGE),
        "refused": whole(WHOLE, enveloped(ASKED), {"message": "The model is not enabled here"}, status=403),
    }
}
