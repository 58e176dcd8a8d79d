"""The whole request in both directions (Amazon Bedrock API reference, "Converse").

Parameters of only some of Bedrock's models are in `additionalModelRequestFields`. Their names differ between
families of models. The thinking effort is among them, and may also be in `outputConfig`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from hearthnet_llm.interface.content_parts import CacheHint
from hearthnet_llm.interface.request import (
    ChatRequest,
    Named,
    ResponseSchema,
    ServerTool,
    Thinking,
    Tool,
    ToolChoice,
)
from hearthnet_llm.vendors import bedrock
from hearthnet_llm.vendors.anthropic import tools as claude
from hearthnet_llm.vendors.anthropic.request import MODES, SAMPLING, allowed_sampling
from hearthnet_llm.vendors.bedrock_converse import blocks, messages
from hearthnet_llm.vendors.field_tables import our_word, read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import (
    as_text,
    checked,
    entries,
    fields,
    refuse,
    text,
    ungrammatical,
    value_at,
    without_nones,
)
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

_MODEL_FIELDS: Final = "additionalModelRequestFields"
_MODEL_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
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
_EFFORTS: Final = (
    (_NOVA, "reasoningConfig.maxReasoningEffort"),
    ("openai.", "reasoning_effort"),
    ("qwen.", "reasoning_config"),
)
"""Field for the thinking effort, by a part of the model's id; other models have none."""
_DRAWN: Final = same_names("seed", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
"""Supported by some models only; others refuse a request that has them."""
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": bedrock.SPELLING,
    "inference": ("absent", "empty"),
    "more": ("absent", "empty"),
    "sampling": SAMPLING,
    "no_tools": ("absent", "empty"),
    "no_description": ("absent", "empty"),
    "call_type": ("absent", blocks.CALLED),
    **_MODEL_SPELLINGS,
}
_ACTIONS: Final = ("converse", "converse-stream")
_CLAUDE: Final = "anthropic.claude"
_INFERENCE: Final[dict[str, str]] = {
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop": "stopSequences",
}


def _is_claudes(tool: Tool) -> bool:
    """Return whether Anthropic defines the tool: its own tools have versions."""
    return tool.server is not None and tool.server.version is not None


def _write_model_fields(request: ChatRequest, target: Target) -> Json:
    """Return the field, {} for nothing."""
    spelling = target.spelling
    made: Json = _top_k(request.top_k, target)
    if spelling.get("drawn") == "sent":
        made |= write_fields(request, _DRAWN)
    if request.cache is not None and spelling.get("cache") == "cacheControl":
        made["cacheControl"] = {"type": "ephemeral", **without_nones(ttl=request.cache.ttl)}
    if request.parallel_tool_calls is not None and request.tools and _CLAUDE in target.model:
        choice = claude.write_choice(request.tool_choice, request.parallel_tool_calls)
        made |= without_nones(tool_choice=choice)
    vendor_tools = [claude.write(tool, {}) for tool in request.tools or () if _is_claudes(tool)]
    if vendor_tools:
        made["tools"] = vendor_tools
    return made if request.thinking is None else made | _thinking(request.thinking, target)


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


def _read_model_fields(body: Json, spelling: dict[str, str]) -> Json:
    """Return the fields of a canonical request; records their native places in `spelling`."""
    more = fields(body.get(_MODEL_FIELDS) or {}, _MODEL_FIELDS)
    found = read_fields(more, _DRAWN)
    if any(value is not None for value in found.values()):
        spelling["drawn"] = "sent"
    if more.get("cacheControl") is not None:
        spelling["cache"] = "cacheControl"
        found["cache"] = CacheHint(fields(more["cacheControl"], f"{_MODEL_FIELDS}.cacheControl").get("ttl"))
    _, found["parallel_tool_calls"] = claude.read_choice(more.get("tool_choice"))
    return {
        **found,
        "top_k": _read_top_k(more, spelling),
        "thinking": _read_thinking(body, more, spelling),
    }


