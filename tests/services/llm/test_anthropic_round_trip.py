"""Requests to Anthropic with what its reference allows: read, and built again the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.llm.asking import outcome, talk

Json = dict[str, Any]
TEXT = {"type": "text", "text": "x"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"name": "t", "description": "d", "input_schema": SCHEMA}
USE = {"type": "tool_use", "id": "a", "name": "t", "input": {"a": "1"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "ok"}
HINT = {"type": "ephemeral", "ttl": "1h"}
PLACE = {"type": "approximate", "city": "B", "region": "B", "country": "DE", "timezone": "Europe/Berlin"}
CHARS = {
    "type": "char_location",
    "cited_text": "c",
    "document_index": 0,
    "start_char_index": 0,
    "end_char_index": 2,
}
PAGES = {
    "type": "page_location",
    "cited_text": "p",
    "document_index": 0,
    "start_page_number": 1,
    "end_page_number": 2,
}
FOUND = {"type": "web_search_result", "title": "t", "url": "u", "encrypted_content": "e", "page_age": None}
CITED = {
    "type": "web_search_result_location",
    "cited_text": "c",
    "encrypted_index": "i",
    "title": "t",
    "url": "u",
}


ANTHROPIC: dict[str, Json] = {
    "settings": {
        "stop_sequences": [],
        "stream": False,
        "top_p": 0.5,
        "top_k": 4,
        "temperature": 0.3,
        "service_tier": "auto",
        "cache_control": HINT,
        "system": "",
        "thinking": {"type": "disabled"},
        "metadata": {"user_id": "x"},
    },
    "thinking": {
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "nulls": {"tools": None, "tool_choice": None, "system": None, "thinking": None},
    "no tools": {"tools": [], "system": []},
    "tools": {
        "tools": [
            {
                **TOOL,
                "type": "custom",
                "strict": True,
                "defer_loading": False,
                "cache_control": HINT,
                "input_examples": [{}],
                "allowed_callers": ["direct"],
                "eager_input_streaming": True,
            }
        ],
        "tool_choice": {"type": "tool", "name": "t", "disable_parallel_tool_use": True},
    },
    "own tools": {
        "tools": [
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
            {
                "type": "computer_20250124",
                "name": "computer",
                "display_width_px": 1,
                "display_height_px": 2,
                "display_number": 1,
            },
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "max_uses": 5,
                "allowed_domains": ["a"],
                "user_location": PLACE,
            },
            {
                "type": "web_fetch_20250910",
                "name": "web_fetch",
                "citations": {"enabled": True},
                "max_content_tokens": 10,
                "blocked_domains": ["b"],
            },
            {"type": "mcp_toolset", "mcp_server_name": "s"},
        ],
        "tool_choice": {"type": "none"},
    },
    "media": talk(
        [
            {"type": "image", "source": {"type": "url", "url": "https://x"}},
            {"type": "image", "source": {"type": "file", "file_id": "f"}, "cache_control": HINT},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
                "title": "T",
                "context": "c",
                "citations": {"enabled": False},
            },
            {"type": "document", "source": {"type": "content", "content": [TEXT]}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "AA"}},
            {"type": "document", "source": {"type": "url", "url": "https://x"}},
            {
                "type": "search_result",
                "source": "s",
                "title": "t",
                "content": [TEXT],
                "citations": {"enabled": True},
            },
            {"type": "container_upload", "file_id": "f"},
        ]
    ),
    "thoughts and calls": talk(
        "?",
        [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            TEXT,
            {**USE, "caller": {"type": "direct"}, "cache_control": HINT},
            TEXT,
            {**USE, "id": "b", "caller": {"type": "code_execution_20250825", "tool_id": "s"}},
        ],
        [{**RESULT, "is_error": True}, {**RESULT, "tool_use_id": "b", "content": [TEXT]}, TEXT],
        [TEXT],
        [TEXT, RESULT],
    ),
    "empty results": talk("?", [USE], [{"type": "tool_result", "tool_use_id": "a"}]),
    "results with nothing": talk("?", [USE], [{**RESULT, "content": []}]),
    "results of many kinds": talk(
        "?",
        [USE],
        [
            {
                **RESULT,
                "cache_control": HINT,
                "content": [
                    {"type": "tool_reference", "tool_name": "t"},
                    {"type": "search_result", "source": "s", "title": "t", "content": []},
                ],
            }
        ],
    ),
    "own tools at work": talk(
        "?",
        [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [FOUND]},
            {"type": "mcp_tool_use", "id": "m", "name": "n", "input": {}, "server_name": "s"},
            {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": False, "content": [TEXT]},
            {"type": "text", "text": "y", "citations": [CITED, CHARS, PAGES]},
        ],
    ),
    "turns apart": {
        "messages": [
            {"role": "user", "content": [TEXT]},
            {"role": "user", "content": [TEXT]},
            {"role": "assistant", "content": [USE, {**USE, "id": "b"}]},
            {"role": "user", "content": [RESULT]},
            {"role": "user", "content": [{**RESULT, "tool_use_id": "b"}]},
            {"role": "user", "content": [TEXT]},
            {"role": "system", "content": "s"},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": [TEXT]},
            {"role": "assistant", "content": "{"},
        ]
    },
    "the older name of the form": {"output_format": {"type": "json_schema", "schema": SCHEMA}},
}


@pytest.mark.req("LLM-30")
@pytest.mark.parametrize("name", ANTHROPIC)
def test_a_request_to_anthropic_comes_back_the_same(name: str) -> None:
    body = {"model": "claude-haiku-4-5", "max_tokens": 10, **talk("hi"), **ANTHROPIC[name]}
    assert outcome("anthropic", "/v1/messages?beta=true", body) == ("ok", [])
