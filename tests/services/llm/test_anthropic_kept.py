"""What Anthropic keeps beside text and calls (summaries, changes of model and tools, sets of tools, bounds of
a task): read and built again the same, and given as it comes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import (
    ListedTool,
    ModelChangePart,
    Part,
    ServerCallPart,
    SummaryPart,
    ThinkingPart,
    ToolChangePart,
    ToolListingPart,
)
from hearthnet_llm.interface.frames import Done, Notice, ServerToolEvent, TextDelta, ToolCall
from hearthnet_llm.interface.request import Message, Thinking
from hearthnet_llm.responses.response_builder import as_message
from hearthnet_llm.vendors import anthropic, ollama, openai
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm.asking import changed, events, heard, outcome, talk
from tests.services.llm.test_anthropic_answer import START, STOP, block, end

pytestmark = pytest.mark.req("LLM-30")
Json = dict[str, Any]
TEXT = {"type": "text", "text": "x"}
HINT = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
LISTED = {"name": "a", "description": "d", "input_schema": SCHEMA}
ADDED = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "t"}}
REMOVED = {"type": "tool_removal", "tool": {"type": "mcp_tool_reference", "name": "t", "server_name": "s"}}
SET_GONE = {"type": "tool_removal", "tool": {"type": "mcp_toolset_reference", "server_name": "s"}}
SUMMARY = {"type": "compaction", "content": "They met.", "encrypted_content": "e", "signature": "p"}
FALLBACK = {
    "type": "fallback",
    "from": {"model": "a"},
    "to": {"model": "b"},
    "trigger": {"type": "refusal", "category": "bio"},
}
LISTING = {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": [LISTED]}
OPENED = {
    "user_input": {"type": "all"},
    "client_tool_results": {"type": "only", "tools": [{"type": "tool_reference", "name": "t"}]},
}


def between(*system: Json) -> Json:
    """A conversation in which the system says something."""
    user = {"role": "user", "content": "a"}
    return {"messages": [user, *({"role": "system", **one} for one in system), user]}


def tools(*native: Json) -> Json:
    """A request with these tools."""
    return {**talk("?"), "tools": list(native)}


REQUESTS: dict[str, Json] = {
    "a summary": talk("?", [SUMMARY, TEXT], "go on"),
    "one that came to nothing": talk("?", [{"type": "compaction", "content": None}, TEXT], "go on"),
    "one with changes": talk("?", [{**SUMMARY, "tool_changes": [ADDED], "cache_control": HINT}, TEXT], "!"),
    "another model": talk("?", [FALLBACK, {**FALLBACK, "trigger": None}, TEXT], "go on"),
    "a listing": talk("?", [LISTING, TEXT], "go on"),
    "changes of tools": between({"content": [ADDED, {**REMOVED, "cache_control": HINT}, SET_GONE]}),
    "a system's turns": between(
        {"content": "s", "clear_at": "next_user_message"},
        {"content": [TEXT], "output_config": {"effort": "low"}},
    ),
    "a system that begins": {
        "system": "x",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "b"}],
    },
    "an advisor": tools(
        {
            "type": "advisor_20260301",
            "name": "advisor",
            "model": "claude-opus-4-8",
            "max_tokens": 2048,
            "caching": {"type": "ephemeral", "ttl": "1h"},
        }
    ),
    "a screen to zoom": tools(
        {
            "type": "computer_20251124",
            "name": "computer",
            "display_width_px": 10,
            "display_height_px": 20,
            "enable_zoom": False,
        }
    ),
    "web tools": tools(
        {"type": "web_search_20260318", "name": "web_search", "response_inclusion": "excluded"},
        {"type": "web_fetch_20260318", "name": "web_fetch", "use_cache": False, "url_sources": OPENED},
    ),
    "sets of tools": tools(
        {
            "type": "mcp_toolset",
            "mcp_server_name": "s",
            "default_config": {"enabled": False, "defer_loading": True},
            "configs": {"a": {"enabled": True}},
            "tools": [LISTED],
        },
        {"type": "browser_toolset_20260801", "configs": {"zoom": {"defer_loading": True}}},
        {"type": "computer_toolset_20260801", "cache_control": HINT},
    ),
    "eager and not": tools(
        {"name": "t", "input_schema": SCHEMA, "eager_input_streaming": True},
        {"name": "u", "input_schema": SCHEMA, "eager_input_streaming": False},
        {"name": "v", "input_schema": SCHEMA},
    ),
    "a call of a set": talk(
        "?",
        [{"type": "tool_use", "id": "c", "name": "screenshot", "input": {}, "toolset_name": "computer"}],
        [{"type": "tool_result", "tool_use_id": "c", "toolset_name": "computer", "content": "seen"}],
    ),
    "a task's tokens": {
        **talk("?"),
        "output_config": {
            "effort": "high",
            "task_budget": {"type": "tokens", "total": 40000, "remaining": 100},
        },
    },
    "thoughts bound": {
        **talk("?"),
        "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    },
    "thoughts shown as updates": {**talk("?"), "thinking": {"type": "adaptive", "display": "updates"}},
    "thoughts between calls": {**talk("?"), "thinking": {"type": "between_tools"}},
    "thoughts without a budget": {**talk("?"), "thinking": {"type": "enabled"}},
    "thoughts nobody proves": talk("?", [{"type": "thinking", "thinking": "t"}, TEXT], "go on"),
    "a choice of nothing": {**talk("?"), "tools": [], "tool_choice": {"type": "auto"}},
    "no limit": {**talk("?"), "max_tokens": None},
    "kept pieces": talk(
        [
            {
                "type": "document",
                "source": {"type": "content", "content": [{**TEXT, "cache_control": HINT}]},
            },
            {
                "type": "search_result",
                "source": "s",
                "title": "t",
                "content": [{**TEXT, "cache_control": HINT}],
            },
        ]
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_comes_back_the_same(name: str) -> None:
    body = {"model": "m", "max_tokens": 10, **REQUESTS[name]}
    assert outcome("anthropic", "/v1/messages", body) == ("ok", [])


@pytest.mark.parametrize(
    ("native", "said"),
    [
        ({**talk("?"), "thread": {"type": "create"}}, "kept on the mesh"),
        (
            between(
                {
                    "content": [
                        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {}}}
                    ]
                }
            ),
            "among the tools",
        ),
        (
            talk([{"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}}]),
            "texts alone",
        ),
        (
            tools({"type": "web_fetch_20260318", "name": "w", "url_sources": {"user_input": {"type": "?"}}}),
            "no choice",
        ),
        ({**talk("?"), "thinking": {"type": "adaptive", "display": "loud"}}, "is known"),
    ],
)
def test_what_the_mesh_does_not_carry_is_refused_with_a_reason(native: Json, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        anthropic.read(HttpRequest("POST", "/v1/messages", {"model": "m", **native}), "")
    assert caught.value.code == "bad_request"


KEPT = [
    (SUMMARY, SummaryPart("They met.", "e", "p")),
    (FALLBACK, ModelChangePart("a", "b", "refusal", "bio")),
    (LISTING, ToolListingPart("s", [ListedTool("a", "d", SCHEMA)])),
    (
        {
            "type": "server_tool_use",
            "id": "s",
            "name": "web_search",
            "input": {},
            "caller": {"type": "direct"},
        },
        ServerCallPart("web_search", "s", {}, called_by="direct"),
    ),
]


@pytest.mark.parametrize(("native", "part"), KEPT)
def test_what_is_to_be_handed_back_comes_in_its_place(native: Json, part: Any) -> None:
    answer = {"type": "message", "content": [native, TEXT], "stop_reason": "end_turn", "usage": {}}
    whole = [one for one in heard("anthropic", json.dumps(answer).encode()) if not isinstance(one, Notice)]
    assert whole[:2] == [ServerToolEvent(part), TextDelta("x")]
    streamed = heard("anthropic", events(START, *block(0, native), *block(1, TEXT), end(), STOP))
    assert [one for one in streamed if not isinstance(one, Notice)][:2] == [
        ServerToolEvent(part),
        TextDelta("x"),
    ]


def test_a_summary_comes_in_pieces_and_may_be_all_there_is() -> None:
    deltas: list[Json] = [
        {"type": "compaction_delta", "content": "They "},
        {"type": "compaction_delta", "content": "met.", "encrypted_content": "e"},
        {"type": "compaction_delta", "content": None},
    ]
    empty = {"type": "compaction", "content": None}
    frames = heard("anthropic", events(START, *block(0, empty, *deltas), end("compaction"), STOP))
    assert frames[0] == ServerToolEvent(SummaryPart("They met.", "e"))
    assert isinstance(frames[1], Notice)
    assert frames[1].code == "answer_paused"
    assert isinstance(frames[2], Done)
    assert frames[2].stop_reason == "end"


def test_a_call_of_a_set_says_which() -> None:
    native = {
        "type": "tool_use",
        "id": "c",
        "name": "key",
        "input": {"text": "a"},
        "toolset_name": "computer",
    }
    frames = heard("anthropic", events(START, *block(0, native), end("tool_use"), STOP))
    assert frames[0] == ToolCall("c", "key", {"text": "a"}, toolset="computer")


def test_why_a_model_declines_is_told() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    last = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}
    frames = heard("anthropic", events(START, last, STOP))
    assert frames[0] == Notice("refused", "m declined: It could do harm.")


def test_other_vendors_leave_out_what_only_this_one_wants_back() -> None:
    parts: list[Part] = [
        SummaryPart("They met."),
        ModelChangePart("a", "b"),
        ToolListingPart("s", []),
        ToolChangePart("added", "t"),
    ]
    asked = changed(
        messages=[Message("user", "?"), Message("assistant", [*parts]), Message("user", "!")], tools=None
    )
    for wire, nothing in ((openai, None), (ollama, "")):
        assert wire.encode(asked, Target("m")).body["messages"] == [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": nothing},
            {"role": "user", "content": "!"},
        ]
    with pytest.raises(HearthNetError, match="a change of the tools names a tool, a server, or both"):
        anthropic.encode(changed(messages=[Message("system", [ToolChangePart("added")])]), Target("m"))


@pytest.mark.parametrize("vendor", ["zai", "deepseek", "openrouter", "mistral", "alibaba", ""])
def test_a_way_to_think_that_only_this_vendor_has_breaks_no_other(vendor: str) -> None:
    asked = changed(thinking=Thinking("between_calls"))
    assert "between" not in json.dumps(openai.encode(asked, Target("m", vendor=vendor)).body)
    assert "between" not in json.dumps(ollama.encode(asked, Target("m")).body)


def test_thoughts_that_nobody_proves_go_back_only_where_they_are_taken() -> None:
    asked = changed(messages=[Message("user", "?"), Message("assistant", "a", thinking=[ThinkingPart("so")])])
    left_out = anthropic.encode(asked, Target("m")).body["messages"][1]["content"]
    there = Target("m", spelling={"unproved": "sent"})
    assert [one["type"] for one in left_out] == ["text"]
    assert anthropic.encode(asked, there).body["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "so",
    }


def test_a_thought_after_work_of_the_vendor_keeps_its_place() -> None:
    native: list[Json] = [
        {"type": "thinking", "thinking": "a", "signature": "p"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "thinking", "thinking": "b", "signature": "q"},
        TEXT,
    ]
    blocks = [one for at, made in enumerate(native) for one in block(at, made)]
    spoken = as_message(heard("anthropic", events(START, *blocks, end(), STOP)))
    asked = changed(messages=[Message("user", "?"), spoken, Message("user", "!")], tools=None)
    assert anthropic.encode(asked, Target("m")).body["messages"][1]["content"] == native
