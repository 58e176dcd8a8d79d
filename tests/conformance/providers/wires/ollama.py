"""Ollama's own wire, read by hand: all lines first, then one field after the other."""

from __future__ import annotations

import json
from typing import Any

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
    answers, whole = _objects(recording.response.data.decode())
    messages = [one["message"] for one in answers if one.get("message")]
    last = answers[-1] if answers else {}
    found = Expected(failed=not whole or last.get("error") is not None or not last.get("done"))
    found.words = last["error"] if isinstance(last.get("error"), str) else ""
    found.text = "".join(one.get("content") or "" for one in messages)
    found.thinking = "".join(one.get("thinking") or "" for one in messages)
    for call in (call for one in messages for call in one.get("tool_calls") or ()):
        _add_call(found, call)
    reason = "max_tokens" if last.get("done_reason") == "length" else "end"
    found.stops = ("tool_calls" if found.calls and reason == "end" else reason,)
    if "prompt_eval_count" in last and "eval_count" in last:
        found.tokens = last["prompt_eval_count"], last["eval_count"]
    return found


def _objects(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The objects one after the other, and whether nothing else follows."""
    found: list[dict[str, Any]] = []
    rest, reader = text.strip(), json.JSONDecoder()
    while rest:
        try:
            value, end = reader.raw_decode(rest)
        except ValueError:
            return found, False
        found.append(value)
        rest = rest[end:].strip()
    return found, True


def _add_call(found: Expected, call: dict[str, Any]) -> None:
    """One call; an id that is given twice tells nothing, and arguments may come as text."""
    name, given = call["function"]["name"], call["function"].get("arguments")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            found.broken.append(name)
            return
    known = {one.id for one in found.calls}
    found.calls.append(Call(call.get("id") if call.get("id") not in known else None, name, given or {}))