def _read_model_tools(body: Json) -> list[Tool]:
    """Return the tools in these parameters, in Anthropic's form."""
    native = fields(body.get(_MODEL_FIELDS) or {}, _MODEL_FIELDS).get("tools")
    tools = [claude.read(tool, path, {}) for tool, path in entries(native, f"{_MODEL_FIELDS}.tools")]
    if not all(_is_claudes(tool) for tool in tools):
        refuse(
            f"{_MODEL_FIELDS}.tools",
            "only tools that Anthropic defines stand here; others belong in toolConfig",
        )
    return tools


def _read_top_k(more: Json, spelling: dict[str, str]) -> int | None:
    for where in _MODEL_SPELLINGS["top_k"]:
        value = value_at(more, where)
        if value is not None:
            spelling["top_k"] = where
            return value  # type: ignore[no-any-return]
    return None


def _read_thinking(body: Json, more: Json, spelling: dict[str, str]) -> Thinking | None:
    native: Json = {}
    for name in _MODEL_SPELLINGS["thinking"]:
        if more.get(name) is not None and not isinstance(more[name], str):
            spelling["thinking"] = name
            native = fields(more[name], f"{_MODEL_FIELDS}.{name}")
    effort = _read_effort(body, more, native, spelling)
    if not native:
        return None if effort is None else Thinking(effort=effort)
    mode = our_word(MODES, native.get("type") or "", f"{_MODEL_FIELDS}.type")
    return Thinking(mode, effort, native.get("budget_tokens"), native.get("display"))


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


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """Return the request POST /model/{id}/converse, or its streaming variant."""
    ungrammatical(request)
    path = bedrock.model_path(target.model, _ACTIONS[bool(request.stream)], target.spelling.get("id", ""))
    inference = _inference(request, target)
    body = messages.write(request.messages, target.spelling)
    if inference or target.spelling.get("inference") == "empty":
        body["inferenceConfig"] = inference
    if request.service_tier is not None:
        body["serviceTier"] = {"type": request.service_tier}
    for name, value in (
        ("toolConfig", _tools(request, target.spelling)),
        ("outputConfig", _output(request, target)),
        (_MODEL_FIELDS, _write_model_fields(request, target)),
    ):
        if value or (name == _MODEL_FIELDS and target.spelling.get("more") == "empty"):
            body[name] = value
    return HttpRequest("POST", target.base + path, body)


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """Return the request of a native one, as `Wire.read`."""
    spelling: dict[str, str] = {}
    base, model, streamed = bedrock.parse_path(native.url, _ACTIONS, spelling)
    body = native.body
    inference = body.get("inferenceConfig")
    spelling["sampling"] = "sent"
    spelling["inference"] = "absent" if inference is None else "empty"
    spelling["more"] = "absent" if body.get(_MODEL_FIELDS) is None else "empty"
    declared, choice = _read_tools(body, spelling)
    tools = _read_model_tools(body)
    tier = body.get("serviceTier")
    request = ChatRequest(
        messages=messages.read(body, spelling),
        tools=[*(declared or ()), *tools] if tools else declared,
        tool_choice=choice,
        service_tier=None if tier is None else fields(tier, "serviceTier").get("type"),
        response_schema=_read_output(body),
        stream=streamed,
        **_read_model_fields(body, spelling),
        **read_fields(inference or {}, _INFERENCE),
    )
    return checked(request), Target(model, base, vendor, spelling=spelling)


def _inference(request: ChatRequest, target: Target) -> Json:
    made = write_fields(request, _INFERENCE)
    if _CLAUDE in target.model:
        drawn = allowed_sampling(request, target.model, target.spelling.get("sampling", "auto"))
        for ours in ("temperature", "top_p"):
            if ours not in drawn:
                made.pop(_INFERENCE[ours], None)
    return made


