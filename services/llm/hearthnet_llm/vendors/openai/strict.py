"""Reduction of a native request to the fields of OpenAI and Azure.

Other vendors ignore unknown fields; these two refuse the request (400). So mere hints are left out here, and
anything that changes the question is refused.

    fields that OpenAI lacks (`top_k`, `thinking`, `cache_control`)      left out
    empty lists, and tool settings without any tools                     left out
    an assistant message without content                                 an empty text
    an image or a file in a tool's result                                shown by the user after the results
    a video, a recording that is neither WAV nor MP3, a foreign tool     refused
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hearthnet_llm.vendors.json_access import refuse
from hearthnet_llm.vendors.wire import Json

_FIELDS: Final = frozenset(
    {
        "model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens", "temperature",
        "top_p", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "seed",
        "stop", "parallel_tool_calls", "verbosity", "service_tier", "prompt_cache_key",
        "prompt_cache_retention", "reasoning_effort", "tools", "tool_choice", "response_format",
        "web_search_options",
    }
)  # fmt: skip
_OF_TOOLS: Final = ("tools", "tool_choice", "parallel_tool_calls")
_MESSAGE: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("system", "developer", "user"), ("role", "content", "name")),
    "tool": ("role", "content", "tool_call_id"),
    "assistant": ("role", "content", "name", "refusal", "audio", "tool_calls"),
}
_PARTS: Final = ("text", "image_url", "input_audio", "file", "refusal")
"""The kinds of parts, each of which has a field of its name."""
_SOUNDS: Final = ("wav", "mp3")
_TOOLS: Final = ("function", "custom")
_MOVED_PARTS: Final = "What the tool gave back is shown in the user's message after this."
_UNNAMED: Final = "document.pdf"
_AT: Final = "/input/messages"


def narrowed(body: Json) -> Json:
    """Return the native request in the form that OpenAI accepts.

    Raises:
        HearthNetError: `bad_request` for content that it does not support.
    """
    made = {name: value for name, value in body.items() if name in _FIELDS and value != []}
    if "tools" in made:
        made["tools"] = [_tool(tool) for tool in made["tools"]]
    else:
        made = {name: value for name, value in made.items() if name not in _OF_TOOLS}
    made["messages"] = list(_messages(body["messages"]))
    return made


def _tool(tool: Json) -> Json:
    kind = tool["type"]
    if kind not in _TOOLS:
        refuse("/input/tools", f"OpenAI runs no tool {kind} in a chat; leave it out, or ask another model")
    return {"type": kind, kind: tool[kind]}


def _messages(messages: Iterable[Json]) -> Iterable[Json]:
    """Yield the messages, with media of tools moved behind the results of one turn."""
    shown: list[Json] = []
    for message in messages:
        if message["role"] != "tool" and shown:
            yield {"role": "user", "content": shown}
            shown = []
        made = {name: message[name] for name in _MESSAGE[message["role"]] if name in message}
        if isinstance(made.get("content"), list):
            made["content"] = [_part(part) for part in made["content"]]
        if message["role"] == "tool":
            shown += _remove_parts(made)
        if not made.get("content"):
            made["content"] = None if _has_other_content(made) else ""
        yield made
    if shown:
        yield {"role": "user", "content": shown}


def _remove_parts(made: Json) -> list[Json]:
    """Remove all parts but texts from a result, and return them."""
    content = made.get("content")
    if not isinstance(content, list):
        return []
    shown = [part for part in content if part["type"] != "text"]
    made["content"] = [part for part in content if part["type"] == "text"]
    if shown and not made["content"]:
        made["content"] = _MOVED_PARTS
    return shown


def _has_other_content(message: Json) -> bool:
    return any(message.get(name) for name in ("tool_calls", "refusal", "audio"))


def _part(part: Json) -> Json:
    kind = part["type"]
    if kind not in _PARTS:
        refuse(_AT, f"OpenAI takes no {kind.removesuffix('_url')} in a message")
    if kind == "input_audio" and part[kind]["format"] not in _SOUNDS:
        refuse(_AT, "OpenAI takes recordings as WAV or MP3 alone; say so in media_type")
    if kind == "file" and "file_data" in part[kind]:
        return {"type": kind, kind: _file(part[kind])}
    return {"type": kind, kind: part[kind]}


def _file(file: Json) -> Json:
    if not str(file["file_data"]).startswith("data:"):
        refuse(_AT, "OpenAI takes a document by value or as a file id, and fetches none")
    return {"filename": _UNNAMED, **file}
