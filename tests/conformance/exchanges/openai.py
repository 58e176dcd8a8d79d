"""OpenAI's Chat Completions (platform.openai.com: "Chat", "Streaming", "Function calling")."""

from __future__ import annotations

from tests.conformance.exchanges.writing import SHELF, Json, sse, streamed, whole

PATH = "/v1/chat/completions"
DONE = "data: [DONE]\n\n"


def tool(name: str, parameters: Json) -> Json:
    """A tool as the request offers it."""
    return {
        "type": "function",
        "function": {"name": name, "description": f"The tool {name}", "parameters": parameters},
    }


def call(name: str, identity: str, arguments: str) -> Json:
    """A whole call."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


ASKED: Json = {
    "model": "gpt-test",
    "messages": [
        {"role": "system", "content": "You keep the list of the larder."},
        {"role": "user", "content": "How many jars are left, and is it cool enough?"},
    ],
    "tools": [tool("count_jars", SHELF), tool("cellar_climate", {"type": "object", "properties": {}})],
    "tool_choice": "auto",
    "max_completion_tokens": 640,
    "stream": True,
    "stream_options": {"include_usage": True},
}
WITH_RESULTS: Json = {
    **ASKED,
    "messages": [
        *ASKED["messages"],
        {
            "role": "assistant",
            "content": "I will look.",
            "tool_calls": [
                call("count_jars", "call_a", '{"shelf": "top"}'),
                call("cellar_climate", "call_b", "{}"),
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "14"},
        {"role": "tool", "tool_call_id": "call_b", "content": "no sensor"},
    ],
}


def chunk(reason: str | None = None, **delta: object) -> Json:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "chatcmpl-own",
        "object": "chat.completion.chunk",
        "created": 1770000000,
        "model": "gpt-test",
        "choices": [choice],
    }


def part(index: int, arguments: str, name: str = "", identity: str = "") -> Json:
    """A chunk with a piece of a call; its first has the name and the id."""
    function: Json = {"arguments": arguments, **({"name": name} if name else {})}
    head: Json = {"id": identity, "type": "function"} if identity else {}
    return chunk(tool_calls=[{"index": index, **head, "function": function}])


def counted(read: int, written: int, kept: int = 0) -> Json:
    """The chunk without choices that has the usage."""
    usage = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": kept},
    }
    return {**chunk(), "choices": [], "usage": usage}


TWO_CALLS = [
    chunk(role="assistant", content=""),
    chunk(content="Ich sehe "),
    chunk(content="nach: 🫙."),
    part(0, "", "count_jars", "call_1"),
    part(0, '{"she'),
    part(1, "", "cellar_climate", "call_2"),
    part(0, 'lf": "öben"}'),
    part(1, "{}"),
    chunk("tool_calls"),
    counted(301, 44, 128),
]
CUT_OFF = [part(0, '{"shelf": "bot', "count_jars", "call_3"), chunk("length"), counted(60, 640)]
FAILED_INSIDE = [
    chunk(content="There"),
    {"error": {"message": "The server had an error", "type": "server_error"}},
]
ANSWER: Json = {
    "id": "chatcmpl-own",
    "object": "chat.completion",
    "created": 1770000000,
    "model": "gpt-test",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "tool_calls": [call("count_jars", "call_4", '{"shelf": "top", "why": null}')],
            },
        }
    ],
    "usage": {"prompt_tokens": 52, "completion_tokens": 20, "total_tokens": 72},
}
REFUSED = {"error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": None}}
WHOLE = {name: value for name, value in WITH_RESULTS.items() if not name.startswith("stream")}

EXCHANGES: dict[str, dict[str, Json]] = {
    "openai": {
        "two_calls": streamed(PATH, ASKED, sse(*TWO_CALLS, end=DONE)),
        "text": streamed(
            PATH,
            WITH_RESULTS,
            sse(chunk(content="Vier"), chunk(content="zehn."), chunk("stop"), counted(9, 4), end=DONE),
        ),
        "cut_off": streamed(PATH, ASKED, sse(*CUT_OFF, end=DONE)),
        "error_inside": streamed(PATH, ASKED, sse(*FAILED_INSIDE)),
        "one_answer": whole(PATH, {**WHOLE, "parallel_tool_calls": False}, ANSWER),
        "refused": whole(PATH, ASKED, REFUSED, status=429),
    }
}
