"""Requests to Gemini with what its reference allows: read, and built again the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.llm.asking import outcome

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
DIALECT = {
    "type": "OBJECT",
    "properties": {
        "a": {"type": "STRING", "nullable": True},
        "c": {"anyOf": [{"type": "STRING"}, {"type": "NULL"}]},
    },
    "propertyOrdering": ["a"],
}
CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}
GIVEN = {"functionResponse": {"name": "f", "response": {"result": 1}}}
SAID = {"text": "x"}


def contents(*turns: list[Json]) -> Json:
    """A conversation of Gemini's."""
    roles = ("user", "model")
    return {"contents": [{"role": roles[place % 2], "parts": turn} for place, turn in enumerate(turns)]}


GEMINI: dict[str, Json] = {
    "settings": {
        "generationConfig": {
            "temperature": 0,
            "topP": 1,
            "topK": 3,
            "maxOutputTokens": 5,
            "stopSequences": ["a"],
            "seed": 3,
            "candidateCount": 1,
            "presencePenalty": 0.1,
            "frequencyPenalty": 0.2,
            "responseLogprobs": True,
            "logprobs": 3,
            "responseModalities": ["TEXT"],
            "thinkingConfig": {"thinkingBudget": 0, "includeThoughts": True},
        },
        "safetySettings": [{"category": "a", "threshold": "b"}],
        "cachedContent": "c",
        "labels": {"a": "b"},
        "serviceTier": "flex",
        "systemInstruction": {"role": "system", "parts": {"text": "x"}},
    },
    "level": {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}},
    "as needed": {"generationConfig": {"thinkingConfig": {"thinkingBudget": -1}}},
    "think": {"generationConfig": {"thinkingConfig": {}}, "toolConfig": {}},
    "plain": {"generationConfig": {"responseMimeType": "text/plain"}},
    "json": {"generationConfig": {"responseMimeType": "application/json"}},
    "form": {"generationConfig": {"responseMimeType": "application/json", "responseSchema": DIALECT}},
    "words": {"generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING"}}},
    "form alone": {"generationConfig": {"responseSchema": {"type": 1}}},
    "tools": {
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "f", "description": "", "parameters": DIALECT, "response": DIALECT}
                ]
            },
            {"functionDeclarations": [{"name": "g"}]},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "streamFunctionCallArguments": True}},
    },
    "tools in one": {
        "tools": [
            {
                "codeExecution": {},
                "functionDeclarations": [
                    {"name": "f", "parametersJsonSchema": SCHEMA, "responseJsonSchema": SCHEMA}
                ],
            }
        ],
        "toolConfig": {"functionCallingConfig": {}},
    },
    "own tools": {
        "tools": [
            {"googleSearch": {"excludeDomains": ["a"]}},
            {"googleMaps": {}},
            {"urlContext": {}},
            {"fileSearch": {"file_search_store_names": ["s"], "topK": 3, "metadataFilter": "f"}},
            {"computerUse": {"environment": "E", "excludedPredefinedFunctions": ["a"]}},
            {"enterpriseWebSearch": {}},
            {"googleSearchRetrieval": {}},
        ],
        "toolConfig": {
            "functionCallingConfig": {"mode": "VALIDATED"},
            "includeServerSideToolInvocations": False,
        },
    },
    "some tools": {
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}},
    },
    "calls": contents(
        [SAID],
        [
            {"text": "t", "thought": True, "thoughtSignature": "AA=="},
            {**CALL, "thoughtSignature": "BB=="},
            CALL,
        ],
        [GIVEN, GIVEN, SAID],
    ),
    "calls without arguments": contents([SAID], [{"functionCall": {"name": "f"}}], [GIVEN]),
    "of a role of their own": {
        "contents": [
            {"parts": [SAID]},
            {"role": "model", "parts": [CALL]},
            {"role": "function", "parts": [GIVEN]},
        ]
    },
    "failures": contents(
        [SAID],
        [{"functionCall": {"id": "q", "name": "f", "args": {}}}],
        [{"functionResponse": {"id": "q", "name": "f", "response": {"error": "bad"}}}],
    ),
    "a failure with a picture": contents(
        [SAID],
        [CALL],
        [
            {
                "functionResponse": {
                    "name": "f",
                    "response": {"error": "x"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA"}}],
                }
            }
        ],
    ),
    "a result for nothing": contents([GIVEN, SAID]),
    "media": contents(
        [
            {"inlineData": {"mimeType": "image/png", "data": "AA"}, "mediaResolution": {"level": "HIGH"}},
            {
                "fileData": {"fileUri": "u", "mimeType": "video/mp4"},
                "videoMetadata": {"startOffset": "1s", "fps": 2},
            },
            {"fileData": {"fileUri": "https://youtu.be/x"}, "videoMetadata": {"endOffset": "2s"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "AA"}},
            {"fileData": {"fileUri": "u", "mimeType": "application/pdf", "displayName": "p"}},
        ]
    ),
    "own tools at work": contents(
        [SAID],
        [
            {"executableCode": {"language": "PYTHON", "code": "1", "id": "z"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            {"toolCall": {"tool_type": "FILE_SEARCH", "id": "i", "args": {}}, "thoughtSignature": "AA=="},
            {"toolResponse": {"tool_type": "FILE_SEARCH", "id": "i", "response": {}}},
            {"thoughtSignature": "AA=="},
        ],
    ),
}


@pytest.mark.req("LLM-32")
@pytest.mark.parametrize("name", GEMINI)
def test_a_request_to_gemini_comes_back_the_same(name: str) -> None:
    body = {**contents([SAID]), **GEMINI[name]}
    path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
    assert outcome("gemini", f"{path}?alt=sse", body) == ("ok", [])
    assert outcome("gemini", path, body) == ("ok", [])
    assert outcome("gemini", "/v1beta/tunedModels/own:generateContent", body) == ("ok", [])
