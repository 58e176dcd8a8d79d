"""Anthropic's Messages (docs.anthropic.com: "Messages", "Streaming messages", "Extended thinking")."""

from __future__ import annotations

from tests.conformance.exchanges.writing import SHELF, Json, sse, streamed, whole

PATH = "/v1/messages"
TOOLS = [
    {"name": "count_jars", "description": "Counts the jars on a shelf", "input_schema": SHELF},
    {"name": "cellar_climate", "input_schema": {"type": "object", "properties": {}}},
]
ASKED: Json = {
    "model": "claude-test",
    "max_tokens": 900,
    "system": "You keep the list of the larder.",
    "messages": [{"role": "user", "content": "How many jars are left, and is it cool enough?"}],
    "tools": TOOLS,
    "stream": True,
}
WITH_RESULTS: Json = {
    **ASKED,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "max_tokens": 4096,
    "messages": [
        *ASKED["messages"],
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Two things to look up.", "signature": "c2lnLTE="},
                {"type": "text", "text": "I will look."},
                {"type": "tool_use", "id": "toolu_a", "name": "count_jars", "input": {"shelf": "top"}},
                {"type": "tool_use", "id": "toolu_b", "name": "cellar_climate", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": "14"},
                {"type": "tool_result", "tool_use_id": "toolu_b", "content": "no sensor", "is_error": True},
                {"type": "text", "text": "And in German, please."},
            ],
        },
    ],
}


def start(tokens: int, cached: int = 0) -> Json:
    """The first event."""
    usage = {"input_tokens": tokens, "cache_read_input_tokens": cached, "output_tokens": 1}
    message: Json = {
        "id": "msg_own",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return {"type": "message_start", "message": message}


def block(index: int, head: Json, *deltas: Json) -> list[Json]:
    """A block with its pieces."""
    return [
        {"type": "content_block_start", "index": index, "content_block": head},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str, tokens: int) -> list[Json]:
    """The last two events."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}},
        {"type": "message_stop"},
    ]


def text(value: str) -> Json:
    """A piece of text."""
    return {"type": "text_delta", "text": value}


def arguments(value: str) -> Json:
    """A piece of a call's arguments."""
    return {"type": "input_json_delta", "partial_json": value}


def used(name: str, identity: str) -> Json:
    """The head of a call."""
    return {"type": "tool_use", "id": identity, "name": name, "input": {}}


TEXT: Json = {"type": "text", "text": ""}
TWO_CALLS = [
    start(411, 300),
    *block(0, TEXT, text("Ich sehe "), text("nach: 🫙.")),
    {"type": "ping"},
    *block(1, used("count_jars", "toolu_1"), arguments(""), arguments('{"she'), arguments('lf": "öben"}')),
    *block(2, used("cellar_climate", "toolu_2"), arguments("")),
    *end("tool_use", 58),
]
THOUGHTS = [
    start(90),
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Fourteen, "},
        {"type": "thinking_delta", "thinking": "say so."},
        {"type": "signature_delta", "signature": "c2lnLTI="},
    ),
    *block(1, {"type": "redacted_thinking", "data": "aGlkZGVu"}),
    *block(2, TEXT, text("Vierzehn Gläser.")),
    *end("end_turn", 31),
]
CUT_OFF = [
    start(77),
    *block(0, used("count_jars", "toolu_3"), arguments('{"shelf": "bot')),
    *end("max_tokens", 900),
]
OVERLOADED = [
    start(12),
    *block(0, TEXT, text("Let me"))[:2],
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
]
ONE_MESSAGE = {
    **start(50)["message"],
    "content": [
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "id": "toolu_4", "name": "count_jars", "input": {"shelf": "top", "why": None}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 50, "output_tokens": 22},
}
REFUSED = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down: 5 a minute"}}

EXCHANGES: dict[str, dict[str, Json]] = {
    "anthropic": {
        "two_calls": streamed(PATH, ASKED, sse(*TWO_CALLS, named=True)),
        "thoughts": streamed(PATH, WITH_RESULTS, sse(*THOUGHTS, named=True)),
        "cut_off": streamed(PATH, ASKED, sse(*CUT_OFF, named=True)),
        "error_inside": streamed(PATH, ASKED, sse(*OVERLOADED, named=True)),
        "one_message": whole(
            PATH,
            {**ASKED, "stream": False, "tool_choice": {"type": "any"}, "stop_sequences": ["FIN"]},
            ONE_MESSAGE,
        ),
        "refused": whole(PATH, ASKED, REFUSED, status=429),
    }
}
