"""The whole request in both directions (docs.anthropic.com, "Messages"; docs/models.md).

Each generation of Claude accepts other sampling parameters: since Opus 4.7 temperature, top_p and top_k are
refused; models of 4.5 and 4.6 refuse temperature and top_p together; a thinking model accepts no temperature
but 1; and from version 2026-10-21 of the API on none of them is accepted. Parameters that would only make a
request fail are dropped here. Other models behind a server of this protocol accept all of them ("sent").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hearthnet_llm.interface.request import ChatRequest, ResponseSchema, Thinking
from hearthnet_llm.vendors.anthropic import messages, tools
from hearthnet_llm.vendors.anthropic.blocks import cached, hint
from hearthnet_llm.vendors.field_tables import our_word, read_fields, same_names, write_fields
from hearthnet_llm.vendors.json_access import (
    checked,
    entries,
    fields,
    refuse,
    text,
    ungrammatical,
    without_nones,
)
from hearthnet_llm.vendors.wire import HttpRequest, Json, Target

_PATH: Final = "/messages"
_PLAIN: Final = {"stop": "stop_sequences", "service_tier": "service_tier"}
_SAMPLING: Final = same_names("temperature", "top_p", "top_k")
_TASK: Final = {"task_tokens": "total", "task_tokens_left": "remaining"}
_BETA: Final = "?beta=true"
_BEHAVIOR: Final = "prefix_mismatch_behavior"
_VERSION: Final = "2023-06-01"
MODES: Final[dict[Any, str]] = {
    "on": "enabled",
    "auto": "adaptive",
    "off": "disabled",
    "between_calls": "between_tools",
}
_MISMATCHED: Final[dict[Any, str]] = {"error": "error", "drop": "drop_block"}
_THINKING_DISPLAY: Final[dict[str, str]] = {"parsed": "summarized", "hidden": "omitted", "updates": "updates"}
SAMPLING: Final = ("auto", "sent")
"""By the model's generation, or all parameters as requested."""
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "structured": ("output_config", "output_format"),
    "beta": ("no", "yes"),
    "tool_type": ("none", "custom"),
    "empty_result": ("absent", "empty"),
    "max_tokens": ("always", "asked"),
    "no_budget": ("adaptive", "enabled"),
    "lone_choice": ("left_out", "sent"),
    "unproved": ("left_out", "sent"),
    "sampling": SAMPLING,
}
_EARLIER: Final = re.compile(r"claude-(v?[123]|instant|[a-z]+-4([-.][0-6](?!\d)|-20\d{6}|$|[@:]))")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d$")
_NONE_SINCE: Final = "2026-10-21"
"""The version of the API that accepts none of them."""
_ONE_OF_TWO: Final = re.compile(r"claude-[a-z]+-4[-.][56]")
"""Models that accept a temperature or top_p, and not both."""
_LONGEST: Final = (
    (re.compile(r"claude-(v?[12]|instant|3-(opus|sonnet|haiku))"), 4096),
    (re.compile(r"claude-3[-.]5"), 8192),
    (re.compile(r"claude-opus-4([-.][01](?!\d)|-20\d{6}|$|[@:])"), 32_000),
    (re.compile(r"claude-[a-z]+-4[-.][6-9]"), 128_000),
    (re.compile("claude"), 64_000),
)
"""Most tokens of an answer if no list of models states it (Anthropic, "Models overview")."""
_LONGEST_OTHER: Final = 8192
_BESIDE_THOUGHTS: Final = 1024
"""Tokens of an answer beside the budget of its thoughts, which must be smaller than both together."""


def encode(request: ChatRequest, target: Target) -> HttpRequest:
    """Return the request POST /messages."""
    beta = _BETA if target.spelling.get("beta") == "yes" else ""
    body = write(request, target)
    streamed = without_nones(stream=request.stream)
    headers = {"anthropic-version": target.api_version or _VERSION}
    return HttpRequest(
        "POST", f"{target.base}{_PATH}{beta}", {"model": target.model, **body, **streamed}, headers
    )


def read(native: HttpRequest, vendor: str) -> tuple[ChatRequest, Target]:
    """Return the request of a native one, as `Wire.read`."""
    path, _, query = native.url.partition("?")
    if not path.endswith(_PATH):
        refuse("path", f"must end in {_PATH}")
    spelling = {"beta": "yes" if query == _BETA[1:] else "no"}
    request = read_body(native.body, spelling, native.body.get("stream"))
    model = text(native.body.get("model"), "model")
    return request, Target(model, path.removesuffix(_PATH), vendor, spelling=spelling)


def write(request: ChatRequest, target: Target) -> Json:
    """Return the body without model and stream."""
    ungrammatical(request)
    spelling = target.spelling
    body: Json = {
        **messages.write(request.messages, spelling),
        **_limit(request, target),
        **allowed_sampling(request, target.model, spelling.get("sampling", "auto"), target.api_version),
        **write_fields(request, _PLAIN),
        **_tools(request, spelling),
        **_output(request, spelling.get("structured", "output_config")),
        **cached(request.cache),
    }
    if request.thinking is not None:
        thinking = _thinking(request.thinking, spelling)
        body |= {"thinking": thinking} if thinking else {}
    return body


