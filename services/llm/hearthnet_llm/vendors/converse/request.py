"""The whole request in both directions (Amazon Bedrock API reference, "Converse").

What only some models know stands in `additionalModelRequestFields`, under names that are each family's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet_llm.request import ChatRequest, Named, ResponseSchema, ServerTool, Thinking, Tool, ToolChoice
from hearthnet_llm.vendors import bedrock_paths
from hearthnet_llm.vendors.anthropic import sampling
from hearthnet_llm.vendors.anthropic import tools as claude
from hearthnet_llm.vendors.converse import blocks, messages
from hearthnet_llm.vendors.reading import checked, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.values import as_text
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": bedrock_paths.SPELLING,
    "inference": ("absent", "empty"),
    "more": ("absent", "empty"),
    "sampling": sampling.CHOICES,
    "thinking": (
        "thinking",
        "reasoning_config",
        "reasoningConfig",
        "reasoning_effort",
        "outputConfig.effort",
    ),
    "top_k": ("top_k", "inferenceConfig.topK"),
}
_ACTIONS: Final = ("converse", "converse-stream")
_MORE: Final = "additionalModelRequestFields"
_FAMILIES: Final = (("amazon.nova", "reasoningConfig"), ("openai.", "reasoning_effort"))
"""How a family of models is told to think, by a part of its ids; all others as Anthropic's."""
_CLAUDE: Final = "anthropic.claude"
_MODES: Final[dict[str, str]] = {"on": "enabled", "auto": "adaptive", "off": "disabled"}
_INFERENCE: Final[dict[str, str]] = {
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop": "stopSequences",
}


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """POST /model/{id}/converse, or its streaming sister."""
    path = bedrock_paths.path(target.model, _ACTIONS[bool(request.stream)], target.spelling.get("id", ""))
    inference = _inference(request, target)
    body = messages.write(request.messages)
    if inference or target.spelling.get("inference") == "empty":
        body["inferenceConfig"] = inference
    if request.service_tier is not None:
        body["serviceTier"] = {"type": request.service_tier}
    for name, value in (
        ("toolConfig", _tools(request)),
        ("outputConfig", _output(request, target)),
        (_MORE, _more(request, target)),
    ):
        if value or (name == _MORE and target.spelling.get("more") == "empty"):
            body[name] = value
    return HttpRequest("POST", target.base + path, body)


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """As `Wire.read`."""
    spelling: dict[str, str] = {}
    base, model, streamed = bedrock_paths.parsed(native.url, _ACTIONS, spelling)
    body = native.body
    inference = body.get("inferenceConfig")
    spelling["sampling"] = "sent"
    spelling["inference"] = "absent" if inference is None else "empty"
    spelling["more"] = "absent" if body.get(_MORE) is None else "empty"
    declared, choice = _read_tools(body)
    thinking, top_k = _read_more(body, spelling)
    _, parallel = claude.read_choice(fields(body.get(_MORE) or {}, _MORE).get("tool_choice"))
    tier = body.get("serviceTier")
    request = ChatRequest(
        messages=messages.read(body),
        tools=declared,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        service_tier=None if tier is None else fields(tier, "serviceTier").get("type"),
        response_schema=_read_output(body),
        thinking=thinking,
        top_k=top_k,
        stream=streamed,
        **{ours: (inference or {}).get(its) for ours, its in _INFERENCE.items()},
    )
    return checked(request), Target(model, base, vendor, spelling=spelling)


def _inference(request: ChatRequest, target: Target) -> Json:
    made = without_nones(**{its: getattr(request, ours) for ours, its in _INFERENCE.items()})
    if _CLAUDE in target.model:
        drawn = sampling.allowed(request, target.model, target.spelling.get("sampling", "auto"))
        for ours in ("temperature", "top_p"):
            if ours not in drawn:
                made.pop(_INFERENCE[ours], None)
    return made


def _tools(request: ChatRequest) -> Json:
    """Tools and choice. This vendor has no word for none: without tools, unless they were called before."""
    declared, choice = request.tools, request.tool_choice
    if not declared or (choice == "none" and not messages.has_calls(request.messages)):
        return {}
    if isinstance(choice, Named) and (choice.others or not choice.required):
        names = (choice.name, *choice.others)
        declared = [tool for tool in declared if tool.server is not None or tool.name in names]
    native = [block for tool in declared for block in (_write_tool(tool), *blocks.cached(tool.cache))]
    return {"tools": native, **_choice(choice)}


def _write_tool(tool: Tool) -> Json:
    if tool.server is not None:
        return {"systemTool": {"name": tool.name}}
    more = without_nones(description=tool.description or None, strict=tool.strict)
    return {"toolSpec": {"name": tool.name, **more, "inputSchema": {"json": tool.schema}}}


