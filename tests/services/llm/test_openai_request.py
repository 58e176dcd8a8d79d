"""Requests on OpenAI's wire, word for word, out and in.

See: docs/vendors.md#what-is-asked-and-how-it-is-spelled.
"""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import (
    AudioPart,
    CacheHint,
    CallPart,
    DocumentPart,
    ImagePart,
    JsonPart,
    Part,
    RefusalPart,
    SearchResultPart,
    ServerResultPart,
    TextPart,
    ThinkingPart,
    UploadPart,
    VideoPart,
)
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import (
    ChatRequest,
    CompleteRequest,
    Message,
    Named,
    ResponseSchema,
    ServerTool,
    Thinking,
    Tool,
)
from hearthnet_llm.vendors import openai, wire
from hearthnet_llm.vendors.openai import dialect
from hearthnet_llm.vendors.openai.dialect import SPELLINGS
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm import test_openai_shapes

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
TOOL = Tool("look", "Looks.", SCHEMA)
NATIVE_TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA},
}
ASKED = [Message(role="user", content="x")]
NATIVE_ASKED = [{"role": "user", "content": "x"}]
URL = "https://models.example/v1/chat/completions"


def body(request: ChatRequest, **spelling: str) -> dict[str, Any]:
    """The native body for a plain server."""
    return openai.encode(request, Target("m", spelling=spelling)).body


def both_ways(request: ChatRequest, native: dict[str, Any], **spelling: str) -> None:
    """`request` is written as `native`, and `native` is read as something that is written the same again."""
    native = {"model": "m", "messages": NATIVE_ASKED, **native}
    if "usage" not in spelling:
        spelling = {**spelling, "usage": "none"}
    assert body(request, **spelling) == native
    read, target = openai.read(HttpRequest("POST", URL, native), "")
    assert read == request
    again = openai.encode(read, target)
    assert (again.body, again.url) == (native, URL)
    assert all(value in SPELLINGS[choice] for choice, value in target.spelling.items())


@pytest.mark.req("LLM-9")
def test_a_conversation_with_tools_word_for_word() -> None:
    called = {"type": "function", "function": {"name": "look", "arguments": '{"at":"café"}'}}
    both_ways(
        ChatRequest(
            messages=[
                Message(role="system", content="Be brief."),
                Message(role="user", content="Look there.", name="ann"),
                Message(role="assistant", tool_calls=[ToolCall("c1", "look", {"at": "café"})]),
                Message(role="tool", content='{"seen":1}', tool_call_id="c1"),
                Message(role="assistant", content="", tool_calls=[ToolCall("c2", "look", {})]),
                Message(role="tool", content="gone", tool_call_id="c2", is_error=True),
                Message(role="assistant", content="I", prefix=True),
            ],
            tools=[TOOL, Tool("bare"), Tool("held", "", {"type": "object"}, strict=True, cache=CacheHint())],
            tool_choice=Named("look"),
            parallel_tool_calls=False,
            stop=["END"],
            seed=7,
            max_tokens=9,
            temperature=0.5,
            top_p=0.9,
            response_schema=ResponseSchema("seen", {"type": "object"}, "What was seen", True),
            stream=True,
        ),
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Look there.", "name": "ann"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", **called}]},
                {"role": "tool", "tool_call_id": "c1", "content": '{"seen":1}'},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c2", "content": "ERROR: gone"},
                {"role": "assistant", "content": "I", "prefix": True},
            ],
            "tools": [
                NATIVE_TOOL,
                {"type": "function", "function": {"name": "bare"}},
                {
                    "type": "function",
                    "function": {
                        "name": "held",
                        "description": "",
                        "parameters": {"type": "object"},
                        "strict": True,
                    },
                    "cache_control": {"type": "ephemeral"},
                },
            ],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "parallel_tool_calls": False,
            "stop": ["END"],
            "seed": 7,
            "max_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.9,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "seen",
                    "description": "What was seen",
                    "strict": True,
                    "schema": {"type": "object"},
                },
            },
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        usage="stream_options",
    )


