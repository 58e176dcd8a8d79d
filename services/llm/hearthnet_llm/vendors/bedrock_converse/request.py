"""The whole request in both directions (Amazon Bedrock API reference, "Converse").

Parameters of only some models are in `more.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.request import ChatRequest, Named, ResponseSchema, ServerTool, Tool, ToolChoice
from hearthnet_llm.vendors import bedrock
from hearthnet_llm.vendors.anthropic import request
from hearthnet_llm.vendors.bedrock_converse import blocks, messages, model_specific_fields
from hearthnet_llm.vendors.json_access import (
    as_text,
    checked,
    fields,
    objects,
    refuse,
    text,
    ungrammatical,
    without_nones,
)
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": bedrock.SPELLING,
    "inference": ("absent", "empty"),
    "more": ("absent", "empty"),
    "sampling": request.SAMPLING,
    "no_tools": ("absent", "empty"),
    "no_description": ("absent", "empty"),
    "call_type": ("absent", blocks.CALLED),
    **model_specific_fields.SPELLINGS,
}
_ACTIONS: Final = ("converse", "converse-stream")
_CLAUDE: Final = "anthropic.claude"
_INFERENCE: Final[dict[str, str]] = {
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop": "stopSequences",
}


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
        (model_specific_fields.FIELD, model_specific_fields.write(request, target)),
    ):
        if value or (name == model_specific_fields.FIELD and target.spelling.get("more") == "empty"):
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
    spelling["more"] = "absent" if body.get(model_specific_fields.FIELD) is None else "empty"
    declared, choice = _read_tools(body, spelling)
    tools = model_specific_fields.read_tools(body)
    tier = body.get("serviceTier")
    request = ChatRequest(
        messages=messages.read(body, spelling),
        tools=[*(declared or ()), *tools] if tools else declared,
        tool_choice=choice,
        service_tier=None if tier is None else fields(tier, "serviceTier").get("type"),
        response_schema=_read_output(body),
        stream=streamed,
        **model_specific_fields.read(body, spelling),
        **{ours: (inference or {}).get(its) for ours, its in _INFERENCE.items()},
    )
    return checked(request), Target(model, base, vendor, spelling=spelling)


def _inference(request: ChatRequest, target: Target) -> Json:
    made = without_nones(**{its: getattr(request, ours) for ours, its in _INFERENCE.items()})
    if _CLAUDE in target.model:
        drawn = request.allowed(request, target.model, target.spelling.get("sampling", "auto"))
        for ours in ("temperature", "top_p"):
            if ours not in drawn:
                made.pop(_INFERENCE[ours], None)
    return made


def _tools(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    """Return tools and choice.

    This vendor has no choice "none": tools are omitted, unless they were called before.
    """
    choice = request.tool_choice
    declared = [tool for tool in request.tools or () if not model_specific_fields.is_claudes(tool)]
    if not declared and spelling.get("no_tools") == "empty":
        return {"tools": []}
    if not declared or (choice == "none" and not messages.has_calls(request.messages)):
        return {}
    if isinstance(choice, Named) and (choice.others or not choice.required):
        names = (choice.name, *choice.others)
        declared = [tool for tool in declared if tool.server is not None or tool.name in names]
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
    tools: list[Tool] = []
    for place, native in enumerate(objects(config.get("tools"), "toolConfig.tools")):
        cache = blocks.hint(native)
        if cache is None:
            tools.append(_read_tool(native, f"toolConfig.tools[{place}]", spelling))
        elif tools:
            tools[-1] = blocks.hinted(tools[-1], cache, f"toolConfig.tools[{place}]")
        else:
            refuse("toolConfig.tools[0]", "a cache point must follow a tool")
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
    made: Json = model_specific_fields.output(request, target)
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
