"""The messages for the model: its own turn, results, notes about limits.

A tool's result is data. It is put into a message of role `tool` as JSON text, so that all of its content
stays inside a JSON string; an error begins with its code.

See: docs/protocol/agent.md#results-as-the-model-reads-them.
"""

from __future__ import annotations

from typing import Any

from hearthnet.agent.loop.state import RunState


def turn(state: RunState) -> list[dict[str, Any]]:
    """Return the assistant's message with its calls, then one message per result, in order.

    Parts that a vendor requires back (thoughts, seals of calls, the work of its own tools) are returned
    unchanged.
    """
    message: dict[str, Any] = {
        "role": "assistant",
        "content": _content(state),
        "tool_calls": [
            {"id": call.id, "name": call.model_name, "arguments": call.arguments, **call.sealed}
            for call in state.calls
        ],
    }
    if state.thoughts:
        message["thinking"] = state.thoughts
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": call.content, "is_error": call.is_error}
        for call in state.calls
    ]
    return [message, *results]


def results(state: RunState) -> list[dict[str, Any]]:
    """Return the results of the calls of a turn, for the caller to whom the turn is returned."""
    ends = {record.tool_call_id: record.status for record in state.records}
    return [
        {
            "tool_call_id": call.id,
            "name": call.name,
            "status": ends[call.id],
            "is_error": call.is_error,
            "content": call.content,
        }
        for call in state.calls
    ]


def _content(state: RunState) -> str | list[dict[str, Any]]:
    """Return the text; with the work of a vendor's own tools, parts of both in their order."""
    if not state.served:
        return "".join(state.text)
    parts: list[dict[str, Any]] = []
    done = 0
    for before, part in [*state.served, (len(state.text), {})]:
        if text := "".join(state.text[done:before]):
            parts.append({"type": "text", "text": text})
        done = before
        if part:
            parts.append(part)
    return parts


def limit_note(limit: str) -> dict[str, Any]:
    """Return the user message to the model that `limit`, in words, is reached.

    See: docs/protocol/agent.md#limits.
    """
    text = (
        f"[The limit of {limit} for this question is reached. No further tool can be called. "
        "Finish now: answer with what the results above say, and say what is missing.]"
    )
    return {"role": "user", "content": text}
