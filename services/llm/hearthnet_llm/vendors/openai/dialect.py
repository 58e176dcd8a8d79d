"""Variants of names and forms in this protocol, and their choice for a target."""

from __future__ import annotations

from typing import Final

from hearthnet_llm.vendors import profiles
from hearthnet_llm.vendors.wire import Target

SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "n_predict"),
    "seed": ("seed", "random_seed"),
    "stop": ("list", "text"),
    "repetition": ("repetition_penalty", "repeat_penalty"),
    "sampling": ("sent", "none"),
    "usage": ("stream_options", "usage", "both", "none", "refused", "empty"),
    "mode": (
        "thinking.type",
        "enable_thinking",
        "reasoning.enabled",
        "chat_template_kwargs.enable_thinking",
        "chat_template_kwargs.thinking",
        "think",
        "prompt_mode",
        "disable_reasoning",
    ),
    "effort": ("reasoning_effort", "reasoning.effort", "chat_template_kwargs.reasoning_effort"),
    "budget": (
        "thinking.budget_tokens",
        "reasoning.max_tokens",
        "thinking_budget",
        "reasoning_budget",
        "thinking_token_budget",
        "max_thinking_tokens",
    ),
    "show": ("reasoning_format", "include_reasoning", "reasoning.exclude"),
    "keep": ("thinking.clear_thinking", "clear_thinking"),
    "thoughts": ("none", "reasoning_content", "reasoning", "both", "reasoning_text", "content"),
    "signatures": ("none", "extra_content", "reasoning_signature", "reasoning_opaque"),
    "system": ("system", "developer"),
    "functions": ("tools", "functions"),
    "tool_type": ("function", "none"),
    "strict": ("function", "tool"),
    "ids": ("sent", "left_out", "empty"),
    "no_calls": ("unsaid", "empty"),
    "arguments": ("text", "object"),
    "no_arguments": ("object", "unsaid", "null"),
    "no_content": ("list", "null"),
    "no_thoughts": ("unsaid", "empty"),
    "annotations": ("left_out", "sent"),
    "call_index": ("none", "index", "zero"),
    "required": ("required", "any"),
    "named": ("function", "flat", "untyped", "tool"),
    "choice": ("word", "object"),
    "lone_choice": ("left_out", "sent"),
    "schema": (
        "json_schema",
        "json_object",
        "flat",
        "value",
        "bare",
        "guided_json",
        "structured_outputs",
    ),
    "grammar": (
        "none",
        "grammar",
        "guided_grammar",
        "guided_regex",
        "structured_grammar",
        "structured_regex",
        "format_grammar",
        "format_regex",
    ),
    "plain_text": ("unsaid", "said"),
    "prefix": ("prefix", "partial"),
    "image": ("object", "text"),
    "audio": ("input_audio", "text", "audio_url"),
    "document": ("file", "document_url", "file_url", "file_id"),
    "web_search": ("web_search_options", "tool"),
    "server_tools": ("flat", "prefixed", "builtin_function"),
    "no_settings": ("unsaid", "empty"),
    "model": ("body", "path"),
    "path": ("chat", "own"),
    "complete": ("completions", "chat"),
    "extras": ("sent", "left_out"),
    "schema_name": ("always", "asked"),
}
"""Each choice with its values; the first is the default."""


class Choices:
    """The choices for one target: its own, else its vendor's, else the default."""

    def __init__(self, target: Target) -> None:
        self._own = target.spelling
        self._vendors = profiles.spelling(target.vendor, target.model)

    def __getitem__(self, choice: str) -> str:
        """Return the value of `choice`."""
        return self._own.get(choice) or self._vendors.get(choice) or SPELLINGS[choice][0]
