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

CLAUDES = {"type": "computer_20250124", "name": "computer", "display_height_px": 7, "display_width_px": 9}
SERVED = {"toolUse": {"toolUseId": "s", "name": "nova", "input": {}, "type": "server_tool_use"}}


def more(**fields: Any) -> Json:
    """A body with fields that only some models know."""
    return {"additionalModelRequestFields": fields}


def served(*content: Json) -> Json:
    """The result of the vendor's own tool."""
    return {"toolResult": {"toolUseId": "s", "content": [*content], "type": "nova_result"}}


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
    "effort as a config": more(reasoning_config="high"),
    "effort among Anthropic's own": more(thinking={"type": "adaptive"}, output_config={"effort": "max"}),
    "effort beside a way to think": {
        **more(thinking={"type": "adaptive", "display": "summarized"}),
        "outputConfig": {"effort": "low"},
    },
    "thinking between calls alone": more(thinking={"type": "between_tools"}),
    "no thinking": more(reasoningConfig={"type": "disabled"}),
    "drawing": more(seed=1, min_p=0.1, presence_penalty=0, frequency_penalty=0.1, repetition_penalty=1, k=3),
    "drawing of others": more(topK=3),
    "all to be kept": more(cacheControl={"type": "ephemeral"}),
    "tools that Anthropic defines": more(tools=[CLAUDES], anthropic_beta=["x"]),
    "no tools": {"toolConfig": {"tools": []}},
    "a tool that says nothing": {
        "toolConfig": {"tools": [{"toolSpec": {"name": "t", "description": "", "inputSchema": {"json": {}}}}]}
    },
    "calls with a type": talk(
        [{"text": "x"}], [{"toolUse": {"toolUseId": "a", "name": "t", "input": {}, "type": "tool_use"}}]
    ),
    "whose bucket it is": talk(
        [{"image": {"format": "png", "source": {"s3Location": {"uri": "s3://a/b", "bucketOwner": "1"}}}}]
    ),
    "citations of all kinds": talk(
        [{"text": "x"}],
        [
            {
                "citationsContent": {
                    "citations": [{"location": {"web": {"url": "https://a.example", "domain": "a.example"}}}]
                }
            },
            {
                "citationsContent": {
                    "content": [{"text": "a"}],
                    "citations": [
                        {"title": "t", "source": "s"},
                        {"location": {"documentChunk": {"documentIndex": 0, "start": 0, "end": 1}}},
                        {"location": {"searchResultLocation": {"searchResultIndex": 0, "start": 0}}},
                    ],
                }
            },
        ],
    ),
    "own tools that say much, or nothing": talk(
        [{"text": "x"}],
        [SERVED, served({"text": "a"}, {"json": {"b": 1}}), SERVED, served(), SERVED, served({"json": [1]})],
    ),
    "the system in between": {
        "system": [{"text": "s"}],
        "messages": [
            {"role": "user", "content": [{"text": "x"}]},
            {
                "role": "system",
                "content": [
                    {"text": "be brief"},
                    {"toolAddition": {"tool": {"type": "tool_reference", "name": "t"}}},
                ],
            },
            {"role": "user", "content": [{"text": "y"}]},
        ],
    },
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
        "/model/arn:aws:bedrock:eu-west-1:1:application-inference-profile/abc/invoke",
        "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Aprompt-router/abc/invoke",
    ],
)
def test_a_model_of_bedrock_comes_back_from_its_path(path: str) -> None:
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 5, "anthropic_beta": ["x"], **talk("hi")}
    assert outcome("bedrock-anthropic", path, body) == ("ok", [])


@pytest.mark.req("LLM-31")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            talk([{"text": "x"}], [{"reasoningContent": {"reasoningText": {"text": "t"}}}, POINT]),
            "messages[1].content[1]: a cache point must follow something that can be kept, and only once",
        ),
        (
            talk([{"text": "x"}, POINT, POINT]),
            "messages[0].content[2]: a cache point must follow something that can be kept, and only once",
        ),
        (
            {**talk([{"text": "x"}]), "toolConfig": {"tools": [POINT]}},
            "toolConfig.tools[0]: a cache point must follow something that can be kept, and only once",
        ),
        (
            talk([{"guardContent": {"image": {"format": "png", "source": {"bytes": "AA"}}}}]),
            "messages[0].content[0].guardContent: only a text can be marked for a guardrail",
        ),
        (
            talk([{"toolRemoval": {"tool": {"name": "t"}}}]),
            "messages[0].content[0]: no block of toolRemoval is known",
        ),
        (
            talk([{"toolAddition": {"tool": {"name": "t", "serverName": "m"}}}]),
            "messages[0].content[0].toolAddition.tool.serverName: only tools that the request declares can "
            "be added",
        ),
        (
            {**talk([{"text": "x"}]), **more(tools=[{"name": "t", "input_schema": {}}])},
            "additionalModelRequestFields.tools: only tools that Anthropic defines stand here; others "
            "belong in toolConfig",
        ),
    ],
)
def test_what_cannot_be_said_here_is_refused_with_its_place(body: Json, said: str) -> None:
    refused = outcome("bedrock-converse", "/model/anthropic.claude-3%3A0/converse", body)
    assert refused == ("failed", [f"not read: {said}"])


@pytest.mark.req("LLM-31")
def test_messages_that_do_not_say_their_version_are_refused() -> None:
    body = {"max_tokens": 5, **talk("hi")}
    refused = outcome("bedrock-anthropic", "/model/anthropic.claude-3/invoke", body)
    assert refused == ("failed", ["not read: anthropic_version: must be a text"])
