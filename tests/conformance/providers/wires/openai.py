"""Chat Completions, read by hand: all chunks first, then one field after the other."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Call, Expected

JSON_TEXTS = ("messages[].tool_calls[].function.arguments", "messages[].function_call.arguments")

_ONE = Differ("n", "A canonical request asks for one answer.")
DIFFER: dict[str, tuple[Differ, ...]] = {
    "": (_ONE,),
    "openrouter": (
        Differ("provider", "Who serves a model is the endpoint's configuration, not the caller's."),
    ),
    "perplexity": (
        Differ("search_context_size", "How the vendor searches is the endpoint's configuration."),
    ),
}

STOPS = {
    "stop": ("end",),
    "eos": ("end",),
    "length": ("max_tokens",),
    "tool_calls": ("tool_calls",),
    "function_call": ("tool_calls",),
    "content_filter": ("refusal",),
}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    text = recording.response.data.decode()
    chunks, ended = _chunks(text)
    errors = [
        chunk.get("error") or chunk
        for chunk in chunks
        if chunk.get("error") or chunk.get("object") == "error"
    ]
    found = Expected(failed=bool(errors))
    found.words = next((error["message"] for error in errors if isinstance(error, dict)), "")
    every = [choice for chunk in chunks for choice in chunk.get("choices") or []]
    first = [choice for choice in every if choice.get("index") == every[0].get("index")]
    said = [choice["delta"] if choice.get("delta") is not None else choice["message"] for choice in first]
    found.text = "".join(_text(one.get("content")) + (one.get("refusal") or "") for one in said)
    found.thinking = _thinking(said)
    found.calls, found.broken = _calls(said, streamed=any("delta" in choice for choice in first))
    reasons = [choice["finish_reason"] for choice in first if choice.get("finish_reason") is not None]
    found.failed = found.failed or not (reasons or ended)
    found.stops = _stops(reasons[-1] if reasons else "", found, said)
    for chunk in chunks:
        held = [one.get("usage") for one in chunk.get("choices") or []]
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or next(iter(held), None)
        if usage and usage.get("prompt_tokens") is not None:
            found.tokens = usage["prompt_tokens"], usage.get("completion_tokens") or 0
            found.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    found.signatures = _signatures(said)
    return found


def _chunks(text: str) -> tuple[list[dict[str, Any]], bool]:
    """All JSON objects, and whether the server has said that this is all."""
    split = re.split(r"\r\n|\r|\n", text)
    lines = [line.removeprefix("data:").strip() for line in split if line.startswith("data:")]
    if not lines:
        return [json.loads(text)], False
    return [json.loads(line) for line in lines if line not in ("", "[DONE]")], "[DONE]" in lines


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part["type"] == "text")
    if isinstance(content, dict):
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return content or ""


def _thinking(said: list[dict[str, Any]]) -> str:
    """The longest of the forms in which the same thoughts are told."""
    forms = [
        "".join(one.get("reasoning_content") or "" for one in said),
        "".join(one.get("reasoning") or "" for one in said),
        "".join(one.get("reasoning_text") or "" for one in said),
        "".join(
            detail.get("text") or detail.get("summary") or ""
            for one in said
            for detail in one.get("reasoning_details") or []
        ),
        "".join(
            piece["text"]
            for one in said
            if isinstance(one.get("content"), list)
            for part in one["content"]
            for piece in part.get("thinking") or part.get("summary") or []
        ),
    ]
    return max(forms, key=len)


def _calls(said: list[dict[str, Any]], streamed: bool) -> tuple[list[Call], list[str]]:
    """Calls by gathering: a delta with an id not seen before, or with a name and no id, starts one."""
    gathered: list[dict[str, Any]] = []
    for one in said:
        old = one.get("function_call") or {}
        for delta in one.get("tool_calls") or (
            [{"function": old}] if old.get("name") or old.get("arguments") else []
        ):
            _gather(gathered, delta, streamed)
    calls, broken = [], []
    taken: set[str] = set()
    for call in gathered:
        try:
            arguments = json.loads("".join(call["pieces"]) or "{}") or {}
        except ValueError:
            broken.append(call["name"])
            continue
        known = call["id"] if call["id"] and call["id"] not in taken else None
        taken.add(call["id"] or "")
        calls.append(Call(known, call["name"], arguments))
    return calls, broken


def _gather(gathered: list[dict[str, Any]], delta: dict[str, Any], streamed: bool) -> None:
    function = delta.get("function") or {}
    given, name, index = delta.get("id") or None, function.get("name") or None, delta.get("index")
    arguments = function.get("arguments")
    piece = (
        arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments is not None else ""
    )
    same = [
        call
        for call in gathered
        if streamed
        and (
            (given is not None and call["id"] == given)
            or (
                given is None and index is not None and call["index"] == index and not (name and call["name"])
            )
            or (given is None and index is None and name is None)
        )
    ]
    if same:
        same[-1]["pieces"].append(piece)
    else:
        gathered.append({"id": given, "name": name or "", "index": index, "pieces": [piece]})


def _stops(reason: str, found: Expected, said: list[dict[str, Any]]) -> tuple[str, ...]:
    """A call makes the turn end for it, whatever the server says; a refusal is one."""
    if reason in ("length", "content_filter"):
        return STOPS[reason]
    if found.calls:
        return ("tool_calls",)
    if any(one.get("refusal") for one in said):
        return ("refusal",)
    return ("end",) if reason in ("", "tool_calls") else STOPS[reason]


def _signatures(said: list[dict[str, Any]]) -> list[str]:
    """Proofs and ciphers of typed thoughts, each once, and Google's of a message or its calls."""
    proofs: list[str] = []
    for one in said:
        proofs += [
            detail[key]
            for detail in one.get("reasoning_details") or []
            for key in ("signature", "data")
            if detail.get(key)
        ]
        names = ("thought_signature", "reasoning_signature", "reasoning_opaque")
        proofs += [one[name] for name in names if one.get(name)]
        for call in one.get("tool_calls") or []:
            google = (call.get("extra_content") or {}).get("google") or {}
            proofs += [google["thought_signature"]] if google.get("thought_signature") else []
    return list(dict.fromkeys(proofs))