CONTENT: list[tuple[list[Part], list[dict[str, Any]]]] = [
    ([TextPart("a", CacheHint("1h"))],
     [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]),
    ([ImagePart(url="https://x.example/a.png", detail="low")],
     [{"type": "image_url", "image_url": {"url": "https://x.example/a.png", "detail": "low"}}]),
    ([ImagePart(data="AAAA", media_type="image/png")],
     [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
    ([ImagePart(url="data:image/png,raw")],
     [{"type": "image_url", "image_url": {"url": "data:image/png,raw"}}]),
    ([AudioPart(data="AAAA", media_type="audio/mp3")],
     [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}]),
    ([VideoPart(url="https://x.example/a.mp4", fps=2)],
     [{"type": "video_url", "video_url": {"url": "https://x.example/a.mp4", "fps": 2}}]),
    ([DocumentPart(data="AAAA", media_type="application/pdf", name="a.pdf")],
     [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}]),
    ([DocumentPart(file_id="file-1")], [{"type": "file", "file": {"file_id": "file-1"}}]),
    ([DocumentPart(url="https://x.example/a.pdf")],
     [{"type": "file", "file": {"file_data": "https://x.example/a.pdf"}}]),
    ([DocumentPart(data="AAAA")], [{"type": "file", "file": {"file_data": "AAAA"}}]),
    ([RefusalPart("No.")], [{"type": "refusal", "refusal": "No."}]),
    ([], []),
]  # fmt: skip


@pytest.mark.req("LLM-9")
@pytest.mark.parametrize(("parts", "native"), CONTENT, ids=lambda value: str(value)[:40])
def test_each_kind_of_content_both_ways(parts: list[Part], native: list[dict[str, Any]]) -> None:
    request = ChatRequest(messages=[Message(role="user", content=parts)])
    both_ways(request, {"messages": [{"role": "user", "content": native}]})


@pytest.mark.req("LLM-9")
@pytest.mark.parametrize(
    ("part", "native"),
    [
        (JsonPart({"a": [1]}), {"type": "text", "text": '{"a":[1]}'}),
        (DocumentPart(name="Notes", text="one"), {"type": "text", "text": "Notes\none"}),
        (DocumentPart(texts=[TextPart("one"), TextPart("two")]), {"type": "text", "text": "one\ntwo"}),
        (
            SearchResultPart("https://x.example", "Wells", [TextPart("Dig.")]),
            {"type": "text", "text": "Wells (https://x.example)\nDig."},
        ),
    ],
)
def test_what_this_wire_has_no_form_for_is_said_in_text(part: Part, native: dict[str, Any]) -> None:
    request = ChatRequest(messages=[Message(role="user", content=[part])])
    assert body(request)["messages"] == [{"role": "user", "content": [native]}]


@pytest.mark.req("LLM-9")
def test_what_only_other_vendors_know_is_left_out_or_refused() -> None:
    foreign: list[Part] = [CallPart("c1"), ServerResultPart("web_search", result=[]), ThinkingPart("hm")]
    said = ChatRequest(messages=[Message(role="assistant", content=[*foreign, TextPart("Yes")])])
    assert body(said)["messages"][0]["content"] == [{"type": "text", "text": "Yes"}]
    assert body(ChatRequest(messages=[Message(role="assistant", content=foreign)]))["messages"] == [
        {"role": "assistant", "content": None}
    ]
    for part, why in (
        (UploadPart("file-1"), "takes no upload in a message"),
        (ImagePart(image_cid="blake3:" + "0" * 64), "must be given by value or by URL"),
    ):
        with pytest.raises(HearthNetError, match=why) as refused:
            body(ChatRequest(messages=[Message(role="user", content=[part])]))
        assert refused.value.code == "bad_request"


