"""Field names of Google's protobuf JSON, which may be written snake_case or camelCase.

Both mean the same field (protobuf.dev, "ProtoJSON Format"). Here everything is camelCase; a target's spelling
has the exceptions.

`_FIELDS` lists the messages of a request that have fields of several words. Each field has the message that
it contains, or "" if its value is no message of this table: values, arguments, results.
"""

from __future__ import annotations

import re
from typing import Any, Final

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "Request": {
        "contents": "Content",
        "systemInstruction": "Content",
        "tools": "Tool",
        "toolConfig": "ToolConfig",
        "generationConfig": "Generation",
        "safetySettings": "",
        "modelArmorConfig": "",
        "cachedContent": "",
        "serviceTier": "",
    },
    "Content": {"parts": "Part"},
    "Part": {
        "thoughtSignature": "",
        "inlineData": "Blob",
        "fileData": "File",
        "functionCall": "",
        "functionResponse": "Response",
        "executableCode": "",
        "codeExecutionResult": "",
        "toolCall": "ServerCall",
        "toolResponse": "ServerCall",
        "videoMetadata": "Video",
        "mediaResolution": "",
        "mediaProcessing": "",
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
        "maxOutputTokens": "",
        "topP": "",
        "topK": "",
        "stopSequences": "",
        "candidateCount": "",
        "responseModalities": "",
        "responseMimeType": "",
        "responseSchema": "Schema",
        "responseJsonSchema": "",
        "presencePenalty": "",
        "frequencyPenalty": "",
        "responseLogprobs": "",
        "mediaResolution": "",
        "speechConfig": "",
        "imageConfig": "",
        "thinkingConfig": "Thinking",
    },
    "Thinking": {"includeThoughts": "", "thinkingBudget": "", "thinkingLevel": ""},
    "Schema": {
        "properties": "Schema by name",
        "items": "Schema",
        "anyOf": "Schema",
        "additionalProperties": "Schema",
        "defs": "Schema by name",
        "$defs": "Schema by name",
        "propertyOrdering": "",
        "minItems": "",
        "maxItems": "",
        "minLength": "",
        "maxLength": "",
        "minProperties": "",
        "maxProperties": "",
    },
}


def snake(name: str) -> str:
    """Return `mimeType` as mime_type."""
    return _CAPITAL.sub(r"_\1", name).lower()


SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    f"{message}.{field}": (field, snake(field))
    for message, known in _FIELDS.items()
    for field in known
    if snake(field) != field
}
"""A choice for each field with two names."""


def camel(value: Any, message: str, spelling: dict[str, str]) -> Any:
    """Return `value`, a `message` of the table, in camelCase; record exceptions in `spelling`."""
    names = {snake(field): field for field in _FIELDS.get(message, {})}

    def renamed(name: str) -> str:
        field = names.get(name, name)
        if field != name:
            spelling[f"{message}.{field}"] = name
        return field

    return _mapped(value, message, renamed, lambda inner, held: camel(inner, held, spelling))


def spelled(value: Any, message: str, spelling: dict[str, str]) -> Any:
    """Return `value` with the field names of `spelling`."""

    def renamed(name: str) -> str:
        return spelling.get(f"{message}.{name}", name)

    return _mapped(value, message, renamed, lambda inner, held: spelled(inner, held, spelling))


def _mapped(value: Any, message: str, renamed: Any, deeper: Any) -> Any:
    if isinstance(value, list):
        return [_mapped(item, message, renamed, deeper) for item in value]
    if not isinstance(value, dict):
        return value
    if message == "Schema by name":
        return {name: deeper(inner, "Schema") for name, inner in value.items()}
    known, made = _FIELDS.get(message, {}), {}
    for name, inner in value.items():
        new = renamed(name)
        held = known.get(name) or known.get(new)
        made[new] = deeper(inner, held) if held else inner
    return made
