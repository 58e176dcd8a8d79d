"""Chat Completions as others serve it: what their references and issue trackers show of their own habits."""

from __future__ import annotations

from tests.conformance.exchanges.openai import (
    ASKED,
    DONE,
    PATH,
    TWO_CALLS,
    WITH_RESULTS,
    chunk,
    counted,
    part,
)
from tests.conformance.exchanges.writing import Json, sse, streamed

PLAIN = {name: value for name, value in ASKED.items() if name != "max_completion_tokens"} | {
    "max_tokens": 640
}


def repeated(arguments: str) -> Json:
    """A piece of a call whose name and id come with each."""
    function = {"name": "count_jars", "arguments": arguments}
    return chunk(tool_calls=[{"index": 0, "id": "call_r", "type": "function", "function": function}])


def at_once(name: str, identity: str, arguments: str) -> Json:
    """A whole call in one chunk, without an index."""
    function = {"name": name, "arguments": arguments}
    return chunk(tool_calls=[{"id": identity, "type": "function", "function": function}])


THINKING = [
    chunk(role="assistant", content=None, reasoning_content="Four"),
    chunk(content=None, reasoning_content="teen."),
    chunk(content="Vierzehn Gläser."),
    chunk("stop", content=""),
    counted(18, 9),
]
REASONED = [
    chunk(role="assistant", content="", reasoning="Four"),
    chunk(content="", reasoning="teen."),
    chunk(content="Vierzehn Gläser."),
    chunk("stop"),
    counted(18, 9),
]
NO_INDEX = [
    at_once("count_jars", "call_1", '{"shelf": "öben"}'),
    at_once("cellar_climate", "call_2", ""),
    chunk("tool_calls"),
    counted(70, 20),
]
WITH_COMMENTS = ": working\n\n" + sse(*NO_INDEX, end=DONE).replace("\n", "\r\n")

DEPLOYMENT = "/openai/deployments/gpt-test/chat/completions?api-version=2024-10-21"

EXCHANGES: dict[str, dict[str, Json]] = {
    "azure": {"two_calls": streamed(DEPLOYMENT, WITH_RESULTS, sse(*TWO_CALLS, end=DONE))},
    "openai-compatible_deepseek": {"thoughts": streamed(PATH, PLAIN, sse(*THINKING, end=DONE))},
    "openai-compatible_groq": {"thoughts": streamed(PATH, ASKED, sse(*REASONED, end=DONE))},
    "openai-compatible_mistral": {"no_index": streamed(PATH, PLAIN, sse(*NO_INDEX, end=DONE))},
    "openai-compatible_openrouter": {"comments": streamed(PATH, PLAIN, WITH_COMMENTS)},
    "openai-compatible_other": {
        "repeated_ids": streamed(
            PATH,
            PLAIN,
            sse(repeated('{"shelf": '), repeated('"top"}'), chunk("tool_calls"), counted(5, 6), end=DONE),
        ),
        "no_end": streamed(PATH, PLAIN, sse(part(0, "{}", "cellar_climate", "call_5"), chunk("stop"))),
    },
}