SPELT: list[tuple[str, dict[str, str], ChatRequest, dict[str, Any]]] = [
    ("the newer limit", {"max_tokens": "max_completion_tokens"},
     ChatRequest(messages=ASKED, max_tokens=5), {"max_completion_tokens": 5}),
    ("another seed", {"seed": "random_seed"}, ChatRequest(messages=ASKED, seed=5), {"random_seed": 5}),
    ("one stop", {"stop": "text"}, ChatRequest(messages=ASKED, stop=["E"]), {"stop": "E"}),
    ("no stops", {}, ChatRequest(messages=ASKED, stop=[]), {"stop": []}),
    ("repeating", {"repetition": "repeat_penalty"},
     ChatRequest(messages=ASKED, repetition_penalty=1.1), {"repeat_penalty": 1.1}),
    ("all the rest of drawing", {},
     ChatRequest(messages=ASKED, top_k=3, min_p=0.1, frequency_penalty=1, presence_penalty=-1, logprobs=True,
                 top_logprobs=2, logit_bias={"5": -100}, verbosity="low", service_tier="flex",
                 cache_key="k", cache_ttl="24h", stream=False),
     {"top_k": 3, "min_p": 0.1, "frequency_penalty": 1, "presence_penalty": -1, "logprobs": True,
      "top_logprobs": 2, "logit_bias": {"5": -100}, "verbosity": "low", "service_tier": "flex",
      "prompt_cache_key": "k", "prompt_cache_retention": "24h", "stream": False}),
    ("usage of OpenRouter", {"usage": "usage"}, ChatRequest(messages=ASKED, stream=True),
     {"stream": True, "usage": {"include": True}}),
    ("usage twice", {"usage": "both"}, ChatRequest(messages=ASKED, stream=True),
     {"stream": True, "usage": {"include": True}, "stream_options": {"include_usage": True}}),
    ("effort", {}, ChatRequest(messages=ASKED, thinking=Thinking(effort="low")), {"reasoning_effort": "low"}),
    ("effort and budget", {"effort": "reasoning.effort", "budget": "reasoning.max_tokens"},
     ChatRequest(messages=ASKED, thinking=Thinking(effort="low", budget_tokens=9)),
     {"reasoning": {"effort": "low", "max_tokens": 9}}),
    ("thinking on", {"keep": "thinking.clear_thinking"},
     ChatRequest(messages=ASKED, thinking=Thinking(mode="on", keep=True, budget_tokens=9)),
     {"thinking": {"type": "enabled", "clear_thinking": False, "budget_tokens": 9}}),
    ("thinking off", {"mode": "enable_thinking", "keep": "clear_thinking"},
     ChatRequest(messages=ASKED, thinking=Thinking(mode="off", keep=False)),
     {"enable_thinking": False, "clear_thinking": True}),
    ("thinking by template", {"mode": "chat_template_kwargs.enable_thinking"},
     ChatRequest(messages=ASKED, thinking=Thinking(mode="on")),
     {"chat_template_kwargs": {"enable_thinking": True}}),
    ("thinking disabled", {"mode": "disable_reasoning"},
     ChatRequest(messages=ASKED, thinking=Thinking(mode="off")), {"disable_reasoning": True}),
    ("thinking by prompt", {"mode": "prompt_mode"},
     ChatRequest(messages=ASKED, thinking=Thinking(mode="on")), {"prompt_mode": "reasoning"}),
    ("thinking shown", {}, ChatRequest(messages=ASKED, thinking=Thinking(show="parsed")),
     {"reasoning_format": "parsed"}),
    ("thinking hidden", {"show": "reasoning.exclude"},
     ChatRequest(messages=ASKED, thinking=Thinking(show="hidden")), {"reasoning": {"exclude": True}}),
    ("a developer", {"system": "developer"},
     ChatRequest(messages=[Message(role="system", content="s"), *ASKED]),
     {"messages": [{"role": "developer", "content": "s"}, *NATIVE_ASKED]}),
    ("any tool", {"required": "any"}, ChatRequest(messages=ASKED, tools=[TOOL], tool_choice="required"),
     {"tools": [NATIVE_TOOL], "tool_choice": "any"}),
    ("a choice that is an object", {"choice": "object"},
     ChatRequest(messages=ASKED, tools=[TOOL], tool_choice="auto"),
     {"tools": [NATIVE_TOOL], "tool_choice": {"type": "auto"}}),
    ("a flat name", {"named": "flat"}, ChatRequest(messages=ASKED, tools=[TOOL], tool_choice=Named("look")),
     {"tools": [NATIVE_TOOL], "tool_choice": {"type": "function", "name": "look"}}),
    ("one of two", {}, ChatRequest(messages=ASKED, tools=[TOOL], tool_choice=Named("look", ["see"], False)),
     {"tools": [NATIVE_TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
         "mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}},
                                   {"type": "function", "function": {"name": "see"}}]}}}),
    ("no tools at all", {"lone_choice": "sent"}, ChatRequest(messages=ASKED, tool_choice="none"),
     {"tool_choice": "none"}),
    ("an empty list of tools", {}, ChatRequest(messages=ASKED, tools=[]), {"tools": []}),
    ("tools without a type", {"tool_type": "none"}, ChatRequest(messages=ASKED, tools=[TOOL]),
     {"tools": [{"function": NATIVE_TOOL["function"]}]}),
    ("any JSON", {}, ChatRequest(messages=ASKED, response_schema=ResponseSchema()),
     {"response_format": {"type": "json_object"}}),
    ("a schema elsewhere", {"schema": "json_object"},
     ChatRequest(messages=ASKED, response_schema=ResponseSchema(schema=SCHEMA)),
     {"response_format": {"type": "json_object", "schema": SCHEMA}}),
    ("plain text, said so", {"plain_text": "said"}, ChatRequest(messages=ASKED),
     {"response_format": {"type": "text"}}),
    ("a search", {}, ChatRequest(messages=ASKED, tools=[
        TOOL, Tool("web_search", server=ServerTool("web_search", context_size="low"))]),
     {"tools": [NATIVE_TOOL], "web_search_options": {"search_context_size": "low"}}),
    ("a search and no other tool", {}, ChatRequest(messages=ASKED, tools=[
        Tool("web_search", server=ServerTool("web_search"))]), {"web_search_options": {}}),
    ("a search among the tools", {"web_search": "tool"}, ChatRequest(messages=ASKED, tools=[
        Tool("web_search", server=ServerTool("web_search"))]), {"tools": [{"type": "web_search"}]}),
    ("an image by name", {"image": "text"}, ChatRequest(messages=[
        Message(role="user", content=[ImagePart(url="https://x.example/a.png")])]),
     {"messages": [{"role": "user", "content": [
         {"type": "image_url", "image_url": "https://x.example/a.png"}]}]}),
    ("a document of Mistral", {"document": "document_url"}, ChatRequest(messages=[
        Message(role="user", content=[DocumentPart(url="https://x.example/a.pdf", name="a.pdf")])]),
     {"messages": [{"role": "user", "content": [
         {"type": "document_url", "document_url": "https://x.example/a.pdf", "document_name": "a.pdf"}]}]}),
    ("thoughts among the content", {"thoughts": "content"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", content=[ThinkingPart("hm"), TextPart("Yes")])]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": [
         {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
         {"type": "text", "text": "Yes"}]}]}),
    ("thoughts under two names", {"thoughts": "both"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", content="Yes", thinking=[ThinkingPart("hm")])]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": "Yes", "reasoning": "hm",
                                   "reasoning_content": "hm"}]}),
    ("empty thoughts", {"thoughts": "reasoning_content"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", content="Yes", thinking=[ThinkingPart("")])]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": "Yes", "reasoning_content": ""}]}),
    ("typed thoughts", {"thoughts": "reasoning"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", content="Yes", thinking=[
            ThinkingPart("hm", signature="s", kind="text", format="f", index=0),
            ThinkingPart("so", kind="summary", index=1),
            ThinkingPart(data="ZZ", kind="encrypted", id="r1", index=2)])]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": "Yes", "reasoning_details": [
         {"type": "reasoning.text", "text": "hm", "format": "f", "index": 0, "signature": "s"},
         {"type": "reasoning.summary", "summary": "so", "index": 1},
         {"type": "reasoning.encrypted", "id": "r1", "index": 2, "data": "ZZ"}]}]}),
    ("a signed thought", {"thoughts": "reasoning_text", "signatures": "reasoning_opaque"},
     ChatRequest(messages=[*ASKED, Message(role="assistant", content="Yes", thinking=[
         ThinkingPart("hm", signature="s")])]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": "Yes", "reasoning_text": "hm",
                                   "reasoning_opaque": "s"}]}),
    ("Google's proof of a call", {"signatures": "extra_content"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", tool_calls=[ToolCall("c", "look", {}, signature="s")])]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": None, "tool_calls": [
         {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"},
          "extra_content": {"google": {"thought_signature": "s"}}}]}]}),
    ("calls with their place", {"call_index": "index"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", tool_calls=[ToolCall("c", "a", {}), ToolCall("d", "b", {})])]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": None, "tool_calls": [
         {"id": "c", "type": "function", "function": {"name": "a", "arguments": "{}"}, "index": 0},
         {"id": "d", "type": "function", "function": {"name": "b", "arguments": "{}"}, "index": 1}]}]}),
    ("no calls, said so", {"no_calls": "empty"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", content="Yes", cache=CacheHint("5m"))]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": "Yes", "tool_calls": [],
                                   "cache_control": {"type": "ephemeral", "ttl": "5m"}}]}),
    ("a refusal beside the content", {}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", refusal="No.")]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": None, "refusal": "No."}]}),
    ("a beginning of Moonshot's", {"prefix": "partial"}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", content="I", prefix=True)]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": "I", "partial": True}]}),
    ("a failed tool's picture", {}, ChatRequest(messages=[
        *ASKED, Message(role="assistant", tool_calls=[ToolCall("c", "a", {})]),
        Message(role="tool", content=[TextPart("gone")], tool_call_id="c", is_error=True)]),
     {"messages": [*NATIVE_ASKED, {"role": "assistant", "content": None, "tool_calls": [
         {"id": "c", "type": "function", "function": {"name": "a", "arguments": "{}"}}]},
         {"role": "tool", "tool_call_id": "c", "content": [
             {"type": "text", "text": "ERROR:"}, {"type": "text", "text": "gone"}]}]}),
]  # fmt: skip


