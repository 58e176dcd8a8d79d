"""Anthropic Messages, read by hand: all events first, then block after block."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Call, Expected

JSON_TEXTS: tuple[str, ...] = ()

DIFFER: dict[str, tuple[Differ, ...]] = {
    "": (
        Differ("metadata", "Who the user is stays on the mesh."),
        Differ("container", "Where the vendor runs code is the endpoint's configuration."),
        Differ("context_management", "What of a long conversation is kept is decided on the mesh."),
        Differ("mcp_servers", "Tools of other servers come over the mesh, with its consent."),
        Differ("compaction", "What of a long conversation is kept is decided on the mesh."),
        Differ("fallbacks", "Who answers where a model declines is decided on the mesh."),
        Differ("fallback_credit_token", "What the account pays for is the endpoint's configuration."),
        Differ("speed", "What the account pays for is the endpoint's configuration."),
        Differ("inference_geo", "Where the vendor computes is the endpoint's configuration."),
        Differ("diagnostics", "Why the vendor kept nothing is not asked for here."),
    ),
}

STOPS = {
    "end_turn": ("end",),
    "pause_turn": ("end",),
    "compaction": ("end",),
    "tool_use": ("tool_calls",),
    "max_tokens": ("max_tokens",),
    "model_context_window_exceeded": ("max_tokens",),
    "stop_sequence": ("stop_sequence",),
    "refusal": ("refusal",),
}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    text = recording.response.data.decode()
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    said = [json.loads(line) for line in lines if line.strip() != "[DONE]"]
    return of_events(said or [json.loads(text)])


def of_events(events: list[dict[str, Any]]) -> Expected:
    """What the events of a stream say, or the one message."""
    if any(event["type"] == "error" for event in events):
        return Expected(failed=True, text=_texts(events, "text"), thinking=_texts(events, "thinking"))
    blocks, usage, reason = _message(events)
    if reason is None and events[-1]["type"] == "message_stop":
        reason = "end_turn"
    found = Expected(failed=reason is None)
    found.text = "".join(block.get("text") or "" for block in blocks if block["type"] == "text")
    found.thinking = "".join(block.get("thinking") or "" for block in blocks if block["type"] == "thinking")
    for block in blocks:
        found.signatures += [block[key] for key in ("signature", "data") if block.get(key)]
        if block["type"] == "tool_use":
            _add_call(found, block)
    found.stops = STOPS[reason] if reason else ()
    if found.stops == ("tool_calls",) and not found.calls:
        found.stops = ("end",)
    inputs = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    if "output_tokens" in usage:
        found.tokens = sum(usage.get(name) or 0 for name in inputs), usage["output_tokens"]
    found.cached = usage.get("cache_read_input_tokens")
    return found


def _add_call(found: Expected, block: dict[str, Any]) -> None:
    try:
        given = json.loads(block["json"]) if block.get("json") else block["input"]
    except ValueError:
        found.broken.append(block["name"])
        return
    known = [call.id for call in found.calls]
    found.calls.append(Call(None if block["id"] in known else block["id"], block["name"], given))


def _message(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any], str | None]:
    """The blocks, the usage and the reason to stop."""
    if events[0]["type"] == "message":
        return events[0]["content"], events[0].get("usage") or {}, events[0]["stop_reason"]
    blocks: dict[tuple[int, int], dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    reason: str | None = None
    begun: list[str | None] = []
    for event in events:
        if event["type"] == "message_start" and event["message"].get("id") not in begun:
            begun.append(event["message"].get("id"))
            content = event["message"].get("content") or []
            blocks |= {(len(begun), place - len(content)): dict(block) for place, block in enumerate(content)}
            reason = event["message"].get("stop_reason")
        if event["type"] == "content_block_start":
            blocks[len(begun), event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            _add(blocks[len(begun), event["index"]], event["delta"])
        elif event["type"] in ("message_start", "message_delta"):
            counted = event.get("usage") or event.get("message", {}).get("usage") or {}
            usage |= {name: count for name, count in counted.items() if count is not None}
            reason = event.get("delta", {}).get("stop_reason") or reason
    return [blocks[index] for index in sorted(blocks)], usage, reason


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, into in (
        ("text", "text"),
        ("thinking", "thinking"),
        ("signature", "signature"),
        ("partial_json", "json"),
    ):
        if key in delta:
            block[into] = block.get(into, "") + delta[key]


def _texts(events: list[dict[str, Any]], key: str) -> str:
    """The deltas before an error."""
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return "".join(delta.get(key, "") for delta in deltas)