def read_body(body: Json, spelling: dict[str, str], stream: Any) -> ChatRequest:
    """Return the request of a native body; records its variants in `spelling`."""
    if body.get("thread") is not None:
        refuse("thread", "conversations are kept on the mesh; send the whole")
    choice, parallel = tools.read_choice(body.get("tool_choice"))
    native = body.get("tools")
    spelling["sampling"] = "sent"
    spelling["max_tokens"] = "asked"
    spelling["lone_choice"] = "sent"
    declared = [tools.read(tool, path, spelling) for tool, path in entries(native, "tools")]
    request = ChatRequest(
        messages=messages.read(body, spelling),
        tools=None if native is None else declared,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_schema=_read_output(body, spelling),
        thinking=_read_thinking(body, spelling),
        cache=hint(body),
        stream=stream,
        **read_fields(body, {"max_tokens": "max_tokens", **_SAMPLING, **_PLAIN}),
        **read_fields(_task_budget(body), _TASK),
    )
    return checked(request)


def _tools(request: ChatRequest, spelling: Mapping[str, str]) -> Json:
    """Return the tools and the choice; of a choice among several only those are declared."""
    choice = request.tool_choice
    declared = tools.allowed(request.tools or [], choice)
    chosen = tools.write_choice(choice, request.parallel_tool_calls)
    if not declared and spelling.get("lone_choice") != "sent":
        chosen = None
    made = None if request.tools is None else [tools.write(tool, spelling) for tool in declared]
    return without_nones(tools=made, tool_choice=chosen)


def _limit(request: ChatRequest, target: Target) -> Json:
    if request.max_tokens is not None:
        return {"max_tokens": request.max_tokens}
    if target.spelling.get("max_tokens") == "asked":
        return {}
    return {"max_tokens": longest_answer(request, target.model, target.answer)}


def _thinking(thinking: Thinking, spelling: Mapping[str, str]) -> Json:
    """Return the field `thinking`, empty if unspecified.

    Thinking without a budget is adaptive thinking.
    """
    mode = thinking.mode
    if mode == "on" and thinking.budget_tokens is None and spelling.get("no_budget") != "enabled":
        mode = "auto"
    if mode is None:
        return {}
    kind = MODES[mode]
    budget = thinking.budget_tokens if mode == "on" else None
    shown = None if thinking.show is None else _THINKING_DISPLAY.get(thinking.show)
    bound = None if thinking.mismatched is None else {_BEHAVIOR: _MISMATCHED[thinking.mismatched]}
    return without_nones(type=kind, budget_tokens=budget, display=shown, block_binding=bound)


def _read_thinking(body: Json, spelling: dict[str, str]) -> Thinking | None:
    config = body.get("output_config")
    effort = None if config is None else fields(config, "output_config").get("effort")
    if body.get("thinking") is None:
        return None if effort is None else Thinking(effort=effort)
    native = fields(body["thinking"], "thinking")
    mode = our_word(MODES, native.get("type"), "thinking.type")
    if mode == "on" and native.get("budget_tokens") is None:
        spelling["no_budget"] = "enabled"
    bound = fields(native.get("block_binding") or {}, "thinking.block_binding").get(_BEHAVIOR)
    return Thinking(
        mode,
        effort,
        native.get("budget_tokens"),
        our_word(_THINKING_DISPLAY, native.get("display"), "thinking.display"),
        mismatched=our_word(_MISMATCHED, bound, f"thinking.block_binding.{_BEHAVIOR}"),
    )


def _task_budget(body: Json) -> Json:
    """Return the token budget of the whole task."""
    config = fields(body.get("output_config") or {}, "output_config")
    return fields(config.get("task_budget") or {}, "output_config.task_budget")


def _output(request: ChatRequest, spelling: str) -> Json:
    """Return the answer's form and the effort, which this vendor keeps in one field."""
    form = None if request.response_schema is None else _format(request.response_schema)
    effort = None if request.thinking is None else request.thinking.effort
    named = spelling == "output_format" and form is not None
    task = None if request.task_tokens is None else {"type": "tokens", **write_fields(request, _TASK)}
    config = without_nones(format=None if named else form, effort=effort, task_budget=task)
    return {**({"output_format": form} if named else {}), **({"output_config": config} if config else {})}


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


def allowed_sampling(request: ChatRequest, model: str, choice: str, version: str = "") -> Json:
    """Return `temperature`, `top_p` and `top_k`, as far as model and API version accept them."""
    sampling = write_fields(request, _SAMPLING)
    if choice == "sent":
        return sampling
    dated = _DATE.search(version)
    if (dated and dated[0] >= _NONE_SINCE) or not _EARLIER.search(model):
        return {}
    if request.thinking is not None and request.thinking.mode in ("on", "auto"):
        return {"temperature": 1} if request.temperature == 1 else {}
    if "temperature" in sampling and _ONE_OF_TWO.search(model):
        sampling.pop("top_p", None)
    return sampling


def longest_answer(request: ChatRequest, model: str, stated: int | None) -> int:
    """Return the required `max_tokens` for a request without one: the model's maximum.

    `stated` is the maximum according to its server.
    """
    most = stated or next((most for name, most in _LONGEST if name.search(model)), _LONGEST_OTHER)
    budget = None if request.thinking is None else request.thinking.budget_tokens
    return max(most, 0 if budget is None else budget + _BESIDE_THOUGHTS)