@pytest.mark.req("LLM-22")
@pytest.mark.parametrize(
    ("spelling", "request_", "native"), [one[1:] for one in SPELT], ids=[s[0] for s in SPELT]
)
def test_each_spelling_both_ways(
    spelling: dict[str, str], request_: ChatRequest, native: dict[str, Any]
) -> None:
    both_ways(request_, native, **spelling)


@pytest.mark.req("LLM-22")
def test_every_spelling_has_a_test() -> None:
    tried = {(choice, value) for _, spelling, _, _ in SPELT for choice, value in spelling.items()}
    elsewhere = {
        ("call_index", "zero"), ("functions", "functions"), ("path", "own"), ("model", "path"),
        ("complete", "chat"), ("sampling", "none"), ("budget", "thinking_budget"),
        ("show", "include_reasoning"), ("mode", "reasoning.enabled"), ("signatures", "reasoning_signature"),
        ("usage", "none"),
        ("ids", "left_out"),
        ("ids", "empty"),
        ("extras", "left_out"), ("schema_name", "asked"),
    }  # fmt: skip
    defaults = {(choice, values[0]) for choice, values in SPELLINGS.items()}
    known = tried | elsewhere | defaults | test_openai_shapes.spelt()
    assert {(c, v) for c, values in SPELLINGS.items() for v in values} <= known


