"""Gemini, read by hand: all responses first, then part after part."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Call, Expected

JSON_TEXTS: tuple[str, ...] = ()

DIFFER: dict[str, tuple[Differ, ...]] = {
    "": (
        Differ("safetySettings", "What is too dangerous to say is the endpoint's configuration."),
        Differ("cachedContent", "What is stored at the vendor is the endpoint's configuration."),
        Differ("store", "What is stored at the vendor is the endpoint's configuration."),
        Differ("labels", "Labels for the bill are the endpoint's configuration."),
        Differ("modelArmorConfig", "Which filters look at it is the endpoint's configuration."),
        Differ("generationConfig.candidateCount", "A canonical request asks for one answer."),
        Differ("generationConfig.responseModalities", "A canonical answer is text."),
        Differ("generationConfig.speechConfig", "A canonical answer is text."),
        Differ("generationConfig.imageConfig", "A canonical answer is text."),
        Differ(
            "generationConfig.mediaResolution", "How large images may be is the endpoint's configuration."
        ),
    )
}

STOPS = {
    "STOP": "end",
    "MAX_TOKENS": "max_tokens",
    "MALFORMED_FUNCTION_CALL": "end",
    "UNEXPECTED_TOOL_CALL": "end",
    "TOO_MANY_TOOL_CALLS": "end",
    "MALFORMED_RESPONSE": "end",
    "MISSING_THOUGHT_SIGNATURE": "end",
    "OTHER": "end",
    "IMAGE_OTHER": "end",
    "NO_IMAGE": "end",
    "FINISH_REASON_UNSPECIFIED": "end",
    "CONTINUATION": "max_tokens",
    1: "end",
    2: "max_tokens",
}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    text = recording.response.data.decode()
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    read = [json.loads(line) for line in lines] if lines else json.loads(text)
    responses = read if isinstance(read, list) else [read]
    found = Expected(failed=any("error" in one for one in responses))
    candidates = [one["candidates"][0] for one in responses if one.get("candidates")]
    parts = [part for one in candidates for part in one.get("content", {}).get("parts", [])]
    found.text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
    found.thinking = "".join(part.get("text", "") for part in parts if part.get("thought"))
    found.signatures = [part["thoughtSignature"] for part in parts if part.get("thoughtSignature")]
    _add_calls(found, [part["functionCall"] for part in parts if "functionCall" in part])
    reasons = [one["finishReason"] for one in candidates if one.get("finishReason")]
    blocked = any(one.get("promptFeedback", {}).get("blockReason") for one in responses)
    found.failed = found.failed or not (reasons or blocked)
    reason = STOPS.get(reasons[-1], "refusal") if reasons else "refusal"
    found.stops = ("tool_calls" if found.calls and reason == "end" else reason,)
    for one in responses:
        usage = one.get("usageMetadata", {})
        if "promptTokenCount" in usage:
            read_in = usage["promptTokenCount"] + usage.get("toolUsePromptTokenCount", 0)
            found.tokens = read_in, usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
            found.cached = usage.get("cachedContentTokenCount")
    return found


def _add_calls(found: Expected, natives: list[dict[str, Any]]) -> None:
    """Each call that has a name, with the arguments of those after it that have none."""
    for native in natives:
        if "name" in native:
            given = native.get("args") or {}
            known = [call.id for call in found.calls]
            identity = native.get("id")
            found.calls.append(Call(None if identity in known else identity, native["name"], given))
        for part in native.get("partialArgs", []):
            _put(found.calls[-1].arguments, part)


def _put(arguments: dict[str, Any], part: dict[str, Any]) -> None:
    """One value into its place; paths here are names and indices with dots."""
    steps = [
        int(step) if step.isdigit() else step for step in re.findall(r"[A-Za-z_]\w*|\d+", part["jsonPath"])
    ]
    here: Any = arguments
    for step, after in pairwise(steps):
        if isinstance(here, list) and step == len(here):
            here.append([] if isinstance(after, int) else {})
        elif isinstance(here, dict):
            here.setdefault(step, [] if isinstance(after, int) else {})
        here = here[step]
    key, value = next((key, value) for key, value in part.items() if key.endswith("Value"))
    if key == "nullValue":
        here[steps[-1]] = None
        return
    before = here.get(steps[-1], "") if isinstance(here, dict) else ""
    here[steps[-1]] = before + value if isinstance(value, str) else value
