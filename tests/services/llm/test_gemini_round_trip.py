"""Requests to Gemini with what its reference allows: read, and built again the same."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.vendors import gemini
from hearthnet_llm.vendors.wire import HttpRequest
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
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AA"}}
PAPER = {"inlineData": {"mimeType": "application/pdf", "data": "AA"}}


def contents(*turns: list[Json]) -> Json:
    """A conversation of Gemini's."""
    roles = ("user", "model")
    return {"contents": [{"role": roles[place % 2], "parts": turn} for place, turn in enumerate(turns)]}


def choosing(**config: Any) -> Json:
    """A request with a tool and a choice."""
    return {
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "toolConfig": {"functionCallingConfig": config},
    }


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
    "a tool that is not named": contents(
        [SAID],
        [{"toolCall": {"id": "i"}, "thoughtSignature": "AA=="}, {"toolResponse": {"id": "i"}}],
    ),
    "a proof as a thought": contents([SAID], [{"thought": True, "thoughtSignature": "AA=="}, SAID]),
    "pictures that were answered": contents(
        [SAID], [{**PICTURE, "thoughtSignature": "AA=="}, {**PAPER, "thoughtSignature": "BB=="}]
    ),
    "said of some parts that they are no thoughts": contents(
        [{**SAID, "thought": False}],
        [{**CALL, "thoughtSignature": "AA=="}, CALL],
        [{**GIVEN, "thought": False}, {**SAID, "thought": False}],
        [{**SAID, "thoughtSignature": "AA=="}],
        [{**SAID, "thought": False}],
        [{**SAID, "thought": False}],
    ),
    "a turn without parts": {"contents": [{"role": "user", "parts": [SAID]}, {"role": "model"}]},
    "ids of the vendor's own": contents(
        [SAID],
        [{"functionCall": {"id": f"call_{n}", "name": "f", "args": {}}} for n in (46063, 132373)],
        [{"functionResponse": {"id": f"call_{n}", "name": "f", "response": {}}} for n in (132373, 46063)],
    ),
    "ids like ours": contents(
        [SAID],
        [{"functionCall": {"id": "call_1", "name": "f", "args": {}}}],
        [{"functionResponse": {"id": "call_1", "name": "f", "response": {}}}],
    ),
    "a result that is a picture": contents(
        [SAID], [CALL], [{"functionResponse": {"name": "f", "parts": [PICTURE]}}]
    ),
    "a result that names its picture": contents(
        [SAID],
        [CALL],
        [
            {
                "functionResponse": {
                    "name": "f",
                    "response": {"seen": {"$ref": "p"}},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA", "displayName": "p"}}],
                }
            }
        ],
    ),
    "media looked at closely": contents(
        [
            {"fileData": {"fileUri": "u", "mimeType": "video/mp4"}, "mediaResolution": {"level": "LOW"}},
            {"fileData": {"fileUri": "u", "mimeType": "video/mp4"}, "mediaProcessing": "AGENTIC"},
            {**PAPER, "mediaResolution": {"level": "LOW"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "AA", "displayName": "a"}},
        ]
    ),
    "where somebody is": {
        "tools": [{"googleSearch": {}}, {"googleMaps": {"enableWidget": True}}],
        "toolConfig": {
            "retrievalConfig": {"lat_lng": {"latitude": 0, "longitude": 1.5}, "languageCode": "en_US"}
        },
    },
    "settings of own tools": {
        "tools": [
            {
                "googleSearch": {
                    "timeRangeFilter": {
                        "startTime": "2025-01-01T00:00:00Z",
                        "endTime": "2025-02-01T00:00:00Z",
                    },
                    "searchTypes": {"webSearch": {}, "imageSearch": {}},
                }
            },
            {"enterpriseWebSearch": {"excludeDomains": ["a"]}},
            {
                "google_search_retrieval": {
                    "dynamic_retrieval_config": {"mode": "MODE_DYNAMIC", "dynamic_threshold": 0.3}
                }
            },
        ]
    },
    "names of fields in both forms": contents(
        [SAID],
        [CALL],
        [
            {
                "functionResponse": {
                    "name": "f",
                    "response": {},
                    "parts": [{"inline_data": {"mime_type": "image/png", "data": "AA"}}],
                }
            },
            PICTURE,
        ],
    ),
    "one of each": {
        "contents": {"role": "user", "parts": SAID},
        "tools": {"function_declarations": [{"name": "f"}]},
    },
    "no functions": {"tools": [{"codeExecution": {}, "functionDeclarations": []}]},
    "no tools at all": {"tools": [{"functionDeclarations": []}]},
    "a choice in small letters": choosing(mode="any", allowedFunctionNames=["f"]),
    "a choice among none": choosing(mode="ANY", allowedFunctionNames=[]),
    "a choice of some or none": choosing(mode="AUTO", allowedFunctionNames=["f"]),
    "a choice that is left open": choosing(mode="MODE_UNSPECIFIED"),
    "no choice, arguments in pieces": choosing(streamFunctionCallArguments=True),
    "a choice without tools": {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
    "types in a list": {
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "f",
                        "parameters": {
                            "type": "OBJECT",
                            "properties": {"a": {"type": ["STRING", "NULL"]}},
                            "$defs": {"n": {"type": "STRING"}},
                        },
                    }
                ]
            }
        ],
        "generationConfig": {"responseSchema": {"type": "object"}, "topK": 40.0},
    },
    "filters": {
        "modelArmorConfig": {"prompt_template_name": "t"},
        "safety_settings": [{"category": "c", "threshold": "t"}],
        "generation_config": {"candidate_count": 1},
        "model": "models/gemini-2.5-flash",
    },
}


