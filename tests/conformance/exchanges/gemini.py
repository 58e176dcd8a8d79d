"""Gemini's generateContent (ai.google.dev: "Generating content", "Function calling", "Thinking")."""

from __future__ import annotations

import json

from tests.conformance.exchanges.writing import Json, sse, streamed, whole

MODEL = "/v1beta/models/gemini-test"
STREAMED, ARRAY, WHOLE = (
    f"{MODEL}:streamGenerateContent?alt=sse",
    f"{MODEL}:streamGenerateContent",
    f"{MODEL}:generateContent",
)
SHELVES = {"type": "OBJECT", "properties": {"shelf": {"type": "STRING"}}, "required": ["shelf"]}
ASKED: Json = {
    "systemInstruction": {"parts": [{"text": "You keep the list of the larder."}]},
    "contents": [{"role": "user", "parts": [{"text": "How many jars are left, and is it cool enough?"}]}],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "count_jars", "description": "Counts the jars on a shelf", "parameters": SHELVES},
                {"name": "cellar_climate", "description": "Measures the cellar"},
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "generationConfig": {"maxOutputTokens": 700, "temperature": 0.3},
}
WITH_RESULTS: Json = {
    **ASKED,
    "generationConfig": {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 512}},
    "contents": [
        *ASKED["contents"],
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"name": "count_jars", "args": {"shelf": "top"}},
                    "thoughtSignature": "Z2VtLTE=",
                },
                {"functionCall": {"name": "cellar_climate", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "count_jars", "response": {"jars": 14}}},
                {"functionResponse": {"name": "cellar_climate", "response": {"error": "no sensor"}}},
            ],
        },
    ],
}


def response(*parts: Json, reason: str = "", **usage: int) -> Json:
    """One response of a stream."""
    candidate: Json = {"content": {"role": "model", "parts": [*parts]}, "index": 0}
    made: Json = {"candidates": [{**candidate, **({"finishReason": reason} if reason else {})}]}
    return {**made, "modelVersion": "gemini-test", **({"usageMetadata": usage} if usage else {})}


def call(name: str, **arguments: object) -> Json:
    """A call as a part."""
    return {"functionCall": {"name": name, "args": arguments}}


COUNTED = {"promptTokenCount": 88, "candidatesTokenCount": 17, "totalTokenCount": 105}
TWO_CALLS = [
    response({"text": "Ich sehe "}, promptTokenCount=88),
    response({"text": "nach: 🫙."}),
    response({**call("count_jars", shelf="öben"), "thoughtSignature": "Z2VtLTI="}, call("cellar_climate")),
    response(reason="STOP", **COUNTED),
]
THOUGHTS = [
    response({"text": "Fourteen, ", "thought": True}),
    response({"text": "say so.", "thought": True}),
    response(
        {"text": "Vierzehn Gläser."},
        reason="STOP",
        thoughtsTokenCount=9,
        cachedContentTokenCount=40,
        **COUNTED,
    ),
]
CUT_OFF = [response({"text": "There are four"}, reason="MAX_TOKENS", **COUNTED)]
BLOCKED = [{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 11}}]
FAILED_INSIDE = [
    response({"text": "There"}),
    {"error": {"code": 503, "message": "The model is overloaded", "status": "UNAVAILABLE"}},
]
ONE_ANSWER = response(
    {"text": "One moment."}, call("count_jars", shelf="top", why=None), reason="STOP", **COUNTED
)
REFUSED = {"error": {"code": 429, "message": "Quota exceeded for today", "status": "RESOURCE_EXHAUSTED"}}

EXCHANGES: dict[str, dict[str, Json]] = {
    "gemini": {
        "two_calls": streamed(STREAMED, ASKED, sse(*TWO_CALLS)),
        "thoughts": streamed(STREAMED, WITH_RESULTS, sse(*THOUGHTS).replace("\n", "\r\n")),
        "array": streamed(ARRAY, ASKED, json.dumps(TWO_CALLS, indent=2), "application/json"),
        "cut_off": streamed(STREAMED, ASKED, sse(*CUT_OFF)),
        "blocked": streamed(STREAMED, ASKED, sse(*BLOCKED)),
        "error_inside": streamed(STREAMED, ASKED, sse(*FAILED_INSIDE)),
        "one_answer": whole(WHOLE, WITH_RESULTS, ONE_ANSWER),
        "refused": whole(WHOLE, ASKED, REFUSED, status=429),
    }
}
