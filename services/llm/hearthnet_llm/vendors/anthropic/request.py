"""The whole request in both directions (docs.anthropic.com, "Messages"; docs/models.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.request import ChatRequest, Named, ResponseSchema, Thinking, Tool
from hearthnet_llm.vendors.anthropic import messages, sampling, tools
from hearthnet_llm.vendors.anthropic.blocks import cached, hint
from hearthnet_llm.vendors.reading import checked, fields, objects, refuse, text, without_nones
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "structured": ("output_config", "output_format"),
    "beta": ("no", "yes"),
    "tool_type": ("none", "custom"),
    "arguments": ("parsed", "eager"),
    "empty_result": ("absent", "empty"),
    "sampling": sampling.CHOICES,
}
_PATH: Final = "/messages"
_BETA: Final = "?beta=true"
_VERSION: Final = "2023-06-01"
_MAX_TOKENS: Final = 1024
"""The contract's default, which this vendor wants to be told."""
_MODES: Final[dict[str, str]] = {"on": "enabled", "auto": "adaptive", "off": "disabled"}
_SHOWN: Final[dict[str, str]] = {"parsed": "summarized", "hidden": "omitted"}


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """POST /messages."""
    beta = _BETA if target.spelling.get("beta") == "yes" else ""
    body = write(request, target.model, target.spelling)
    streamed = without_nones(stream=request.stream)
    headers = {"anthropic-version": target.api_version or _VERSION}
    return HttpRequest(
        "POST", f"{target.base}{_PATH}{beta}", {"model": target.model, **body, **streamed}, headers
    )


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """As `Wire.read`."""
    path, _, query = native.url.partition("?")
    if not path.endswith(_PATH):
        refuse("path", f"must end in {_PATH}")
    spelling = {"beta": "yes" if query == _BETA[1:] else "no"}
    request = read_body(native.body, spelling, native.body.get("stream"))
    model = text(native.body.get("model"), "model")
    return request, Target(model, path.removesuffix(_PATH), vendor, spelling=spelling)


def write(request: ChatRequest, model: str, spelling: Mapping[str, str]) -> Json:
    """The body without model and stream."""
    body: Json = {
        **messages.write(request.messages, spelling.get("empty_result", "absent")),
        "max_tokens": _MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        **sampling.allowed(request, model, spelling.get("sampling", "auto")),
        **without_nones(stop_sequences=request.stop, service_tier=request.service_tier),
        **_tools(request, spelling),
        **_output(request, spelling.get("structured", "output_config")),
        **cached(request.cache),
    }
    if request.thinking is not None and request.thinking.mode is not None:
        body["thinking"] = _thinking(request.thinking)
    return body


def read_body(body: Json, spelling: dict[str, str], stream: Any) -> ChatRequest:
    """The request of a native body; notes in `spelling` how it stood."""
    choice, parallel = tools.read_choice(body.get("tool_choice"))
    native = body.get("tools")
    spelling["sampling"] = "sent"
    listed = enumerate(objects(native, "tools"))
    declared = [tools.read(tool, f"tools[{place}]", spelling) for place, tool in listed]
    request = ChatRequest(
        messages=messages.read(body, spelling),
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        top_k=body.get("top_k"),
        stop=body.get("stop_sequences"),
        tools=None if native is None else declared,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_schema=_read_output(body, spelling),
        thinking=_read_thinking(body),
        service_tier=body.get("service_tier"),
        cache=hint(body),
        stream=stream,
    )
    return checked(request)


def _tools(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    """The tools and the choice; of a choice among several only those are declared."""
    declared, choice = request.tools, request.tool_choice
    if declared is None:
        return {}
    if isinstance(choice, Named) and (choice.others or not choice.required):
        declared = [tool for tool in declared if _is_allowed(tool, choice)]
    chosen = tools.write_choice(choice, request.parallel_tool_calls) if declared else None
    return {"tools": [tools.write(tool, spelling) for tool in declared], **without_nones(tool_choice=chosen)}


def _is_allowed(tool: Tool, choice: Named) -> bool:
    return tool.server is not None or tool.name in (choice.name, *choice.others)


def _thinking(thinking: Thinking) -> Json:
    mode = "auto" if thinking.mode == "on" and thinking.budget_tokens is None else thinking.mode
    budget = thinking.budget_tokens if mode == "on" else None
    shown = None if thinking.show is None else _SHOWN.get(thinking.show)
    return {"type": _MODES[str(mode)], **without_nones(budget_tokens=budget, display=shown)}


def _read_thinking(body: Json) -> Thinking | None:
    config = body.get("output_config")
    effort = None if config is None else fields(config, "output_config").get("effort")
    if body.get("thinking") is None:
        return None if effort is None else Thinking(effort=effort)
    native = fields(body["thinking"], "thinking")
    mode = next((ours for ours, its in _MODES.items() if its == native.get("type")), None)
    if mode is None:
        refuse("thinking.type", f"no way to think {native.get('type')!r} is known")
    shown = next((ours for ours, its in _SHOWN.items() if its == native.get("display")), None)
    return Thinking(mode, effort, native.get("budget_tokens"), shown)  # type: ignore[arg-type]


def _output(request: ChatRequest, spelling: str) -> Json:
    """The form of the answer and how hard to try, which this vendor keeps together."""
    form = None if request.response_schema is None else _format(request.response_schema)
    effort = None if request.thinking is None else request.thinking.effort
    if spelling == "output_format" and form is not None:
        return {"output_format": form, **({"output_config": {"effort": effort}} if effort else {})}
    config = without_nones(format=form, effort=effort)
    return {"output_config": config} if config else {}


def _format(schema: ResponseSchema) -> Json:
    if schema.schema is None:
        refuse("/input/response_schema/schema", "Anthropic answers JSON only by a schema; give one")
    return {"type": "json_schema", "schema": schema.schema}


def _read_output(body: Json, spelling: dict[str, str]) -> ResponseSchema | None:
    form = body.get("output_format")
    spelling["structured"] = "output_config" if form is None else "output_format"
    if form is None:
        form = fields(body.get("output_config") or {}, "output_config").get("format")
    if form is None:
        return None
    native = fields(form, "output_config.format")
    if native.get("type") != "json_schema":
        refuse("output_config.format.type", f"no form {native.get('type')!r} is known")
    return ResponseSchema(schema=fields(native.get("schema"), "output_config.format.schema"))