@pytest.mark.req("LLM-22")
def test_the_rest_of_the_spellings() -> None:
    thinking = Thinking(mode="on", budget_tokens=5, show="hidden")
    said = body(
        ChatRequest(messages=ASKED, thinking=thinking, temperature=1, stop=["E"], max_tokens=3),
        mode="reasoning.enabled", budget="thinking_budget", show="include_reasoning", sampling="none",
    )  # fmt: skip
    assert said["reasoning"] == {"enabled": True}
    assert (said["thinking_budget"], said["include_reasoning"], said["max_tokens"]) == (5, False, 3)
    assert "temperature" not in said
    assert "stop" not in said
    signed = Message(role="assistant", content="Yes", thinking=[ThinkingPart("hm", signature="s")])
    assert body(ChatRequest(messages=[signed]), signatures="reasoning_signature")["messages"][0] == {
        "role": "assistant", "content": "Yes", "reasoning_signature": "s",
    }  # fmt: skip
    two = Message(role="assistant", tool_calls=[ToolCall("c", "a", {}), ToolCall("d", "b", {})])
    native = body(ChatRequest(messages=[*ASKED, two]), call_index="zero", usage="none")
    assert [call["index"] for call in native["messages"][1]["tool_calls"]] == [0, 0]
    read, target = openai.read(HttpRequest("POST", URL, native), "")
    assert openai.encode(read, target).body == native


