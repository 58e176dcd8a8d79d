"""Requests to Amazon Bedrock with what its reference allows: read, and built again the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.llm.asking import outcome, talk

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
SPEC = {"toolSpec": {"name": "t", "description": "d", "inputSchema": {"json": SCHEMA}, "strict": True}}
POINT = {"cachePoint": {"type": "default", "ttl": "1h"}}
USED = {"toolUse": {"toolUseId": "a", "name": "t", "input": {"a": "1"}}}
IMAGE = {"image": {"format": "webp", "source": {"bytes": "AA"}}}
LOCATION = {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}
CITATION = {"title": "t", "source": "s", "sourceContent": [{"text": "q"}], "location": LOCATION}

CONVERSE: dict[str, Json] = {
    "settings": {
        "inferenceConfig": {"maxTokens": 5, "temperature": 0.1, "topP": 0.2, "stopSequences": []},
        "system": [{"text": "a"}, POINT],
        "serviceTier": {"type": "flex"},
        "outputConfig": {"effort": "low"},
        "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
    },
    "nothing": {"inferenceConfig": {}, "system": [], "additionalModelRequestFields": {}},
    "tools": {
        "toolConfig": {
            "tools": [SPEC, POINT, {"systemTool": {"name": "nova_grounding"}}],
            "toolChoice": {"any": {}},
        },
        "additionalModelRequestFields": {
            "top_k": 3,
            "reasoning_config": {"type": "enabled", "budget_tokens": 10},
            "anthropic_beta": ["x"],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    },
    "one tool": {"toolConfig": {"tools": [SPEC], "toolChoice": {"tool": {"name": "t"}}}},
    "nova": {
        "additionalModelRequestFields": {
            "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"},
            "inferenceConfig": {"topK": 1},
        }
    },
    "effort": {"additionalModelRequestFields": {"reasoning_effort": "low"}},
    "media": talk(
        [
            IMAGE,
            {"video": {"format": "three_gp", "source": {"s3Location": {"uri": "s3://a/b"}}}},
            {"audio": {"format": "mp3", "source": {"bytes": "AA"}}},
            POINT,
            {
                "document": {
                    "format": "md",
                    "name": "n",
                    "source": {"bytes": "AA"},
                    "citations": {"enabled": True},
                    "context": "c",
                }
            },
            {"document": {"name": "n", "source": {"text": "t"}}},
            {"document": {"name": "n", "format": "txt", "source": {"content": [{"text": "a"}]}}},
            {
                "searchResult": {
                    "source": "s",
                    "title": "t",
                    "content": [{"text": "a"}],
                    "citations": {"enabled": False},
                }
            },
            {"guardContent": {"text": {"text": "a"}}},
        ]
    ),
    "calls and results": talk(
        [{"text": "x"}],
        [
            {"reasoningContent": {"reasoningText": {"text": "t"}}},
            {"reasoningContent": {"redactedContent": "AA"}},
            {"text": "y"},
            POINT,
            USED,
            POINT,
            {"text": "z"},
        ],
        [
            {
                "toolResult": {
                    "toolUseId": "a",
                    "content": [{"json": {"a": [1]}}, {"text": "t"}, IMAGE],
                    "status": "error",
                }
            },
            POINT,
            {"text": "z"},
            POINT,
        ],
        [{"citationsContent": {"content": [{"text": "a"}], "citations": [CITATION]}}],
    ),
    "own tools at work": talk(
        [{"text": "x"}],
        [
            {"toolUse": {"toolUseId": "s", "name": "nova", "input": {}, "type": "server_tool_use"}},
            {
                "toolResult": {
                    "toolUseId": "s",
                    "content": [{"text": "o"}],
                    "type": "nova_result",
                    "status": "success",
                }
            },
        ],
    ),
}


@pytest.mark.req("LLM-31")
@pytest.mark.parametrize("name", CONVERSE)
def test_a_request_to_converse_comes_back_the_same(name: str) -> None:
    body = {**talk([{"text": "x"}]), **CONVERSE[name]}
    assert outcome("bedrock-converse", "/model/anthropic.claude-3%3A0/converse", body) == ("ok", [])


@pytest.mark.req("LLM-31")
@pytest.mark.parametrize(
    "path",
    [
        "/model/anthropic.claude-3%3A0/invoke",
        "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.claude/invoke-with-response-stream",
        "/model/anthropic.claude-3:0/invoke",
    ],
)
def test_a_model_of_bedrock_comes_back_from_its_path(path: str) -> None:
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 5, "anthropic_beta": ["x"], **talk("hi")}
    assert outcome("bedrock-anthropic", path, body) == ("ok", [])