def _choice(choice: ToolChoice | None) -> Json:
    if choice is None or choice == "none":
        return {}
    if isinstance(choice, Named) and not choice.others and choice.required:
        return {"toolChoice": {"tool": {"name": choice.name}}}
    demanded = choice == "required" or (isinstance(choice, Named) and choice.required)
    return {"toolChoice": {"any" if demanded else "auto": {}}}


def _read_tools(body: Json) -> tuple[list[Tool] | None, ToolChoice | None]:
    if body.get("toolConfig") is None:
        return None, None
    config = fields(body["toolConfig"], "toolConfig")
    tools: list[Tool] = []
    for place, native in enumerate(objects(config.get("tools"), "toolConfig.tools")):
        cache = blocks.hint(native)
        if cache is None:
            tools.append(_read_tool(native, f"toolConfig.tools[{place}]"))
        elif tools:
            tools[-1] = msgspec.structs.replace(tools[-1], cache=cache)
    return tools, _read_choice(config.get("toolChoice"))


def _read_tool(native: Json, where: str) -> Tool:
    if "systemTool" in native:
        name = text(fields(native["systemTool"], where).get("name"), f"{where}.systemTool.name")
        return Tool(name, server=ServerTool(kind=name))
    spec = fields(native.get("toolSpec"), f"{where}.toolSpec")
    schema = fields(spec.get("inputSchema"), f"{where}.toolSpec.inputSchema").get("json")
    name = text(spec.get("name"), f"{where}.toolSpec.name")
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
    schema = request.response_schema
    if schema is not None:
        if schema.schema is None:
            refuse("/input/response_schema/schema", "Bedrock answers JSON only by a schema; give one")
        named = without_nones(name=schema.name, description=schema.description)
        form = {"jsonSchema": {"schema": as_text(schema.schema), **named}}
        made["textFormat"] = {"type": "json_schema", "structure": form}
    effort = None if request.thinking is None else request.thinking.effort
    if effort is not None and _family(target) == "outputConfig.effort":
        made["effort"] = effort
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


def _family(target: Target) -> str:
    told = target.spelling.get("thinking")
    return told or next((how for part, how in _FAMILIES if part in target.model), "thinking")


def _more(request: ChatRequest, target: Target) -> Json:
    """What stands apart because only some models know it."""
    made: Json = {}
    if request.top_k is not None:
        nova = (target.spelling.get("top_k") or "top_k") != "top_k" or "amazon.nova" in target.model
        made |= {"inferenceConfig": {"topK": request.top_k}} if nova else {"top_k": request.top_k}
    if request.parallel_tool_calls is not None and request.tools and _CLAUDE in target.model:
        made["tool_choice"] = claude.write_choice(request.tool_choice, request.parallel_tool_calls)
    thinking, how = request.thinking, _family(target)
    if thinking is None:
        return made
    if how == "reasoning_effort":
        return made | without_nones(reasoning_effort=thinking.effort)
    if how == "outputConfig.effort" or thinking.mode is None:
        return made
    native: Json = {"type": _MODES.get(thinking.mode, "adaptive")}
    if how == "reasoningConfig":
        return made | {how: {**native, **without_nones(maxReasoningEffort=thinking.effort)}}
    return made | {how: {**native, **without_nones(budget_tokens=thinking.budget_tokens)}}


def _read_more(body: Json, spelling: dict[str, str]) -> tuple[Thinking | None, int | None]:
    """How to think, and the number of tokens to draw from."""
    more = fields(body.get(_MORE) or {}, _MORE)
    top_k = more.get("top_k")
    if "inferenceConfig" in more:
        spelling["top_k"] = "inferenceConfig.topK"
        top_k = fields(more["inferenceConfig"], f"{_MORE}.inferenceConfig").get("topK")
    effort = fields(body.get("outputConfig") or {}, "outputConfig").get("effort")
    if effort is not None:
        spelling["thinking"] = "outputConfig.effort"
        return Thinking(effort=effort), top_k
    if "reasoning_effort" in more:
        spelling["thinking"] = "reasoning_effort"
        return Thinking(effort=more["reasoning_effort"]), top_k
    for name in ("thinking", "reasoning_config", "reasoningConfig"):
        if name in more:
            spelling["thinking"] = name
            return _read_thinking(fields(more[name], f"{_MORE}.{name}")), top_k
    return None, top_k


def _read_thinking(native: Json) -> Thinking:
    mode = next((ours for ours, its in _MODES.items() if its == native.get("type")), None)
    if mode is None:
        refuse(_MORE, f"no way to think {native.get('type')!r} is known")
    return Thinking(mode, native.get("maxReasoningEffort"), native.get("budget_tokens"))  # type: ignore[arg-type]
