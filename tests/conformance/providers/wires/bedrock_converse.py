"""Amazon Bedrock's Converse, read by hand: all events first, then block after block."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Call, Expected
from tests.conformance.providers.wires.bedrock_anthropic import frames, lost

JSON_TEXTS = ("outputConfig.textFormat.structure.jsonSchema.schema",)

DIFFER: dict[str, tuple[Differ, ...]] = {
    "": (
        Differ("guardrailConfig", "Which guardrail watches is the endpoint's configuration."),
        Differ("requestMetadata", "Labels for the bill are the endpoint's configuration."),
        Differ("performanceConfig", "What the account pays for is the endpoint's configuration."),
        Differ("promptVariables", "Prompts that the vendor stores are not asked for here."),
        Differ("additionalModelResponseFieldPaths", "Fields outside the canonical answer are not asked for."),
        Differ(
            "additionalModelRequestFields.anthropic_beta",
            "Which trial features are on is the endpoint's configuration.",
        ),
    )
}

STOPS = {
    "end_turn": ("end",),
    "tool_use": ("tool_calls",),
    "max_tokens": ("max_tokens",),
    "model_context_window_exceeded": ("max_tokens",),
    "stop_sequence": ("stop_sequence",),
    "guardrail_intervened": ("refusal",),
    "content_filtered": ("refusal",),
    "refusal": ("refusal",),
    "malformed_model_output": ("end",),
    "malformed_tool_use": ("end",),
}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    data = recording.response.data
    if data[:1] == b"{":
        answer = json.loads(data)
        return _of(answer["output"]["message"]["content"] or [], answer["stopReason"], answer.get("usage"))
    events = list(frames(data))
    content: dict[int, dict[str, Any]] = {}
    for kind, body in events:
        if kind == "contentBlockStart":
            content[body["contentBlockIndex"]] = dict(body["start"])
        elif kind == "contentBlockDelta":
            _add(content.setdefault(body["contentBlockIndex"], {}), body["delta"])
    stop = next((body["stopReason"] for kind, body in events if kind == "messageStop"), None)
    usage = next((body["usage"] for kind, body in events if kind == "metadata"), None)
    heard = _of([content[index] for index in sorted(content)], stop, usage)
    failed = any(kind == "damaged" or kind.endswith("Exception") for kind, _ in events)
    return msgspec.structs.replace(heard, **lost(events)) if failed else heard


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    if "toolUse" in delta:
        block["pieces"] = block.get("pieces", "") + delta["toolUse"]["input"]
    for key, value in delta.get("reasoningContent", {}).items():
        thought = block.setdefault("reasoningContent", {})
        thought[key] = thought.get(key, "") + value


def _of(content: list[dict[str, Any]], stop: str | None, usage: dict[str, Any] | None) -> Expected:
    found = Expected(failed=stop is None)
    for block in content:
        cited = block.get("citationsContent", {}).get("content", [])
        found.text += block.get("text", "") + "".join(piece["text"] for piece in cited)
        thought = block.get("reasoningContent", {})
        thought = thought.get("reasoningText", thought)
        found.thinking += thought.get("text", "")
        found.signatures += [thought[key] for key in ("signature", "redactedContent") if thought.get(key)]
        used = block.get("toolUse", {})
        if used and used.get("type") != "server_tool_use":
            _add_call(found, block, used)
    found.stops = STOPS.get(stop, ("end",)) if stop else ()
    if found.stops in (("tool_calls",), ("end",)):
        found.stops = ("tool_calls",) if found.calls else ("end",)
    if usage is not None:
        kept = usage.get("cacheReadInputTokens") or 0
        read = usage["inputTokens"] + kept + (usage.get("cacheWriteInputTokens") or 0)
        found.tokens, found.cached = (read, usage["outputTokens"]), kept
    return found


def _add_call(found: Expected, block: dict[str, Any], used: dict[str, Any]) -> None:
    """One call; an id that is given twice tells nothing, and arguments may come as text."""
    given = block.get("pieces") or used.get("input") or {}
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            found.broken.append(used["name"])
            return
    known = {one.id for one in found.calls}
    identity = used["toolUseId"]
    found.calls.append(Call(None if identity in known else identity, used["name"], given))
