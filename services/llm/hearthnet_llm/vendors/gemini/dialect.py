"""Google's JSON: field names in snake_case or camelCase, and schemas in a dialect of its own.

Both spellings of a name mean the same field (protobuf.dev, "ProtoJSON Format"). Here everything is camelCase;
a target's spelling has the exceptions. `_FIELDS` lists the messages of a request that have fields of several
words. Each field has the message that it contains, or "" if its value is no message of this table: values,
arguments, results.

The schema dialect (OpenAPI 3.0's) is used by `parameters` and `responseSchema`. It differs from JSON Schema
in the spelling of types, STRING or 1 for "string", and in `nullable` for a second type "null", which some
clients nevertheless write as a list. `prefix` is that of the choices in a spelling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
TYPES: Final = ("lower", "upper", "number")
"""Spellings of a type."""
_BY_NUMBER: Final = dict(enumerate(("string", "number", "integer", "boolean", "array", "object", "null"), 1))
_NUMBERS: Final = {name: number for number, name in _BY_NUMBER.items()}
_WRITTEN: Final[dict[str, Callable[[str], Any]]] = {
    "lower": lambda name: name,
    "upper": str.upper,
    "number": lambda name: _NUMBERS.get(name, name),
}
_NAMED: Final = ("properties", "$defs", "defs")
_INNER: Final = ("items", "anyOf", "additionalProperties", "prefixItems", "oneOf", "allOf")


def _values(names: str) -> dict[str, str]:
    """Return fields that contain no message."""
    return dict.fromkeys(names.split(), "")


_FIELDS: Final[dict[str, dict[str, str]]] = {
    "Request": {
        **_values("safetySettings modelArmorConfig cachedContent serviceTier"),
        "contents": "Content",
        "systemInstruction": "Content",
        "tools": "Tool",
        "toolConfig": "ToolConfig",
        "generationConfig": "Generation",
    },
    "Content": {"parts": "Part"},
    "Part": {
        **_values(
            "thoughtSignature functionCall executableCode codeExecutionResult mediaResolution mediaProcessing"
        ),
        "inlineData": "Blob",
        "fileData": "File",
        "functionResponse": "Response",
        "toolCall": "ServerCall",
        "toolResponse": "ServerCall",
        "videoMetadata": "Video",
    },
    "Response": {"parts": "ResponsePart"},
    "ResponsePart": {"inlineData": "ResponseBlob", "fileData": "ResponseFile"},
    "Blob": {"mimeType": "", "displayName": ""},
    "File": {"fileUri": "", "mimeType": "", "displayName": ""},
    "ResponseBlob": {"mimeType": "", "displayName": ""},
    "ResponseFile": {"fileUri": "", "mimeType": "", "displayName": ""},
    "ServerCall": {"toolType": ""},
    "Video": {"startOffset": "", "endOffset": ""},
    "Retrieving": {"latLng": "", "languageCode": ""},
    "Tool": {
        "functionDeclarations": "Function",
        "googleSearch": "Search",
        "googleSearchRetrieval": "SearchRetrieval",
        "codeExecution": "",
        "urlContext": "",
        "fileSearch": "FileSearch",
        "googleMaps": "Maps",
        "enterpriseWebSearch": "EnterpriseSearch",
        "computerUse": "Computer",
    },
    "Function": {
        "parameters": "Schema",
        "parametersJsonSchema": "",
        "response": "Schema",
        "responseJsonSchema": "",
    },
    "Search": {"excludeDomains": "", "timeRangeFilter": "Interval", "searchTypes": "SearchTypes"},
    "SearchTypes": {"webSearch": "", "imageSearch": ""},
    "Interval": {"startTime": "", "endTime": ""},
    "SearchRetrieval": {"dynamicRetrievalConfig": "Dynamic"},
    "Dynamic": {"dynamicThreshold": ""},
    "Maps": {"enableWidget": ""},
    "EnterpriseSearch": {"excludeDomains": ""},
    "FileSearch": {"fileSearchStoreNames": "", "topK": "", "metadataFilter": ""},
    "Computer": {"excludedPredefinedFunctions": ""},
    "ToolConfig": {
        "functionCallingConfig": "Calling",
        "includeServerSideToolInvocations": "",
        "retrievalConfig": "Retrieving",
    },
    "Calling": {"allowedFunctionNames": "", "streamFunctionCallArguments": ""},
    "Generation": {
        **_values(
            "maxOutputTokens topP topK stopSequences candidateCount responseModalities "
            "responseMimeType responseJsonSchema presencePenalty frequencyPenalty responseLogprobs "
            "mediaResolution speechConfig imageConfig"
        ),
        "responseSchema": "Schema",
        "thinkingConfig": "Thinking",
    },
    "Thinking": {"includeThoughts": "", "thinkingBudget": "", "thinkingLevel": ""},
    "Schema": {
        **_values("propertyOrdering minItems maxItems minLength maxLength minProperties maxProperties"),
        "properties": "Schema by name",
        "items": "Schema",
        "anyOf": "Schema",
        "additionalProperties": "Schema",
        "defs": "Schema by name",
        "$defs": "Schema by name",
    },
}


def snake(name: str) -> str:
    """Return `mimeType` as mime_type."""
    return _CAPITAL.sub(r"_\1", name).lower()


_IN_SNAKE_CASE: Final = {
    (message, snake(field)): field
    for message, known in _FIELDS.items()
    for field in known
    if snake(field) != field
}
SPELLINGS: Final = {f"{message}.{field}": (field, name) for (message, name), field in _IN_SNAKE_CASE.items()}
"""A choice for each field with two names."""


def camel(value: Any, message: str, spelling: dict[str, str]) -> Any:
    """Return `value`, a `message` of the table, in camelCase; record exceptions in `spelling`."""

    def renamed(message: str, name: str) -> str:
        field = _IN_SNAKE_CASE.get((message, name), name)
        if field != name:
            spelling[f"{message}.{field}"] = name
        return field

    return _mapped(value, message, renamed)


def spelled(value: Any, message: str, spelling: Mapping[str, str]) -> Any:
    """Return `value` with the field names of `spelling`."""
    return _mapped(value, message, lambda message, name: spelling.get(f"{message}.{name}", name))


def _mapped(value: Any, message: str, renamed: Callable[[str, str], str]) -> Any:
    if isinstance(value, list):
        return [_mapped(item, message, renamed) for item in value]
    if not isinstance(value, dict):
        return value
    if message == "Schema by name":
        return {name: _mapped(inner, "Schema", renamed) for name, inner in value.items()}
    messages, made = _FIELDS.get(message, {}), {}
    for name, inner in value.items():
        new = renamed(message, name)
        held = messages.get(name) or messages.get(new)
        made[new] = _mapped(inner, held, renamed) if held else inner
    return made


def write_schema(schema: Any, spelling: Mapping[str, str], prefix: str = "") -> Any:
    """Return the schema in the dialect."""
    types = spelling.get(f"{prefix}types", TYPES[0])
    listed = spelling.get(f"{prefix}nullable") == "list"
    return _mapped_schema(
        schema, lambda inner: _write_type(_without_booleans(inner), _WRITTEN[types], listed)
    )


def _without_booleans(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` without boolean schemas, which the dialect lacks.

    `true` becomes {}, and `false` is dropped.
    """
    made = dict(schema)
    for name in _NAMED:
        if isinstance(made.get(name), dict):
            made[name] = {key: _object(inner) for key, inner in made[name].items() if inner is not False}
    for name in _INNER:
        if isinstance(made.get(name), list):
            made[name] = [_object(inner) for inner in made[name] if inner is not False]
    if isinstance(made.get("items"), bool):
        made["items"] = {}
    return made


