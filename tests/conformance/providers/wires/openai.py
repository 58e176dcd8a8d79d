"""Chat Completions, read by hand: all chunks first, then one field after the other."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.conformance.providers.differences import Differ
from tests.conformance.providers.recording import Recording
from tests.conformance.providers.wires import Call, Expected

JSON_TEXTS = ("messages[].tool_calls[].function.arguments", "messages[].function_call.arguments")

_ENDPOINT = "the endpoint's configuration, not the caller's to ask for."
_PREDICTION = Differ(
    "prediction", "The text that the answer probably is only saves time, and no contract knows it."
)
_OPENAIS = (
    Differ("safety_identifier", "Who asks stays on the mesh; no vendor is told."),
    Differ("store", "A request never asks the vendor to keep it."),
    _PREDICTION,
)
DIFFER: dict[str, tuple[Differ, ...]] = {
    "": (
        Differ("n", "A canonical request asks for one answer."),
        Differ("user", "Who asks stays on the mesh; no vendor is told."),
        Differ("metadata", "Labels for the vendor's own records; nothing is kept there on purpose."),
    ),
    "openai": (
        *_OPENAIS,
        Differ("moderation", f"Whether the vendor judges what is said is {_ENDPOINT}"),
        Differ("modalities", "A canonical answer is text."),
        Differ("audio", "The voice of an answer that is not text."),
        Differ("stream_options.include_obfuscation", f"Padding against listeners is {_ENDPOINT}"),
    ),
    "other": _OPENAIS,
    "azure": (
        *_OPENAIS,
        Differ("data_sources", f"Which of the vendor's indexes it searches is {_ENDPOINT}"),
    ),
    "copilot": (
        *_OPENAIS,
        Differ("stream_options.include_obfuscation", f"Padding against listeners is {_ENDPOINT}"),
    ),
    "alibaba": (
        Differ("enable_search", f"Whether the vendor searches by itself is {_ENDPOINT}"),
        Differ("search_options", f"How the vendor searches is {_ENDPOINT}"),
        Differ("incremental_output", "Streams are always asked for in pieces."),
    ),
    "groq": (
        Differ("search_settings", f"Where the vendor's own tools search is {_ENDPOINT}"),
        Differ("include_domains", f"Where the vendor's own tools search is {_ENDPOINT}"),
        Differ("exclude_domains", f"Where the vendor's own tools search is {_ENDPOINT}"),
        Differ("compound_custom", f"Which models and tools the vendor's own agent has is {_ENDPOINT}"),
        Differ("citation_options", f"How the vendor marks its sources is {_ENDPOINT}"),
    ),
    "llamacpp": (
        Differ("cache_prompt", f"What the server keeps of a prompt is {_ENDPOINT}"),
        Differ("id_slot", f"Which of its slots a server uses is {_ENDPOINT}"),
        Differ("timings_per_token", "The server's own timing; nothing reads it."),
    ),
    "lmstudio": (Differ("ttl", f"How long a server keeps an idle model is {_ENDPOINT}"),),
    "mistral": (
        _PREDICTION,
        Differ("safe_prompt", f"A prompt that the vendor puts before all others is {_ENDPOINT}"),
        Differ("guardrails", f"What the vendor watches over is {_ENDPOINT}"),
    ),
    "ollama": (
        Differ("keep_alive", f"How long a server keeps an idle model is {_ENDPOINT}"),
        Differ("options", "This path of the server reads none of them."),
    ),
    "openrouter": (
        Differ("provider", f"Who serves a model is {_ENDPOINT}"),
        Differ("models", f"Who steps in for a model is {_ENDPOINT}"),
        Differ("plugins", f"What the vendor does with files and the web is {_ENDPOINT}"),
        Differ("transforms", f"How the vendor cuts a long prompt is {_ENDPOINT}"),
        Differ("preset", f"What the vendor keeps under a name is {_ENDPOINT}"),
        Differ("modalities", "A canonical answer is text."),
        Differ("image_config", "How an answer looks that is not text."),
    ),
    "perplexity": (
        Differ("search_context_size", f"How the vendor searches is {_ENDPOINT}"),
        Differ("search_domain_filter", f"How the vendor searches is {_ENDPOINT}"),
        Differ("search_recency_filter", f"How the vendor searches is {_ENDPOINT}"),
        Differ("search_mode", f"How the vendor searches is {_ENDPOINT}"),
        Differ("search_after_date_filter", f"How the vendor searches is {_ENDPOINT}"),
        Differ("return_related_questions", "What might be asked next is no part of the answer."),
        Differ("return_images", "A canonical answer is text."),
    ),
    "snowflake": (Differ("guardrails", f"What the vendor watches over is {_ENDPOINT}"),),
    "together": (
        Differ("safety_model", f"Which model watches over the answer is {_ENDPOINT}"),
        Differ("context_length_exceeded_behavior", "What does not fit is cut here, or refused."),
    ),
    "venice": (
        Differ("venice_parameters", f"The vendor's own prompt, search and characters are {_ENDPOINT}"),
    ),
    "vllm": (
        Differ("stream_options.continuous_usage_stats", "The last count is what counts."),
        Differ("skip_special_tokens", f"How a server writes tokens down is {_ENDPOINT}"),
        Differ("add_generation_prompt", f"How a server fills its template is {_ENDPOINT}"),
    ),
    "vercel-gateway": (Differ("providerOptions", f"Who serves a model, and how, is {_ENDPOINT}"),),
    "xai": (Differ("search_parameters", f"How the vendor searches is {_ENDPOINT}"),),
    "zai": (
        Differ("tool_stream", "Calls are put together here however they come."),
        Differ("request_id", "A name for the vendor's own records."),
    ),
}

STOPS = {
    "length": ("max_tokens",),
    "max_output_tokens": ("max_tokens",),
    "safety": ("refusal",),
    "prohibited_content": ("refusal",),
    "blocklist": ("refusal",),
    "recitation": ("refusal",),
    "max_tokens": ("max_tokens",),
    "model_length": ("max_tokens",),
    "content_filter": ("refusal",),
    "sensitive": ("refusal",),
    "stop_sequence": ("stop_sequence",),
}
"""Reasons that are not simply the end."""
FAILED = {"error", "abort", "network_error", "insufficient_system_resource", "engine_overloaded"}


def expect(recording: Recording) -> Expected:
    """What an answer says."""
    text = recording.response.data.decode()
    if text.lstrip().startswith("<"):
        return Expected(failed=True, words="HTML")
    chunks, ended = _chunks(text)
    errors = [chunk.get("error") or chunk for chunk in chunks if _is_error(chunk)]
    found = Expected(failed=bool(errors))
    found.words = next((_words(error) for error in errors), "")
    every = [choice for chunk in chunks for choice in chunk.get("choices") or []]
    first = [choice for choice in every if choice.get("index") == every[0].get("index")]
    said = [
        choice.get("delta") if choice.get("delta") is not None else choice.get("message") for choice in first
    ]
    said = [one or {"content": choice.get("text")} for one, choice in zip(said, first, strict=True)]
    found.text = "".join(
        _text(one.get("content"))
        + ((one.get("audio") or {}).get("transcript") or "")
        + (one.get("refusal") or "")
        for one in said
    )
    found.thinking = _thinking(said)
    found.calls, found.broken = _calls(said, streamed=any("delta" in choice for choice in first))
    reasons = [choice["finish_reason"] for choice in first if choice.get("finish_reason") is not None]
    found.failed = found.failed or not (reasons or ended) or any(one.get("error") for one in first)
    reasons = [str(reason).lower().replace("-", "_") for reason in reasons]
    found.failed = found.failed or bool(FAILED & {*reasons})
    found.stops = _stops(reasons[-1] if reasons else "", found, said)
    for chunk in chunks:
        held = [one.get("usage") for one in chunk.get("choices") or []]
        usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or next(iter(held), None)
        if usage and usage.get("prompt_tokens") is not None:
            found.tokens = max(0, usage["prompt_tokens"]), usage.get("completion_tokens") or 0
            kept = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            others = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
            found.cached = kept or next((usage[name] for name in others if usage.get(name)), None)
    found.signatures = _signatures(said)
    return found


def _chunks(text: str) -> tuple[list[dict[str, Any]], bool]:
    """All JSON objects, and whether the server has said that this is all."""
    split = re.split(r"\r\n|\r|\n", text)
    lines = [line.removeprefix("data:").strip() for line in split if line.startswith("data:")]
    if not lines:
        return [json.loads(text, strict=False)], False
    return [json.loads(line) for line in lines if line not in ("", "[DONE]")], "[DONE]" in lines


def _is_error(chunk: dict[str, Any]) -> bool:
    """An error of any shape: said to be one, or words where choices should be."""
    if chunk.get("error") or "error" in (chunk.get("object"), chunk.get("type")):
        return True
    return "choices" not in chunk and any(chunk.get(name) for name in ("message", "detail", "errors", "msg"))


def _words(error: Any) -> str:
    """What it says, if that is a text."""
    while isinstance(error, dict | list):
        inner = (
            error[:1]
            if isinstance(error, list)
            else [error[name] for name in ("error", "message", "detail", "errors", "msg") if error.get(name)]
        )
        if not inner:
            return ""
        error = inner[0]
    return str(error)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
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
            for piece in _pieces(part.get("thinking") or part.get("summary") or [])
        ),
    ]
    return max(forms, key=len)


def _pieces(thinking: Any) -> list[dict[str, Any]]:
    return [{"text": thinking}] if isinstance(thinking, str) else thinking


def _calls(said: list[dict[str, Any]], streamed: bool) -> tuple[list[Call], list[str]]:
    """Calls by gathering: a delta with an id not seen before, or with a name and no id, starts one."""
    gathered: list[dict[str, Any]] = []
    for one in said:
        old = one.get("function_call") or {}
        deltas = one.get("tool_calls") or (
            [{"function": old}] if old.get("name") or old.get("arguments") else []
        )
        for place, delta in enumerate(deltas):
            _gather(gathered, delta, streamed, len(deltas) - place)
    calls, broken = [], []
    taken: set[str] = set()
    for call in gathered:
        try:
            written = "".join(call["pieces"])
            arguments = {"input": written} if call["custom"] else json.loads(written or "{}") or {}
        except ValueError:
            broken.append(call["name"])
            continue
        known = call["id"] if call["id"] and call["id"] not in taken else None
        taken.add(call["id"] or "")
        calls.append(Call(known, call["name"], arguments))
    return calls, broken


def _gather(gathered: list[dict[str, Any]], delta: dict[str, Any], streamed: bool, from_end: int) -> None:
    function = delta.get("function") or delta.get("custom") or {}
    given, name, index = delta.get("id") or None, function.get("name") or None, delta.get("index")
    arguments = function.get("arguments", function.get("input"))
    piece = (
        arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments is not None else ""
    )
    if given is not None:
        same = [call for call in gathered if call["id"] == given]
    elif index is not None:
        same = [call for call in gathered if call["index"] == index]
        if same and name and piece and _is_whole("".join(same[-1]["pieces"])):
            same = []
    else:
        same = [] if name else gathered[-from_end:][:1]
    if same and streamed:
        same[-1]["pieces"].append(piece)
        same[-1]["name"] = same[-1]["name"] or name or ""
    else:
        gathered.append(
            {"id": given, "name": name or "", "index": index, "pieces": [piece], "custom": "custom" in delta}
        )


def _is_whole(text: str) -> bool:
    try:
        return bool(text) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _stops(reason: str, found: Expected, said: list[dict[str, Any]]) -> tuple[str, ...]:
    """A call makes the turn end for it, whatever the server says; a refusal is one."""
    if reason in STOPS:
        return STOPS[reason]
    if found.calls:
        return ("tool_calls",)
    if any(one.get("refusal") for one in said):
        return ("refusal",)
    return ("end",)


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
