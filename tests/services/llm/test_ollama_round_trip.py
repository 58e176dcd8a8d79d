"""Requests to Ollama with what its reference allows: read, and built again the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.llm.asking import outcome

Json = dict[str, Any]
ASKS = [{"role": "user", "content": "x"}]
OLLAMA: dict[str, Json] = {
    "settings": {
        "options": {
            "num_predict": 1,
            "temperature": 0.5,
            "top_p": 0.4,
            "top_k": 3,
            "min_p": 0.1,
            "seed": 3,
            "stop": [],
            "repeat_penalty": 1.1,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "num_ctx": 4096,
        },
        "think": "high",
        "logprobs": True,
        "top_logprobs": 2,
        "keep_alive": 0,
        "format": {"type": "object"},
    },
    "nothing": {"options": {}, "format": "", "tools": []},
    "thinking among the options": {"options": {"think": True}, "format": "json"},
    "media": {"messages": [{"role": "user", "content": "", "images": ["AA", "BB"]}]},
    "tools": {"tools": [{"type": "function", "function": {"name": "g", "description": "d", "strict": True}}]},
    "calls": {
        "messages": [
            *ASKS,
            {
                "role": "assistant",
                "content": "",
                "thinking": "t",
                "tool_calls": [
                    {
                        "id": "call_abc",
                        "type": "function",
                        "function": {"index": 0, "name": "f", "arguments": {"a": 1}},
                    }
                ],
            },
            {"role": "tool", "content": "r", "tool_call_id": "call_abc", "tool_name": "f"},
        ]
    },
    "calls without ids": {
        "messages": [
            *ASKS,
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "r", "name": "f"},
            {"role": "assistant", "content": "y", "tool_calls": []},
        ]
    },
    "results without names": {
        "messages": [
            *ASKS,
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "r"},
            {"role": "tool", "content": "s"},
        ]
    },
    "empty lists and texts for what is not there": {
        "messages": [
            {"role": "system", "content": "s", "images": []},
            {"role": "user", "content": "x", "images": ["AA"]},
            {"role": "assistant", "content": "y", "images": [], "thinking": "", "tool_calls": []},
            {"role": "user", "content": "x", "images": []},
        ]
    },
    "no calls anywhere": {
        "messages": [
            {"role": "user", "content": "x", "tool_calls": []},
            {"role": "assistant", "content": "y", "tool_calls": []},
        ]
    },
    "an image and no word": {"messages": [{"role": "user", "images": ["AA"]}]},
    "calls that are numbered": {
        "messages": [
            *ASKS,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {}}},
                    {"id": "call_2", "function": {"index": 0, "name": "g", "arguments": {}}},
                ],
            },
            {"role": "tool", "content": "r", "tool_call_id": "call_2"},
            {"role": "tool", "content": "s", "tool_call_id": "call_1"},
        ]
    },
    "results of which some are named": {
        "messages": [
            *ASKS,
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "r", "tool_name": "f"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "s"},
        ]
    },
    "tools without a type": {
        "tools": [{"function": {"name": "f", "parameters": {"type": ["object", "null"], "items": None}}}]
    },
    "any JSON at all": {"format": {}},
    "no limit": {"options": {"num_predict": -1}},
    "all the context": {"options": {"num_predict": -2}},
    "to have the model loaded": {"messages": []},
    "to have it let go": {"messages": [], "keep_alive": 0},
}


@pytest.mark.req("LLM-33")
@pytest.mark.parametrize("name", OLLAMA)
def test_a_request_to_ollama_comes_back_the_same(name: str) -> None:
    assert outcome("ollama", "/api/chat", {"model": "m", "messages": ASKS, **OLLAMA[name]}) == ("ok", [])
