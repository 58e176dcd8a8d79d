"""The plain fields of a request as a table, and the form of the answer, in both directions.

The table has canonical name, native names, and values; a native name may be a path. The form of the answer
is a JSON Schema or a grammar, under each vendor's name for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hearthnet_llm.interface.request import ChatRequest, ResponseSchema, TextForm
from hearthnet_llm.vendors.json_access import fields, refuse, text, value_at, without_nones
from hearthnet_llm.vendors.openai.dialect import SPELLINGS, Choices
from hearthnet_llm.vendors.wire import Json

_FORMAT: Final = "response_format"
_SCHEMA_NAME: Final = "response"
"""Default name of a schema; OpenAI requires one."""
_BARE: Final[dict[str, str]] = {
    "bare": "json_schema",
    "guided_json": "guided_json",
    "structured_outputs": "structured_outputs.json",
}
"""Paths in the request of a schema without a wrapper."""
_GRAMMARS: Final[dict[str, tuple[str, str]]] = {
    "grammar": ("grammar", "gbnf"),
    "guided_grammar": ("guided_grammar", "gbnf"),
    "guided_regex": ("guided_regex", "regex"),
    "structured_grammar": ("structured_outputs.grammar", "gbnf"),
    "structured_regex": ("structured_outputs.regex", "regex"),
    "format_grammar": (f"{_FORMAT}.grammar", "gbnf"),
    "format_regex": (f"{_FORMAT}.regex.regex", "regex"),
}
"""Path and syntax of a grammar."""
_TYPED: Final = {"format_grammar": "grammar", "format_regex": "regex"}
"""The type of a `response_format` that is a grammar."""


class _Words(NamedTuple):
    """Values that natively are other words; values in neither column stay as they are."""

    natively: Mapping[Any, Any]

    def write(self, value: Any) -> Any:
        """Return the native value."""
        return self.natively.get(value, value) if isinstance(value, str | bool) else value

    def read(self, value: Any) -> Any:
        """Return the canonical value."""
        for ours, theirs in self.natively.items():
            if theirs == value and type(theirs) is type(value):
                return ours
        return value


class _Field(NamedTuple):
    """A canonical field by its path, with the choice that names it, or its only native name."""

    path: str
    choice: str = ""
    native: str = ""
    sampling: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The possible native names."""
        return SPELLINGS[self.choice] if self.choice else (self.native or self.path,)


_AS_IT_IS: Final = _Words({})
_SWITCH: Final = _Words({"on": True, "off": False})
_OPPOSITE: Final = _Words({True: False, False: True})
_WORDS: Final[dict[str, _Words]] = {
    "thinking.type": _Words({"on": "enabled", "off": "disabled"}),
    **dict.fromkeys(("enable_thinking", "reasoning.enabled", "think"), _SWITCH),
    "chat_template_kwargs.enable_thinking": _SWITCH,
    "chat_template_kwargs.thinking": _SWITCH,
    **dict.fromkeys(("thinking.clear_thinking", "clear_thinking"), _OPPOSITE),
    "prompt_mode": _Words({"on": "reasoning"}),
    "disable_reasoning": _Words({"on": False, "off": True}),
    "include_reasoning": _Words({"parsed": True, "hidden": False}),
    "reasoning.exclude": _Words({"hidden": True, "parsed": False}),
}
_SAMPLING: Final = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "logit_bias",
    "logprobs", "top_logprobs",
)  # fmt: skip
_FIELDS: Final = (
    *map(_Field, ("stream", "parallel_tool_calls", "verbosity", "service_tier")),
    _Field("cache_key", native="prompt_cache_key"),
    _Field("cache_ttl", native="prompt_cache_retention"),
    _Field("max_tokens", "max_tokens"),
    _Field("seed", "seed"),
    *(_Field(name, sampling=True) for name in _SAMPLING),
    _Field("repetition_penalty", "repetition", sampling=True),
    _Field("thinking.mode", "mode"),
    _Field("thinking.effort", "effort"),
    _Field("thinking.budget_tokens", "budget"),
    _Field("thinking.show", "show"),
    _Field("thinking.keep", "keep"),
)
_NOT_HERE: Final = "between_calls"
"""A mode of thinking that no vendor of this protocol has; it is omitted."""

_USAGE: Final = {
    (True, True): "both",
    (True, False): "stream_options",
    (False, True): "usage",
    (False, False): "none",
}
_STREAM_OPTIONS: Final[dict[str, Json]] = {
    "stream_options": {"include_usage": True},
    "both": {"include_usage": True},
    "refused": {"include_usage": False},
    "empty": {},
}


def write(request: Any, choices: Choices, body: Json) -> None:
    """Put the plain fields of `request` (an object with their canonical names) into `body`."""
    plain = choices["sampling"] == "sent"
    for field in _FIELDS:
        value = _attribute(request, field.path)
        if value in (None, _NOT_HERE) or (field.sampling and not plain):
            continue
        name = choices[field.choice] if field.choice else field.names[0]
        _put(body, name, _WORDS.get(name, _AS_IT_IS).write(value))
    stops = getattr(request, "stop", None)
    if stops is not None and plain:
        body["stop"] = stops[0] if choices["stop"] == "text" and len(stops) == 1 else stops