def _object(schema: Any) -> Any:
    return {} if schema is True else schema


def _write_type(schema: dict[str, Any], written: Callable[[str], Any], listed: bool) -> dict[str, Any]:
    kind = schema.get("type")
    made = dict(schema)
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null" and not listed:
        made |= {"type": kind[0], "nullable": True}
        kind = kind[0]
    if isinstance(kind, str):
        made["type"] = written(kind)
    elif isinstance(kind, list):
        made["type"] = [written(one) if isinstance(one, str) else one for one in kind]
    return made


def read_schema(schema: Any, spelling: dict[str, str], prefix: str = "") -> Any:
    """Return the JSON Schema of one in the dialect; records the spelling of types."""
    return _mapped_schema(schema, lambda inner: _read_type(inner, spelling, prefix))


def _read_type(schema: dict[str, Any], spelling: dict[str, str], prefix: str) -> dict[str, Any]:
    kind = schema.get("type")
    made = dict(schema)
    if isinstance(kind, list):
        spelling[f"{prefix}nullable"] = "list"
        made["type"] = [_plain(one, spelling, prefix) for one in kind]
        return made
    kind = _plain(kind, spelling, prefix)
    if kind is not None:
        made["type"] = kind
        if made.get("nullable") is True and isinstance(kind, str):
            made["type"] = [kind, "null"]
            del made["nullable"]
    return made


def _plain(kind: Any, spelling: dict[str, str], prefix: str) -> Any:
    """Return a type in the spelling of JSON Schema."""
    if isinstance(kind, int):
        spelling[f"{prefix}types"] = "number"
        return _BY_NUMBER.get(kind)
    if isinstance(kind, str) and kind.lower() != kind:
        spelling[f"{prefix}types"] = "upper"
        return kind.lower()
    return kind


def _mapped_schema(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(schema, list):
        return [_mapped_schema(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = change(schema)
    for name in _INNER:
        if name in made:
            made[name] = _mapped_schema(made[name], change)
    for name in _NAMED:
        if isinstance(made.get(name), dict):
            made[name] = {key: _mapped_schema(inner, change) for key, inner in made[name].items()}
    return made
