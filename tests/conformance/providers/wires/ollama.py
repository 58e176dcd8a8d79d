"""Ollama's own wire, read by hand: all lines first, then one field after the other."""

from __future__ import annotations

import json

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Call, Expected

JSON_TEXTS: tuple[str, ...] = ()

DIFFER: dict[str, tuple[Differ, ...]] = {
    "": (
        Differ("keep_alive", "How long the model stays loaded is the endpoint's configuration."),
        Differ("truncate", "A context that is too long is shortened on the mesh."),
        Differ("shift", "A context that is too long is shortened on the mesh."),
        Differ("options.num_ctx", "How large the context is, is the endpoint's configuration."),
        Differ("options.num_keep", "A context that is too long is shortened on the mesh."),
        Differ("options.num_thread", "What the computer spends is the endpoint's configuration."),
        Differ("options.num_gpu", "What the computer spends is the endpoint's configuration."),
        Differ("options.num_batch", "What the computer spends is the endpoint's configuration."),
        Differ("options.repeat_last_n", "How far back a repetition counts is the endpoint's configuration."),
    )
}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    text = recording.response.data.decode()
    try:
        answers = [json.loads(text)]
    except ValueError:
        answers = [json.loads(line) for line in text.splitlines() if line.strip()]
    messages = [one["message"] for one in answers if "message" in one]
    last = answers[-1]
    found = Expected(failed="error" in last or not last.get("done"))
    found.text = "".join(one.get("content") or "" for one in messages)
    found.thinking = "".join(one.get("thinking") or "" for one in messages)
    for call in (call for one in messages for call in one.get("tool_calls") or ()):
        found.calls.append(Call(call.get("id"), call["function"]["name"], call["function"]["arguments"]))
    reason = "max_tokens" if last.get("done_reason") == "length" else "end"
    found.stops = ("tool_calls" if found.calls and reason == "end" else reason,)
    if "prompt_eval_count" in last:
        found.tokens = last["prompt_eval_count"], last["eval_count"]
    return found
