"""Variants of names and forms in this protocol, and each vendor's choices among them, as data.

A vendor's profile has its choices (`SPELLINGS`), the header of its key, and its hosts. By default everything
is as OpenAI has it. A target may choose for itself.

See: docs/vendors.md#what-is-asked-and-how-it-is-spelled.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

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
_NO_USAGE: Final = {"usage": "none"}
_THOUGHTS_BACK: Final = {"thoughts": "reasoning_content"}
_SWITCH: Final = {**_THOUGHTS_BACK, "mode": "thinking.type"}
_TEMPLATE_SWITCH: Final = {**_THOUGHTS_BACK, "mode": "chat_template_kwargs.enable_thinking"}
_REASONING: Final = {
    "thoughts": "reasoning",
    "effort": "reasoning.effort",
    "mode": "reasoning.enabled",
    "budget": "reasoning.max_tokens",
}
_HOSTED: Final = {"complete": "chat"}
"""Vendors on the internet have chats and no longer an endpoint to continue texts."""
_FIXED_SAMPLING: Final = (r"^(openai/)?(o\d|gpt-5)", {"sampling": "none"})
"""Models that refuse every temperature but their default."""


class Choices:
    """The choices for one target: its own, else its vendor's, else the default."""

    def __init__(self, target: Target) -> None:
        self._targets = target.spelling
        self._vendors = spelling(target.vendor, target.model)

    def __getitem__(self, choice: str) -> str:
        """Return the value of `choice`."""
        return self._targets.get(choice) or self._vendors.get(choice) or SPELLINGS[choice][0]


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor of the OpenAI protocol.

    `hosts` are those of its API, each with the names below it; they may get what a vendor may (sources.py).
    `models` has variants for models whose name matches a pattern. `key` is the header of the key: its name,
    and its value with {key} as a placeholder.
    """

    hosts: tuple[str, ...] = ()
    spelling: dict[str, str] = {}
    models: tuple[tuple[str, dict[str, str]], ...] = ()
    key: tuple[str, str] = ("Authorization", "Bearer {key}")


_OPENAI: Final = Vendor(
    hosts=("api.openai.com",),
    spelling={"max_tokens": "max_completion_tokens", "extras": "left_out"},
    models=(_FIXED_SAMPLING,),
)

VENDORS: Final[dict[str, Vendor]] = {
    "openai": _OPENAI,
    "azure": Vendor(
        hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
        spelling=_OPENAI.spelling,
        models=_OPENAI.models,
        key=("api-key", "{key}"),
    ),
    "alibaba": Vendor(
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
        spelling={**_THOUGHTS_BACK, "mode": "enable_thinking", "budget": "thinking_budget"},
    ),
    "avian": Vendor(hosts=("api.avian.io",), spelling=_THOUGHTS_BACK),
    "cerebras": Vendor(
        hosts=("api.cerebras.ai",), spelling={"thoughts": "reasoning", "keep": "clear_thinking"}
    ),
    "copilot": Vendor(hosts=("githubcopilot.com",), models=(_FIXED_SAMPLING,)),
    "deepseek": Vendor(hosts=("api.deepseek.com",), spelling=_SWITCH),
    "doubleword": Vendor(hosts=("api.doubleword.ai",), spelling=_SWITCH),
    "gemini": Vendor(hosts=("generativelanguage.googleapis.com",), spelling={"signatures": "extra_content"}),
    "gpustack": Vendor(spelling={**_THOUGHTS_BACK, "mode": "enable_thinking"}),
    "groq": Vendor(
        hosts=("api.groq.com",),
        spelling={"max_tokens": "max_completion_tokens", "thoughts": "reasoning", "show": "reasoning_format"},
    ),
    "huggingface": Vendor(hosts=("router.huggingface.co",)),
    "llamacpp": Vendor(
        spelling={**_TEMPLATE_SWITCH, "repetition": "repeat_penalty", "grammar": "grammar"},
    ),
    "lmstudio": Vendor(spelling={"repetition": "repeat_penalty"}),
    "minicpm": Vendor(hosts=("api.modelbest.cn",), spelling=_TEMPLATE_SWITCH),
    "mistral": Vendor(
        hosts=("api.mistral.ai",),
        spelling={
            **_NO_USAGE,
            "seed": "random_seed",
            "required": "any",
            "document": "document_url",
            "thoughts": "content",
        },
    ),
    "moonshotai": Vendor(hosts=("api.moonshot.ai", "api.moonshot.cn"), spelling=_SWITCH),
    "nvidia": Vendor(hosts=("integrate.api.nvidia.com",), spelling=_TEMPLATE_SWITCH),
    "ollama": Vendor(spelling={"thoughts": "reasoning"}),
    "openrouter": Vendor(
        hosts=("openrouter.ai",),
        spelling={**_REASONING, "web_search": "tool", "server_tools": "prefixed"},
        models=(_FIXED_SAMPLING,),
    ),
    "perplexity": Vendor(hosts=("api.perplexity.ai",)),
    "snowflake": Vendor(
        hosts=("snowflakecomputing.com",), spelling={**_REASONING, "max_tokens": "max_completion_tokens"}
    ),
    "together": Vendor(hosts=("api.together.xyz", "api.together.ai"), spelling={"thoughts": "reasoning"}),
    "venice": Vendor(hosts=("api.venice.ai",), spelling=_THOUGHTS_BACK),
    "vercel-gateway": Vendor(hosts=("ai-gateway.vercel.sh",), spelling=_REASONING, models=(_FIXED_SAMPLING,)),
    "vllm": Vendor(spelling=_TEMPLATE_SWITCH),
    "xai": Vendor(hosts=("api.x.ai",), spelling=_THOUGHTS_BACK),
    "zai": Vendor(
        hosts=("api.z.ai", "open.bigmodel.cn"), spelling={**_SWITCH, "keep": "thinking.clear_thinking"}
    ),
}
"""Vendors of the OpenAI protocol by name; an unlisted one gets the plain profile."""


def vendor(name: str) -> Vendor:
    """Return the profile called `name`, or the plain one."""
    return VENDORS.get(name) or Vendor()


def vendor_at(url: str) -> str:
    """Return the name of the vendor at `url`, or "" for a self-hosted server."""
    host = (urlsplit(url).hostname or "").lower()
    for name, profile in VENDORS.items():
        if any(host == domain or host.endswith(f".{domain}") for domain in profile.hosts):
            return name
    return ""


@cache
def spelling(name: str, model: str) -> dict[str, str]:
    """Return the variants of the vendor `name` for `model`."""
    profile = vendor(name)
    chosen = {**(_HOSTED if profile.hosts else {}), **profile.spelling}
    for pattern, special in profile.models:
        if re.search(pattern, model):
            chosen |= special
    return chosen