def _tools(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    """Return tools and choice.

    This vendor has no choice "none": tools are omitted, unless they were called before.
    """
    choice = request.tool_choice
    declared = [tool for tool in request.tools or () if not _is_claudes(tool)]
    if not declared and spelling.get("no_tools") == "empty":
        return {"tools": []}
    if not declared or (choice == "none" and not messages.has_calls(request.messages)):
        return {}
    declared = claude.allowed(declared, choice)
    native = [
        block for tool in declared for block in (_write_tool(tool, spelling), *blocks.cached(tool.cache))
    ]
    return {"tools": native, **_choice(choice)}


def _write_tool(tool: Tool, spelling: Mapping[str, str]) -> Json:
    if tool.server is not None:
        return {"systemTool": {"name": tool.name}}
    empty = "" if spelling.get("no_description") == "empty" else None
    about = without_nones(description=tool.description or empty, strict=tool.strict)
    return {"toolSpec": {"name": tool.name, **about, "inputSchema": {"json": tool.schema}}}


def _choice(choice: ToolChoice | None) -> Json:
    if choice is None or choice == "none":
        return {}
    if isinstance(choice, Named) and not choice.others and choice.required:
        return {"toolChoice": {"tool": {"name": choice.name}}}
    demanded = choice == "required" or (isinstance(choice, Named) and choice.required)
    return {"toolChoice": {"any" if demanded else "auto": {}}}


def _read_tools(body: Json, spelling: dict[str, str]) -> tuple[list[Tool] | None, ToolChoice | None]:
    if body.get("toolConfig") is None:
        return None, None
    config = fields(body["toolConfig"], "toolConfig")
    tools = blocks.read_all(config.get("tools"), "toolConfig.tools", partial(_read_tool, spelling=spelling))
    spelling["no_tools"] = "absent" if tools else "empty"
    return tools, _read_choice(config.get("toolChoice"))


def _read_tool(native: Json, where: str, spelling: dict[str, str]) -> Tool:
    if "systemTool" in native:
        name = text(fields(native["systemTool"], where).get("name"), f"{where}.systemTool.name")
        return Tool(name, server=ServerTool(kind=name))
    spec = fields(native.get("toolSpec"), f"{where}.toolSpec")
    schema = fields(spec.get("inputSchema"), f"{where}.toolSpec.inputSchema").get("json")
    name = text(spec.get("name"), f"{where}.toolSpec.name")
    if spec.get("description") == "":
        spelling["no_description"] = "empty"
    return Tool(name, spec.get("description"), schema, spec.get("strict"))


def _read_choice(native: Any) -> ToolChoice | None:
    if native is None:
        return None
    choice = fields(native, "toolConfig.toolChoice")
    if "tool" in choice:
        return Named(text(fields(choice["tool"], "tool").get("name"), "toolConfig.toolChoice.tool.name"))
    if "any" in choice:
        return "required"
    if "auto" in choice:
        return "auto"
    refuse("toolConfig.toolChoice", f"no choice {', '.join(choice) or 'of nothing'} is known")


def _output(request: ChatRequest, target: Target) -> Json:
    made: Json = {}
    if request.thinking is not None and _effort(target) == "outputConfig.effort":
        made |= without_nones(effort=request.thinking.effort)
    schema = request.response_schema
    if schema is not None:
        if schema.schema is None:
            refuse("/input/response_schema/schema", "Bedrock answers JSON only by a schema; give one")
        named = without_nones(name=schema.name, description=schema.description)
        form = {"jsonSchema": {"schema": as_text(schema.schema), **named}}
        made["textFormat"] = {"type": "json_schema", "structure": form}
    return made


def _read_output(body: Json) -> ResponseSchema | None:
    form = fields(body.get("outputConfig") or {}, "outputConfig").get("textFormat")
    if form is None:
        return None
    structure = fields(fields(form, "outputConfig.textFormat").get("structure"), "structure")
    native = fields(structure.get("jsonSchema"), "outputConfig.textFormat.structure.jsonSchema")
    try:
        schema = json.loads(text(native.get("schema"), "jsonSchema.schema"))
    except ValueError:
        refuse("outputConfig.textFormat.structure.jsonSchema.schema", "must be JSON")
    return ResponseSchema(native.get("name"), fields(schema, "jsonSchema.schema"), native.get("description"))
