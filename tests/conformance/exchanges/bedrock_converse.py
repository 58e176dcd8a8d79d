"""Amazon Bedrock's Converse and ConverseStream (AWS's API reference)."""

from __future__ import annotations

from tests.conformance.exchanges.writing import SHELF, Json, frame, framed, whole

MODEL = "/model/eu.amazon.nova-test-v1%3A0"
STREAMED, WHOLE = f"{MODEL}/converse-stream", f"{MODEL}/converse"
ASKED: Json = {
    "system": [{"text": "You keep the list of the larder."}],
    "messages": [{"role": "user", "content": [{"text": "How many jars are left, and is it cool enough?"}]}],
    "inferenceConfig": {"maxTokens": 800, "temperature": 0.25},
    "toolConfig": {
        "tools": [
            {
                "toolSpec": {
                    "name": "count_jars",
                    "description": "Counts jars",
                    "inputSchema": {"json": SHELF},
                }
            },
            {"toolSpec": {"name": "cellar_climate", "inputSchema": {"json": {"type": "object"}}}},
        ],
        "toolChoice": {"auto": {}},
    },
}
WITH_RESULTS: Json = {
    **ASKED,
    "messages": [
        *ASKED["messages"],
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Look first.", "signature": "bm92YS0x"}}},
                {"toolUse": {"toolUseId": "use_a", "name": "count_jars", "input": {"shelf": "top"}}},
                {"toolUse": {"toolUseId": "use_b", "name": "cellar_climate", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "use_a", "content": [{"json": {"jars": 14}}]}},
                {"toolResult": {"toolUseId": "use_b", "content": [{"text": "no sensor"}], "status": "error"}},
            ],
        },
    ],
}


def block(index: int, *deltas: Json, start: Json | None = None) -> list[bytes]:
    """A block with its pieces; only calls have a start."""
    head = [] if start is None else [frame("contentBlockStart", {"contentBlockIndex": index, "start": start})]
    pieces = [frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}) for delta in deltas]
    return [*head, *pieces, frame("contentBlockStop", {"contentBlockIndex": index})]


def use(name: str, identity: str) -> Json:
    """The start of a call."""
    return {"toolUse": {"toolUseId": identity, "name": name}}


def piece(value: str) -> Json:
    """A piece of a call's arguments."""
    return {"toolUse": {"input": value}}


def end(reason: str, read: int, written: int, kept: int = 0) -> list[bytes]:
    """The last two frames."""
    usage = {
        "inputTokens": read,
        "outputTokens": written,
        "totalTokens": read + written + kept,
        "cacheReadInputTokens": kept,
    }
    metadata = {"usage": usage, "metrics": {"latencyMs": 412}}
    return [frame("messageStop", {"stopReason": reason}), frame("metadata", metadata)]


START = frame("messageStart", {"role": "assistant"})
TWO_CALLS = [
    START,
    *block(0, {"text": "Ich sehe "}, {"text": "nach: 🫙."}),
    *block(1, piece('{"she'), piece('lf": "öben"}'), start=use("count_jars", "use_1")),
    *block(2, piece(""), start=use("cellar_climate", "use_2")),
    *end("tool_use", 402, 41, 64),
]
THOUGHTS = [
    START,
    *block(
        0,
        {"reasoningContent": {"text": "Fourteen, "}},
        {"reasoningContent": {"text": "say so."}},
        {"reasoningContent": {"signature": "bm92YS0y"}},
    ),
    *block(1, {"text": "Vierzehn Gläser."}),
    *end("end_turn", 120, 19),
]
CUT_OFF = [
    START,
    *block(0, piece('{"shelf": "bot'), start=use("count_jars", "use_3")),
    *end("max_tokens", 66, 800),
]
FAILED_INSIDE = frame("modelStreamErrorException", {"message": "The model stopped on its own"}, "exception")
ONE_ANSWER = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"text": "One moment."},
                {
                    "toolUse": {
                        "toolUseId": "use_4",
                        "name": "count_jars",
                        "input": {"shelf": "top", "why": None},
                    }
                },
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 51, "outputTokens": 23, "totalTokens": 74},
    "metrics": {"latencyMs": 300},
}

EXCHANGES: dict[str, dict[str, Json]] = {
    "bedrock-converse": {
        "two_calls": framed(STREAMED, ASKED, *TWO_CALLS),
        "thoughts": framed(STREAMED, WITH_RESULTS, *THOUGHTS),
        "cut_off": framed(STREAMED, ASKED, *CUT_OFF),
        "error_inside": framed(STREAMED, ASKED, *TWO_CALLS[:3], FAILED_INSIDE),
        "one_answer": whole(WHOLE, WITH_RESULTS, ONE_ANSWER),
        "refused": whole(WHOLE, ASKED, {"message": "Too many tokens, wait a little"}, status=429),
    }
}
