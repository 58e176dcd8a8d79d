"""Ollama's /api/chat (its API reference: "Generate a chat completion")."""

from __future__ import annotations

import json

from tests.conformance.exchanges.writing import SHELF, Json, streamed, whole

PATH = "/api/chat"
LINES = "application/x-ndjson"


def tool(name: str, description: str, parameters: Json) -> Json:
    """A tool as the request offers it."""
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def call(name: str, **arguments: object) -> Json:
    """A call: no id, and arguments as an object."""
    return {"function": {"name": name, "arguments": arguments}}


ASKED: Json = {
    "model": "llama-test",
    "messages": [
        {"role": "system", "content": "You keep the list of the larder."},
        {"role": "user", "content": "How many jars are left, and is it cool enough?"},
    ],
    "tools": [
        tool("count_jars", "Counts the jars on a shelf", SHELF),
        tool("cellar_climate", "Measures the cellar", {"type": "object", "properties": {}}),
    ],
    "options": {"temperature": 0.25, "num_predict": 300},
    "stream": True,
}
WITH_RESULTS: Json = {
    **ASKED,
    "think": True,
    "messages": [
        *ASKED["messages"],
        {"role": "assistant", "content": "", "tool_calls": [call("count_jars", shelf="top")]},
        {"role": "tool", "tool_name": "count_jars", "content": "14"},
    ],
}
HEAD = {"model": "llama-test", "created_at": "2026-02-03T04:05:06.7Z"}
DONE = {"done": True, "done_reason": "stop", "total_duration": 99, "prompt_eval_count": 61, "eval_count": 12}


def lines(*messages: Json, **last: object) -> str:
    """A stream: one JSON object a line; what ends it has the counts."""
    said = [{**HEAD, "message": {"role": "assistant", **one}, "done": False} for one in messages]
    ended = {**HEAD, "message": {"role": "assistant", "content": ""}, **DONE, **last}
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (*said, ended))


TWO_CALLS = lines(
    {"content": "Ich sehe "},
    {"content": "nach: 🫙."},
    {"content": "", "tool_calls": [call("count_jars", shelf="öben")]},
    {"content": "", "tool_calls": [call("cellar_climate")]},
)
THOUGHTS = lines(
    {"content": "", "thinking": "Fourteen, "},
    {"content": "", "thinking": "say so."},
    {"content": "Vierzehn."},
)
FAILED_INSIDE = lines({"content": "There"}).splitlines()[0] + '\n{"error": "the runner has ended"}\n'
ONE_ANSWER = {
    **HEAD,
    "message": {
        "role": "assistant",
        "content": "",
        "tool_calls": [call("count_jars", shelf="top", why=None)],
    },
    **DONE,
}

EXCHANGES: dict[str, dict[str, Json]] = {
    "ollama": {
        "two_calls": streamed(PATH, ASKED, TWO_CALLS, LINES),
        "thoughts": streamed(PATH, WITH_RESULTS, THOUGHTS, LINES),
        "cut_off": streamed(PATH, ASKED, lines({"content": "There are"}, done_reason="length"), LINES),
        "error_inside": streamed(PATH, ASKED, FAILED_INSIDE, LINES),
        "one_answer": whole(PATH, {**WITH_RESULTS, "stream": False}, ONE_ANSWER),
        "load": whole(
            PATH,
            {"model": "llama-test", "messages": []},
            {**HEAD, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "load"},
        ),
        "refused": whole(PATH, ASKED, {"error": "model 'llama-test' not found"}, status=404),
    }
}