@pytest.mark.req("LLM-32")
@pytest.mark.parametrize("name", GEMINI)
def test_a_request_to_gemini_comes_back_the_same(name: str) -> None:
    body = {**contents([SAID]), **GEMINI[name]}
    path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
    assert outcome("gemini", f"{path}?alt=sse", body) == ("ok", [])
    assert outcome("gemini", path, body) == ("ok", [])
    if "model" not in body:
        assert outcome("gemini", "/v1beta/tunedModels/own:generateContent", body) == ("ok", [])


@pytest.mark.req("LLM-32")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/p/locations/l/endpoints/123:generateContent",
        "/v1/publishers/google/models/g:generateContent?alt=json",
        "/v1beta/models/g:streamGenerateContent?%24alt=json%3Benum-encoding%3Dint&alt=sse",
    ],
)
def test_an_address_of_vertex_ai_comes_back_the_same(path: str) -> None:
    assert outcome("gemini", path, contents([SAID])) == ("ok", [])


@pytest.mark.req("LLM-32")
def test_a_model_may_be_named_in_the_body_as_well() -> None:
    name = "projects/p/locations/l/publishers/google/models/g"
    for model in ("g", "models/g", name):
        body = {**contents([SAID]), "model": model}
        assert outcome("gemini", f"/v1/{name}:generateContent", body) == ("ok", [])
    assert outcome("gemini", f"/v1/{name}:generateContent", {**contents([SAID]), "model": "h"})[0] == "failed"


@pytest.mark.req("LLM-32")
@pytest.mark.parametrize(
    ("body", "place", "said_so"),
    [
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "behavior": "NON_BLOCKING"}]}]},
            "tools[0].functionDeclarations.behavior",
            "answered later is not known",
        ),
        (
            {"tools": [{"googleSearch": {"blockingConfidence": "HIGH"}}]},
            "tools[0].googleSearch",
            "no setting blockingConfidence is known",
        ),
        ({"tools": [{"retrieval": {}}]}, "tools[0].retrieval", "no tool 'retrieval' is known"),
        (
            {"tools": [{"googleSearchRetrieval": {"dynamicRetrievalConfig": {"mode": "X"}}}]},
            "tools[0].googleSearchRetrieval.dynamicRetrievalConfig",
            "must have the mode MODE_DYNAMIC",
        ),
        (
            {"toolConfig": {"retrievalConfig": {"languageCode": "de"}}},
            "toolConfig.retrievalConfig",
            "asks from a place: googleMaps, ",
        ),
        (
            choosing(mode="NONE", allowedFunctionNames=["f"]),
            "toolConfig.functionCallingConfig.allowedFunctionNames",
            "has no meaning with mode NONE",
        ),
        (choosing(mode="SOME"), "toolConfig.functionCallingConfig.mode", "no mode 'SOME' is known"),
        (
            contents([SAID], [{"executableCode": {"code": "1"}, "thought": True}]),
            "contents[1].parts[0].thought",
            "is known of text alone, not of executableCode",
        ),
        (
            contents([{"functionResponse": {"name": "f", "response": {}, "scheduling": "SILENT"}}]),
            "contents[0].parts[0].functionResponse.scheduling",
            "come later or in pieces are not known",
        ),
        (
            contents([{"functionResponse": {"name": "f"}}]),
            "contents[0].parts[0].functionResponse.response",
            "must be an object",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_place(body: Json, place: str, said_so: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        gemini.read(HttpRequest("POST", "/v1/models/g:generateContent", {**contents([SAID]), **body}), "")
    assert (caught.value.code, caught.value.details) == ("bad_request", {"path": place})
    assert caught.value.message.startswith(f"{place}: ")
    assert said_so in caught.value.message
