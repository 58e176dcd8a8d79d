"""Differences between the vendors of one protocol, as data.

A profile has a vendor's choices among the protocol's variants (`Wire.SPELLINGS`), the header of its key, and
its hosts. By default everything is as the protocol's own vendor has it.

See: docs/vendors.md#what-is-asked-and-how-it-is-spelled.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final
from urllib.parse import urlsplit

import msgspec


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor of the OpenAI protocol.

    `models` has variants for models whose name matches a pattern. `key` is the header of the key: its name,
    and its value with {key} as a placeholder.
    """

    hosts: tuple[str, ...] = ()
    spelling: dict[str, str] = {}
    models: tuple[tuple[str, dict[str, str]], ...] = ()
    key: tuple[str, str] = ("Authorization", "Bearer {key}")


_NO_USAGE: Final = {"usage": "none"}
_THOUGHTS_BACK: Final = {"thoughts": "reasoning_content"}
_SWITCH: Final = {**_THOUGHTS_BACK, "mode": "thinking.type"}
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
        hosts=("aliyuncs.com",),
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
        spelling={
            **_THOUGHTS_BACK,
            "mode": "chat_template_kwargs.enable_thinking",
            "repetition": "repeat_penalty",
            "grammar": "grammar",
        }
    ),
    "lmstudio": Vendor(spelling={"repetition": "repeat_penalty"}),
    "minicpm": Vendor(
        hosts=("modelbest.cn",), spelling={**_THOUGHTS_BACK, "mode": "chat_template_kwargs.enable_thinking"}
    ),
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
    "nvidia": Vendor(
        hosts=("integrate.api.nvidia.com",),
        spelling={**_THOUGHTS_BACK, "mode": "chat_template_kwargs.enable_thinking"},
    ),
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
    "vllm": Vendor(spelling={**_THOUGHTS_BACK, "mode": "chat_template_kwargs.enable_thinking"}),
    "xai": Vendor(hosts=("api.x.ai",), spelling=_THOUGHTS_BACK),
    "zai": Vendor(hosts=("api.z.ai", "bigmodel.cn"), spelling={**_SWITCH, "keep": "thinking.clear_thinking"}),
}
"""Vendors of the OpenAI protocol by name; an unlisted one gets the plain profile."""

_PLAIN: Final = Vendor()


def vendor(name: str) -> Vendor:
    """Return the profile called `name`, or the plain one."""
    return VENDORS.get(name, _PLAIN)


def at(url: str) -> str:
    """Return the name of the vendor at `url`, or "" for a self-hosted server."""
    host = (urlsplit(url).hostname or "").lower()
    for name, profile in VENDORS.items():
        if any(host == known or host.endswith(f".{known}") for known in profile.hosts):
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
