"""Shapes of OpenAI's wire that few servers and clients have: each is carried, or refused with its place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    TextDelta,
    ToolCall,
)
from hearthnet_llm.interface.request import ChatRequest, Message, TextForm
from hearthnet_llm.vendors import openai, wire
from hearthnet_llm.vendors.wire import HttpRequest, ResponseInfo, Target

Json = dict[str, Any]
CONTRACT = contracts().get("llm.chat@2.0")
USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def called(**function: Any) -> list[Json]:
    """A conversation with one call, and its result."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", **function}}
    return [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    ]


def said(**message: Any) -> list[Json]:
    """A conversation with one earlier answer."""
    return [USER, {"role": "assistant", **message}, USER]


def asked(fields: Json) -> HttpRequest:
    """A native request with `fields`."""
    return HttpRequest("POST", "/v1/chat/completions", {"model": "m", "messages": [USER], **fields})


def round_trip(vendor: str, **fields: Any) -> tuple[ChatRequest, Json]:
    """What a native request asks, by way of the contract, and what is built of it again."""
    native = asked(fields)
    request, target = openai.read(native, vendor)
    carried = json.loads(json.dumps(msgspec.to_builtins(request)))
    CONTRACT.check_request({"params": {}, "input": carried})
    made = openai.encode(msgspec.convert(carried, ChatRequest), target)
    assert made.url == native.url
    return request, made.body