def read(body: Json, spelling: dict[str, str]) -> Json:
    """Return the plain fields of a native `body` by canonical name.

    Records their variants in `spelling`.
    """
    made: Json = {}
    for field in _FIELDS:
        for name in field.names:
            value = value_at(body, name)
            if value is None:
                continue
            _put(made, field.path, _WORDS.get(name, _AS_IT_IS).read(value))
            if field.choice:
                spelling[field.choice] = name
            if field.sampling:
                spelling["sampling"] = "sent"
            break
    stop = body.get("stop")
    if stop is not None:
        spelling["stop"], spelling["sampling"] = ("text" if isinstance(stop, str) else "list"), "sent"
        made["stop"] = [stop] if isinstance(stop, str) else stop
    return made


def write_usage(choices: Choices, body: Json) -> None:
    """Request the token counts at the end of a stream."""
    usage = choices["usage"]
    if usage in _STREAM_OPTIONS:
        body["stream_options"] = dict(_STREAM_OPTIONS[usage])
    if usage in ("usage", "both"):
        body["usage"] = {"include": True}


def read_usage(body: Json, spelling: dict[str, str]) -> None:
    """Record how the token counts were requested."""
    requested = bool(value_at(body, "stream_options.include_usage")), bool(value_at(body, "usage.include"))
    spelling["usage"] = _USAGE[requested]
    options = body.get("stream_options")
    if not any(requested) and isinstance(options, dict) and options.get("include_obfuscation") is None:
        spelling["usage"] = "empty" if options.get("include_usage") is None else "refused"


def _attribute(request: Any, path: str) -> Any:
    for step in path.split("."):
        request = getattr(request, step, None)
    return request


def _put(body: Json, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for step in parents:
        body = body.setdefault(step, {})
    body[last] = value


def write_format(request: ChatRequest, choices: Choices, body: Json) -> None:
    """Put the form of the answer into `body`.

    Raises:
        HearthNetError: `bad_request` for a grammar that the vendor does not support.
    """
    schema = request.response_schema
    form = choices["schema"]
    if schema is None:
        if choices["plain_text"] == "said":
            body[_FORMAT] = {"type": "text"}
    elif schema.schema is None:
        body[_FORMAT] = {"type": "json_object"}
    elif form in _BARE:
        _put(body, _BARE[form], schema.schema)
    else:
        name = schema.name or (_SCHEMA_NAME if choices["schema_name"] == "always" else None)
        body[_FORMAT] = _format(schema, schema.schema, form, name)
    if request.grammar is not None:
        _write_grammar(request.grammar, choices, body)


def _format(schema: ResponseSchema, native: Json, form: str, name: str | None) -> Json:
    match form:
        case "json_object":
            return {"type": "json_object", "schema": native}
        case "flat":
            return {"type": "json_schema", "schema": native}
        case "value":
            return {"type": "json", "value": native}
        case _:
            named = without_nones(name=name, description=schema.description, strict=schema.strict)
            return {"type": "json_schema", "json_schema": {**named, "schema": native}}


def _write_grammar(grammar: TextForm, choices: Choices, body: Json) -> None:
    form = choices["grammar"]
    where, syntax = _GRAMMARS.get(form, ("", ""))
    if grammar.definition is None or (grammar.syntax or "gbnf") != syntax:
        refuse("/input/grammar", f"this server takes no grammar in {grammar.syntax or 'gbnf'}")
    if form in _TYPED:
        body[_FORMAT] = {"type": _TYPED[form]}
    _put(body, where, grammar.definition)


def read_format(body: Json, spelling: dict[str, str]) -> Json:
    """Return the canonical fields of the answer's form in a native `body`, or nothing."""
    made = _read_response_format(body, spelling)
    for form, where in _BARE.items():
        schema = value_at(body, where)
        if schema is not None and "response_schema" not in made:
            spelling["schema"] = form
            made["response_schema"] = {"schema": fields(schema, where)}
    for form, (where, syntax) in _GRAMMARS.items():
        found = value_at(body, where)
        if found is not None:
            spelling["grammar"] = form
            made["grammar"] = {"syntax": syntax, "definition": text(found, where)}
    return made


def _read_response_format(body: Json, spelling: dict[str, str]) -> Json:
    if body.get(_FORMAT) is None:
        return {}
    form = fields(body[_FORMAT], _FORMAT)
    match form.get("type"):
        case "text":
            spelling["plain_text"] = "said"
            return {}
        case "json_object":
            if form.get("schema") is None:
                return {"response_schema": {}}
            spelling["schema"] = "json_object"
            return {"response_schema": {"schema": form["schema"]}}
        case "json":
            spelling["schema"] = "value"
            return {"response_schema": {"schema": fields(form.get("value"), f"{_FORMAT}.value")}}
        case "json_schema" if form.get("json_schema") is None:
            spelling["schema"] = "flat"
            return {"response_schema": {"schema": fields(form.get("schema"), f"{_FORMAT}.json_schema")}}
        case "json_schema":
            spelling["schema"] = "json_schema"
            native = fields(form["json_schema"], f"{_FORMAT}.json_schema")
            spelling["schema_name"] = "asked"
            found = {name: native.get(name) for name in ("name", "description", "strict", "schema")}
            return {"response_schema": without_nones(**found)}
        case "grammar" | "regex":
            return {}
        case other:
            refuse(f"{_FORMAT}.type", f"{other!r} is no known form")
