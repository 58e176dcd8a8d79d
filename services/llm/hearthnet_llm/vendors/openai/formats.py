"""The form of the answer: a JSON Schema or a grammar, under each vendor's name for it."""

from __future__ import annotations

from typing import Any, Final

from hearthnet_llm.interface.request import ChatRequest, ResponseSchema, TextForm
from hearthnet_llm.vendors.json_access import fields, refuse, text, without_nones
from hearthnet_llm.vendors.openai.dialect import Choices
from hearthnet_llm.vendors.wire import Json

_FIELD: Final = "response_format"
_NAME: Final = "response"
"""Default name of a schema; OpenAI requires one."""
_BARE: Final[dict[str, tuple[str, ...]]] = {
    "bare": ("json_schema",),
    "guided_json": ("guided_json",),
    "structured_outputs": ("structured_outputs", "json"),
}
"""Paths in the request of a schema without a wrapper."""
_GRAMMARS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "grammar": (("grammar",), "gbnf"),
    "guided_grammar": (("guided_grammar",), "gbnf"),
    "guided_regex": (("guided_regex",), "regex"),
    "structured_grammar": (("structured_outputs", "grammar"), "gbnf"),
    "structured_regex": (("structured_outputs", "regex"), "regex"),
    "format_grammar": ((_FIELD, "grammar"), "gbnf"),
    "format_regex": ((_FIELD, "regex", "regex"), "regex"),
}
"""Path and syntax of a grammar."""
_TYPED: Final = {"format_grammar": "grammar", "format_regex": "regex"}
"""The type of a `response_format` that is a grammar."""


def write(request: ChatRequest, choices: Choices, body: Json) -> None:
    """Put the form of the answer into `body`.

    Raises:
        HearthNetError: `bad_request` for a grammar that the vendor does not support.
    """
    schema = request.response_schema
    form = choices["schema"]
    if schema is None:
        if choices["plain_text"] == "said":
            body[_FIELD] = {"type": "text"}
    elif schema.schema is None:
        body[_FIELD] = {"type": "json_object"}
    elif form in _BARE:
        _put(body, _BARE[form], schema.schema)
    else:
        name = schema.name or (_NAME if choices["schema_name"] == "always" else None)
        body[_FIELD] = _format(schema, schema.schema, form, name)
    if request.grammar is not None:
        _write_grammar(request.grammar, choices, body)


def _format(schema: ResponseSchema, given: Json, form: str, name: str | None) -> Json:
    match form:
        case "json_object":
            return {"type": "json_object", "schema": given}
        case "flat":
            return {"type": "json_schema", "schema": given}
        case "value":
            return {"type": "json", "value": given}
        case _:
            named = without_nones(name=name, description=schema.description, strict=schema.strict)
            return {"type": "json_schema", "json_schema": {**named, "schema": given}}


def _write_grammar(grammar: TextForm, choices: Choices, body: Json) -> None:
    form = choices["grammar"]
    where, syntax = _GRAMMARS.get(form, ((), ""))
    if grammar.definition is None or (grammar.syntax or "gbnf") != syntax:
        refuse("/input/grammar", f"this server takes no grammar in {grammar.syntax or 'gbnf'}")
    if form in _TYPED:
        body[_FIELD] = {"type": _TYPED[form]}
    _put(body, where, grammar.definition)


def read(body: Json, spelling: dict[str, str]) -> Json:
    """Return the canonical fields of the answer's form in a native `body`, or nothing."""
    made = _read_format(body, spelling)
    for form, where in _BARE.items():
        schema = _get(body, where)
        if schema is not None and "response_schema" not in made:
            spelling["schema"] = form
            made["response_schema"] = {"schema": fields(schema, ".".join(where))}
    for form, (where, syntax) in _GRAMMARS.items():
        found = _get(body, where)
        if found is not None:
            spelling["grammar"] = form
            made["grammar"] = {"syntax": syntax, "definition": text(found, ".".join(where))}
    return made


def _read_format(body: Json, spelling: dict[str, str]) -> Json:
    if body.get(_FIELD) is None:
        return {}
    form = fields(body[_FIELD], _FIELD)
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
            return {"response_schema": {"schema": fields(form.get("value"), f"{_FIELD}.value")}}
        case "json_schema" if form.get("json_schema") is None:
            spelling["schema"] = "flat"
            return {"response_schema": {"schema": fields(form.get("schema"), f"{_FIELD}.json_schema")}}
        case "json_schema":
            spelling["schema"] = "json_schema"
            given = fields(form["json_schema"], f"{_FIELD}.json_schema")
            spelling["schema_name"] = "asked"
            known = {name: given.get(name) for name in ("name", "description", "strict", "schema")}
            return {"response_schema": without_nones(**known)}
        case "grammar" | "regex":
            return {}
        case other:
            refuse(f"{_FIELD}.type", f"{other!r} is no known form")


def _get(body: Json, path: tuple[str, ...]) -> Any:
    value: Any = body
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _put(body: Json, path: tuple[str, ...], value: Any) -> None:
    *parents, last = path
    for step in parents:
        body = body.setdefault(step, {})
    body[last] = value