@pytest.mark.req("LLM-9")
def test_the_older_form_of_calls_has_no_ids() -> None:
    native = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "look", "arguments": '{"at":"a"}'},
            },
            {"role": "function", "name": "look", "content": "seen"},
        ],
        "functions": [NATIVE_TOOL["function"]],
        "function_call": {"name": "look"},
    }
    read, target = openai.read(HttpRequest("POST", URL, native), "")
    assert read.messages[1].tool_calls == [ToolCall("call_1_0", "look", {"at": "a"})]
    assert (read.messages[2].role, read.messages[2].tool_call_id) == ("tool", "call_1_0")
    assert read.tool_choice == Named("look")
    assert openai.encode(read, target).body == native


@pytest.mark.req("LLM-9")
@pytest.mark.parametrize("given", [{}, {"id": ""}])
def test_calls_without_ids_are_given_some_that_go_no_further(given: dict[str, str]) -> None:
    answered = {"tool_call_id": given["id"]} if given else {}
    native = {
        "model": "m",
        "messages": [
            *NATIVE_ASKED,
            {"role": "assistant", "content": None, "tool_calls": [
                {**given, "type": "function", "function": {"name": "a", "arguments": "{}"}},
                {**given, "type": "function", "function": {"name": "b", "arguments": "{}"}}]},
            {"role": "tool", **answered, "content": "1"},
            {"role": "tool", **answered, "content": "2"},
        ],
    }  # fmt: skip
    read, target = openai.read(HttpRequest("POST", URL, native), "")
    assert [call.id for call in read.messages[1].tool_calls] == ["call_1_0", "call_1_1"]
    assert [message.tool_call_id for message in read.messages[2:]] == ["call_1_0", "call_1_1"]
    assert openai.encode(read, target).body == native


@pytest.mark.req("LLM-9")
@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_the_other_choices_are_words_and_only_sent_with_tools(choice: Any) -> None:
    assert body(ChatRequest(messages=ASKED, tools=[TOOL], tool_choice=choice))["tool_choice"] == choice
    bare = body(ChatRequest(messages=ASKED, tool_choice="auto"))
    assert bare == {"model": "m", "messages": NATIVE_ASKED, "stream_options": {"include_usage": True}}


