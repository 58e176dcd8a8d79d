"""Parameters of only some of Bedrock's models: `additionalModelRequestFields`.

Their names differ between families of models. The thinking effort is among them, and may also be in
`outputConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hearthnet_llm.interface.content_parts import CacheHint
from hearthnet_llm.interface.request import ChatRequest, Thinking, Tool
from hearthnet_llm.vendors.anthropic import tools as claude
from hearthnet_llm.vendors.anthropic.request import MODES
from hearthnet_llm.vendors.json_access import fields, objects, refuse, value_at, without_nones
from hearthnet_llm.vendors.wire import Json, Target

FIELD: Final = "additionalModelRequestFields"
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "thinking": ("thinking", "reasoning_config", "reasoningConfig"),
    "effort": (
        "none",
        "reasoningConfig.maxReasoningEffort",
        "reasoning_effort",
        "reasoning_config",
        "output_config.effort",
        "outputConfig.effort",
    ),
    "top_k": ("top_k", "inferenceConfig.topK", "topK", "k"),
    "drawn": ("left out", "sent"),
    "cache": ("absent", "cacheControl"),
}
_NOVA: Final = "amazon.nova"
_CLAUDE: Final = "anthropic.claude"
_EFFORTS: Final = (
    (_NOVA, "reasoningConfig.maxReasoningEffort"),
    ("openai.", "reasoning_effort"),
    ("qwen.", "reasoning_config"),
)
"""Field for the thinking effort, by a part of the model's id; other models have none."""
_DRAWN: Final = ("seed", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
"""Supported by some models only; others refuse a request that has them."""


def is_claudes(tool: Tool) -> bool:
    """Return whether Anthropic defines the tool: its own tools have versions."""
    return tool.server is not None and tool.server.version is not None


def write(request: ChatRequest, target: Target) -> Json:
    """Return the field, {} for nothing."""
    spelling = target.spelling
    made: Json = _top_k(request.top_k, target)
    if spelling.get("drawn") == "sent":
        made |= without_nones(**{name: getattr(request, name) for name in _DRAWN})
    if request.cache is not None and spelling.get("cache") == "cacheControl":
        made["cacheControl"] = {"type": "ephemeral", **without_nones(ttl=request.cache.ttl)}
    if request.parallel_tool_calls is not None and request.tools and _CLAUDE in target.model:
        choice = claude.write_choice(request.tool_choice, request.parallel_tool_calls)
        made |= without_nones(tool_choice=choice)
    own = [claude.write(tool, {}) for tool in request.tools or () if is_claudes(tool)]
    if own:
        made["tools"] = own
    return made if request.thinking is None else made | _thinking(request.thinking, target)


def output(request: ChatRequest, target: Target) -> Json:
    """Return the part of the parameters that belongs into `outputConfig`."""
    effort = None if request.thinking is None else request.thinking.effort
    return without_nones(effort=effort) if _effort(target) == "outputConfig.effort" else {}


def _top_k(top_k: int | None, target: Target) -> Json:
    usual = "inferenceConfig.topK" if _NOVA in target.model else "top_k"
    outer, _, inner = target.spelling.get("top_k", usual).partition(".")
    if top_k is None:
        return {}
    return {outer: {inner: top_k}} if inner else {outer: top_k}


def _effort(target: Target) -> str:
    """Return the field for the thinking effort."""
    usual = next((where for part, where in _EFFORTS if part in target.model), "none")
    return target.spelling.get("effort", usual)


def _thinking(thinking: Thinking, target: Target) -> Json:
    where = _effort(target)
    about: Json = {}
    made: Json = {}
    if thinking.effort is not None:
        if where in ("reasoning_effort", "reasoning_config"):
            made[where] = thinking.effort
        elif where == "output_config.effort":
            made["output_config"] = {"effort": thinking.effort}
        elif where == "reasoningConfig.maxReasoningEffort":
            about["maxReasoningEffort"] = thinking.effort
    name = target.spelling.get("thinking", "reasoningConfig" if _NOVA in target.model else "thinking")
    if thinking.mode is None or where in ("reasoning_effort", "reasoning_config"):
        return made
    more = without_nones(budget_tokens=thinking.budget_tokens, display=thinking.show)
    return {**made, name: {"type": MODES[thinking.mode], **about, **more}}


def read(body: Json, spelling: dict[str, str]) -> Json:
    """Return the fields of a canonical request; records their native places in `spelling`."""
    more = fields(body.get(FIELD) or {}, FIELD)
    found: Json = {name: more.get(name) for name in _DRAWN}
    if any(value is not None for value in found.values()):
        spelling["drawn"] = "sent"
    if more.get("cacheControl") is not None:
        spelling["cache"] = "cacheControl"
        found["cache"] = CacheHint(fields(more["cacheControl"], f"{FIELD}.cacheControl").get("ttl"))
    _, found["parallel_tool_calls"] = claude.read_choice(more.get("tool_choice"))
    return {
        **found,
        "top_k": _read_top_k(more, spelling),
        "thinking": _read_thinking(body, more, spelling),
    }


def read_tools(body: Json) -> list[Tool]:
    """Return the tools in these parameters, in Anthropic's form."""
    native = objects(fields(body.get(FIELD) or {}, FIELD).get("tools"), f"{FIELD}.tools")
    tools = [claude.read(tool, f"{FIELD}.tools[{place}]", {}) for place, tool in enumerate(native)]
    if not all(is_claudes(tool) for tool in tools):
        refuse(f"{FIELD}.tools", "only tools that Anthropic defines stand here; others belong in toolConfig")
    return tools


def _read_top_k(more: Json, spelling: dict[str, str]) -> int | None:
    for where in SPELLINGS["top_k"]:
        value = value_at(more, where)
        if value is not None:
            spelling["top_k"] = where
            return value  # type: ignore[no-any-return]
    return None


def _read_thinking(body: Json, more: Json, spelling: dict[str, str]) -> Thinking | None:
    native: Json = {}
    for name in SPELLINGS["thinking"]:
        if more.get(name) is not None and not isinstance(more[name], str):
            spelling["thinking"] = name
            native = fields(more[name], f"{FIELD}.{name}")
    effort = _read_effort(body, more, native, spelling)
    if not native:
        return None if effort is None else Thinking(effort=effort)
    mode = next((ours for ours, its in MODES.items() if its == native.get("type")), None)
    if mode is None:
        refuse(FIELD, f"no way to think {native.get('type')!r} is known")
    return Thinking(mode, effort, native.get("budget_tokens"), native.get("display"))  # type: ignore[arg-type]


def _read_effort(body: Json, more: Json, native: Json, spelling: dict[str, str]) -> str | None:
    """Return the thinking effort from any of its places."""
    config = more.get("reasoning_config")
    places = {
        "reasoningConfig.maxReasoningEffort": native.get("maxReasoningEffort"),
        "reasoning_effort": more.get("reasoning_effort"),
        "reasoning_config": config if isinstance(config, str) else None,
        "output_config.effort": fields(more.get("output_config") or {}, "output_config").get("effort"),
        "outputConfig.effort": fields(body.get("outputConfig") or {}, "outputConfig").get("effort"),
    }
    where = next((where for where, value in places.items() if value is not None), None)
    if where is None:
        return None
    spelling["effort"] = where
    return places[where]