def without_nulls(value: Any) -> Any:
    """The same without fields that are null."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


CITED = {"url": "https://x.example", "title": "X", "start_index": 0, "end_index": 2, "content": "words"}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
SETTINGS = {
    "allowed_domains": ["a.example"],
    "excluded_domains": ["b.example"],
    "max_uses": 1,
    "max_results": 3,
    "search_context_size": "low",
    "user_location": {"type": "approximate", "city": "Bonn", "country": "DE", "timezone": "Europe/Berlin"},
}
ADVICE = {"model": "a/b", "forward_transcript": True, "max_completion_tokens": 9}
LARK = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}}
CUSTOM = {"type": "custom", "custom": {"name": "run", "description": "Runs it", "format": LARK}}
CUSTOM_CALL = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": 'print("x")'}}
SHAPES: list[tuple[str, str, Json]] = [
    ("a call without arguments", "huggingface", {"messages": called()}),
    ("arguments that are an object", "other", {"messages": called(arguments={"a": 1})}),
    ("no arguments as null", "openai", {"messages": called(arguments="null")}),
    ("no content", "openai", {"messages": [USER, {"role": "tool", "tool_call_id": "c1", "content": None}]}),
    ("an answer that is an empty list", "openai", {"messages": said(content=[])}),
    ("no sources", "openai", {"messages": said(content="hi", annotations=[])}),
    (
        "sources",
        "openrouter",
        {"messages": said(content="hi", annotations=[{"type": "url_citation", "url_citation": CITED}])},
    ),
    ("results without a question", "openai", {"messages": called(arguments='{"a":1}')[1:]}),
    ("no thoughts", "openrouter", {"messages": said(content="hi", reasoning_details=[])}),
    ("a spoken answer", "openai", {"messages": said(audio={"id": "a1"})}),
    (
        "sound as text",
        "mistral",
        {"messages": said(content=[{"type": "input_audio", "input_audio": "AAAA"}])},
    ),
    (
        "sound by address",
        "vllm",
        {"messages": said(content=[{"type": "audio_url", "audio_url": {"url": "https://x.example/a.mp3"}}])},
    ),
    (
        "a document by address",
        "perplexity",
        {"messages": said(content=[{"type": "file_url", "file_url": {"url": "https://x.example/a.pdf"}}])},
    ),
    ("a document by its id", "mistral", {"messages": said(content=[{"type": "file", "file_id": "f1"}])}),
    ("strictness beside the function", "openai", {"tools": [{**TOOL, "strict": True}]}),
    ("a choice without a type", "openai", {"tools": [TOOL], "tool_choice": {"function": {"name": "look"}}}),
    ("a choice of a tool", "openai", {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}}),
    ("tokens not to be counted", "openai", {"stream": True, "stream_options": {"include_usage": False}}),
    ("nothing said of streams", "openai", {"stream": True, "stream_options": {}}),
    ("tokens under llama.cpp's name", "llamacpp", {"n_predict": 5}),
    ("thinking in a template", "nvidia", {"chat_template_kwargs": {"thinking": False}}),
    ("effort in a template", "llamacpp", {"chat_template_kwargs": {"reasoning_effort": "low"}}),
    ("thinking as Ollama has it", "ollama", {"think": True}),
    ("Nemotron's budget", "nvidia", {"reasoning_budget": 64}),
    ("vLLM's budget", "vllm", {"thinking_token_budget": 64}),
    ("a thought that ended", "mistral", {"messages": said(content=[{**THOUGHT, "closed": True}])}),
    ("a thought that broke off", "mistral", {"messages": said(content=[{**THOUGHT, "closed": False}])}),
    ("eager arguments", "openrouter", {"tools": [{**TOOL, "eager_input_streaming": True}]}),
    ("a prefixed tool", "openrouter", {"tools": [{"type": "openrouter:web_search"}]}),
    ("one without settings", "openrouter", {"tools": [{"type": "openrouter:web_search", "parameters": {}}]}),
    ("one with all", "openrouter", {"tools": [{"type": "openrouter:web_search", "parameters": SETTINGS}]}),
    (
        "another model's advice",
        "openrouter",
        {"tools": [{"type": "openrouter:advisor", "parameters": ADVICE}]},
    ),
    (
        "a tool with a dollar sign",
        "moonshotai",
        {"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]},
    ),
    (
        "where the user is",
        "openai",
        {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Bonn"}}}},
    ),
    ("a cache hint for all", "openrouter", {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
    (
        "a tool of text",
        "openai",
        {"tools": [CUSTOM], "tool_choice": {"type": "custom", "custom": {"name": "run"}}},
    ),
    ("one of any text", "openai", {"tools": [{"type": "custom", "custom": {"name": "run"}}]}),
    (
        "one that says so",
        "openai",
        {"tools": [{"type": "custom", "custom": {"name": "run", "format": {"type": "text"}}}]},
    ),
    ("a call with a text", "openai", {"tools": [CUSTOM], "messages": said(tool_calls=[CUSTOM_CALL])}),
    (
        "several that may be called",
        "openai",
        {
            "tools": [CUSTOM, TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [
                        {"type": "custom", "custom": {"name": "run"}},
                        {"type": "function", "function": {"name": "look"}},
                    ],
                },
            },
        },
    ),
    ("a bare schema", "llamacpp", {"json_schema": SCHEMA}),
    ("a flat schema", "llamacpp", {"response_format": {"type": "json_schema", "schema": SCHEMA}}),
    ("a schema as a value", "huggingface", {"response_format": {"type": "json", "value": SCHEMA}}),
    ("a guiding schema", "vllm", {"guided_json": SCHEMA}),
    ("a structured schema", "vllm", {"structured_outputs": {"json": SCHEMA}}),
    ("a grammar", "llamacpp", {"grammar": 'root ::= "a"'}),
    ("a grammar and a schema", "llamacpp", {"grammar": 'root ::= "a"', "json_schema": SCHEMA}),
    ("a guiding grammar", "vllm", {"guided_grammar": 'root ::= "a"'}),
    ("a guiding expression", "vllm", {"guided_regex": "a+"}),
    ("a structured grammar", "vllm", {"structured_outputs": {"grammar": 'root ::= "a"'}}),
    ("a structured expression", "vllm", {"structured_outputs": {"regex": "a+"}}),
    (
        "a form that is a grammar",
        "other",
        {"response_format": {"type": "grammar", "grammar": 'root ::= "a"'}},
    ),
    ("a form that is one", "perplexity", {"response_format": {"type": "regex", "regex": {"regex": "a+"}}}),
    ("the budget of Nemotron Nano", "nvidia", {"max_thinking_tokens": 64}),
]


def spelt() -> set[tuple[str, str]]:
    """All spellings that these shapes have."""
    read = (openai.read(asked(fields), vendor)[1] for _, vendor, fields in SHAPES)
    return {item for target in read for item in target.spelling.items()}


@pytest.mark.req("LLM-22")
@pytest.mark.parametrize(
    ("vendor", "fields"), [shape[1:] for shape in SHAPES], ids=[one[0] for one in SHAPES]
)
def test_a_rare_shape_is_read_and_written_the_same(vendor: str, fields: Json) -> None:
    """Field by field, null being absent."""
    _, made = round_trip(vendor, **fields)
    assert without_nulls(made) == without_nulls({"model": "m", "messages": [USER], **fields})


def frames(*chunks: Json, whole: bool = False) -> list[Frame]:
    """The frames of an answer."""
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    decoder = openai.decoder(ResponseInfo("m"))
    return [*decoder.feed(json.dumps(chunks[0]).encode() if whole else lines.encode()), *decoder.finish()]


def message(finish: str = "stop", **fields: Any) -> list[Frame]:
    """The frames of a whole answer."""
    return frames({"choices": [{"message": fields, "finish_reason": finish}]}, whole=True)


@pytest.mark.req("LLM-10")
def test_a_call_with_a_text() -> None:
    """It is the argument `input`, streamed or whole; its pieces are no pieces of JSON, so none are shown."""
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "run", "input": 'print("'}}
    pieces = [{"delta": {"tool_calls": [one]}} for one in (first, {"index": 0, "custom": {"input": 'x")'}})]
    ended = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    for found in (
        frames(*({"choices": [piece]} for piece in pieces), ended),
        message("tool_calls", tool_calls=[CUSTOM_CALL]),
    ):
        assert found[:-1] == [ToolCall("c1", "run", {"input": 'print("x")'})]


@pytest.mark.req("LLM-10")
def test_pieces_of_several_calls_without_an_index() -> None:
    """Their place in the list tells them apart; a piece that comes alone belongs to the last call."""
    begun = [{"id": name, "function": {"name": name, "arguments": ""}} for name in ("look", "hear")]
    pieces = [
        [{"function": {"arguments": text}} for text in ('{"a":1', '{"b":2')],
        [{"function": {"arguments": "}"}}],
    ]
    lists = [begun, *pieces]
    found = frames(
        *({"choices": [{"delta": {"tool_calls": one}}]} for one in lists),
        {"choices": [{"delta": {"tool_calls": [{"id": "look", "function": {"arguments": "}"}}]}}]},
    )
    calls = [frame for frame in found if isinstance(frame, ToolCall)]
    assert calls == [ToolCall("look", "look", {"a": 1}), ToolCall("hear", "hear", {"b": 2})]


@pytest.mark.req("LLM-21")
def test_whether_a_thought_ended() -> None:
    """As the vendor says at last."""
    found = message(content=[THOUGHT, {**THOUGHT, "closed": True}])
    assert [frame.part for frame in found if isinstance(frame, ReasoningBlock)] == [
        ThinkingPart("hmhm", closed=True)
    ]


@pytest.mark.req("LLM-22")
@pytest.mark.parametrize(
    "name", ["anthropic", "bedrock-anthropic", "bedrock-converse", "gemini", "ollama", "openai"]
)
def test_a_grammar_goes_only_where_it_is_known(name: str) -> None:
    """Elsewhere it is refused, not left out."""
    asked_for = ChatRequest(messages=[Message("user", "hello")], grammar=TextForm("gbnf", 'root ::= "a"'))
    with pytest.raises(HearthNetError, match="grammar") as refused:
        wire(name).encode(asked_for, Target("m"))
    assert refused.value.code == "bad_request"


@pytest.mark.req("LLM-22")
def test_a_tool_of_text_for_others() -> None:
    """They see one argument; a setting that nobody knows is refused."""
    request, _ = round_trip("openai", tools=[CUSTOM])
    assert request.tools is not None
    schema = request.tools[0].schema
    assert (list(schema["properties"]), schema["required"]) == (["input"], ["input"])
    with pytest.raises(HearthNetError, match=r"tools\[0\].parameters.engine"):
        round_trip("openrouter", tools=[{"type": "openrouter:web_search", "parameters": {"engine": "exa"}}])


@pytest.mark.req("LLM-10")
def test_a_spoken_answer_is_its_transcript() -> None:
    """In pieces."""
    pieces = [{"choices": [{"delta": {"audio": {"transcript": text}}}]} for text in ("Hel", "lo")]
    found = frames(*pieces, {"choices": [{"delta": {"audio": {"data": "AAAA"}}}]})
    assert [frame.text for frame in found if isinstance(frame, TextDelta)] == ["Hel", "lo"]


@pytest.mark.req("LLM-10")
@pytest.mark.parametrize("fields", [{"images": [{}]}, {"content": [{"type": "image_url", "image_url": {}}]}])
def test_a_picture_is_left_out_with_a_notice(fields: Json) -> None:
    """Not silently."""
    found = message(**fields)
    assert [frame.code for frame in found if isinstance(frame, Notice)] == ["part_left_out"]


@pytest.mark.req("LLM-10")
@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "max_tokens"),
        ("max_output_tokens", "max_tokens"),
        ("content-filter", "refusal"),
        ("SAFETY", "refusal"),
        ("tool-calls", "end"),
    ],
)
def test_reasons_however_they_are_written(finish: str, stop: str) -> None:
    """Capitals, hyphens, and words of other wires."""
    ended = message(finish, content="x")[-1]
    assert isinstance(ended, Done)
    assert ended.stop_reason == stop


@pytest.mark.req("LLM-10")
def test_a_refusal_among_the_parts() -> None:
    """It is shown, and is the reason."""
    *shown, ended = message(content=[{"type": "refusal", "refusal": "no"}])
    assert shown == [TextDelta("no")]
    assert isinstance(ended, Done)
    assert ended.stop_reason == "refusal"


@pytest.mark.req("LLM-10")
@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"])
def test_cached_tokens_under_other_names(name: str) -> None:
    """DeepSeek's and Moonshot's; what is below zero counts as nothing."""
    usage = {"prompt_tokens": 5, "completion_tokens": -1, name: 4, "reasoning_tokens": 2}
    ended = frames({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage})[-1]
    assert isinstance(ended, Done)
    assert (ended.tokens_in, ended.tokens_out, ended.tokens_cached, ended.tokens_thinking) == (5, 0, 4, 2)


@pytest.mark.req("LLM-10")
def test_the_words_of_a_source() -> None:
    """They come with the citation."""
    found = message(content="hi", annotations=[{"type": "url_citation", "url_citation": CITED}])
    assert [frame.citation.quoted for frame in found if isinstance(frame, CitationEvent)] == ["words"]


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    "body",
    [
        {"error": "bad thing"},
        {"error": None, "message": "bad thing"},
        {"detail": [{"loc": ["body"], "msg": "bad thing"}]},
        {"errors": [{"message": "bad thing", "code": 7}], "success": False},
        {"type": "error", "error": {"message": "bad thing"}},
    ],
)
def test_errors_inside_a_success(body: Json) -> None:
    """Whatever they look like, their words are given, and what came before stays."""
    with pytest.raises(HearthNetError, match="bad thing"):
        frames(body, whole=True)
    decoder = openai.decoder(ResponseInfo("m"))
    first = {"choices": [{"delta": {"content": "Hi"}}]}
    assert list(decoder.feed(f"data: {json.dumps(first)}\n\n".encode())) == [TextDelta("Hi")]
    with pytest.raises(HearthNetError, match="bad thing"):
        list(decoder.feed(f"data: {json.dumps(body)}\n\n".encode()))


@pytest.mark.req("LLM-11")
def test_a_line_break_inside_a_text() -> None:
    """Some servers write JSON by hand."""
    decoder = openai.decoder(ResponseInfo("m"))
    with pytest.raises(HearthNetError, match="filtered due to it") as failed:
        list(decoder.feed(b'{"error": {"message": "filtered\n\tdue to it", "status": 400}}'))
    assert failed.value.code == "bad_request"