@pytest.mark.req("LLM-9")
def test_a_text_to_continue() -> None:
    made = openai.encode_complete(CompleteRequest(prompt="Once", seed=1), Target("m", "http://box/v1"))
    assert made.url == "http://box/v1/completions"
    assert made.body == {
        "model": "m", "prompt": "Once", "stream": True, "max_tokens": 256, "seed": 1,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    chat = openai.encode_complete(CompleteRequest(prompt="Once"), Target("m", "http://box/v1", "groq"))
    assert chat.url == "http://box/v1/chat/completions"
    assert chat.body["messages"] == [{"role": "user", "content": "Once"}]
    assert "max_tokens" not in chat.body, "a model that only chats may think first"


@pytest.mark.req("LLM-9")
@pytest.mark.parametrize(
    ("url", "given", "model", "base", "version"),
    [
        ("/v1/chat/completions", {"model": "m"}, "m", "/v1", ""),
        ("https://r.openai.azure.com/openai/deployments/mine/chat/completions?api-version=2024-10-21", {},
         "mine", "https://r.openai.azure.com/openai/deployments/mine", "2024-10-21"),
        ("/endpoints/mine/invocations", {"model": "m"}, "m", "/endpoints/mine/invocations", ""),
    ],
)  # fmt: skip
def test_where_it_goes(url: str, given: dict[str, Any], model: str, base: str, version: str) -> None:
    native = {**given, "messages": NATIVE_ASKED}
    read, target = openai.read(HttpRequest("POST", url, native), "azure")
    assert (target.model, target.base, target.api_version) == (model, base, version)
    again = openai.encode(read, target)
    assert (again.url, again.body) == (url, native)


@pytest.mark.req("LLM-9")
@pytest.mark.parametrize(
    ("native", "place"),
    [
        ({"messages": "x"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "odd"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 1}]}]},
         "messages[0].content[0].image_url"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]},
         "messages[0].tool_calls[0].function"),
        ({"messages": [{"role": "assistant", "tool_calls": [
            {"id": "c", "function": {"name": "a", "arguments": "{"}}]}]},
         "messages[0].tool_calls[0].function.arguments"),
        ({"messages": NATIVE_ASKED, "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"messages": NATIVE_ASKED, "tool_choice": 5}, "tool_choice"),
        ({"messages": NATIVE_ASKED, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}},
         "tool_choice.allowed_tools.tools"),
        ({"messages": NATIVE_ASKED, "response_format": {"type": "poem"}}, "response_format.type"),
        ({"messages": NATIVE_ASKED, "temperature": "hot"}, "temperature"),
        ({"messages": [{"role": "owl", "content": "x"}]}, "messages[0].role"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_the_place(native: dict[str, Any], place: str) -> None:
    with pytest.raises(HearthNetError) as refused:
        openai.read(HttpRequest("POST", URL, {"model": "m", **native}), "")
    assert (refused.value.code, refused.value.details) == ("bad_request", {"path": place})
    assert refused.value.message.startswith(f"{place}: ")


@pytest.mark.req("LLM-22")
def test_profiles_say_only_what_the_wire_has() -> None:
    for name, profile in dialect.VENDORS.items():
        for spelling in (profile.spelling, *(special for _, special in profile.models)):
            for choice, value in spelling.items():
                assert value in SPELLINGS[choice], (name, choice, value)
        assert "{key}" in profile.key[1]


@pytest.mark.req("LLM-22")
@pytest.mark.parametrize(
    ("url", "vendor"),
    [("https://api.openai.com/v1", "openai"), ("https://mine.openai.azure.com/openai/v1", "azure"),
     ("https://api.groq.com/openai/v1", "groq"), ("https://evilgroq.com/v1", ""), ("http://localhost:1", ""),
     ("https://openrouter.ai/api/v1", "openrouter"), ("not a url", "")],
)  # fmt: skip
def test_a_vendor_is_known_by_its_host(url: str, vendor: str) -> None:
    assert dialect.vendor_at(url) == vendor


@pytest.mark.req("LLM-22")
def test_a_model_that_draws_as_it_likes_is_not_told_how() -> None:
    request = ChatRequest(messages=ASKED, temperature=0.7, top_p=0.95, max_tokens=5)
    new = openai.encode(request, Target("gpt-5-mini", vendor="openai")).body
    assert new == {
        "model": "gpt-5-mini", "messages": NATIVE_ASKED, "max_completion_tokens": 5,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    old = openai.encode(request, Target("gpt-4o", vendor="openai")).body
    assert old["temperature"] == 0.7


@pytest.mark.req("LLM-9")
def test_a_wire_that_there_is_not() -> None:
    assert wire("openai") is openai
    with pytest.raises(HearthNetError, match="no wire 'morse'; there is anthropic") as unknown:
        wire("morse")
    assert unknown.value.code == "not_found"
