"""OpenAI's own SDK as a judge: its types take what is sent, and it reads of an answer what is read here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai as sdk
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, ImagePart, RefusalPart, TextPart
from hearthnet_llm.interface.frames import Done, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest, Message, Named, ResponseSchema, Thinking, Tool
from hearthnet_llm.vendors import openai
from hearthnet_llm.vendors.wire import ResponseInfo, Target

pytestmark = pytest.mark.req("LLM-25")
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
TOOLS = [Tool("look", "Looks.", SCHEMA, strict=True), Tool("bare")]
TALK = [
    Message(role="system", content="Be brief."),
    Message(
        role="user",
        content=[
            TextPart("What is it?"),
            ImagePart(data="AAAA", media_type="image/png", detail="low"),
            AudioPart(data="AAAA", media_type="audio/mp3"),
            DocumentPart(data="AAAA", media_type="application/pdf", name="a.pdf"),
        ],
    ),
    Message(role="assistant", tool_calls=[ToolCall("c1", "look", {"at": "é"}), ToolCall("c2", "bare", {})]),
    Message(role="tool", content='{"seen":1}', tool_call_id="c1"),
    Message(role="tool", content=[TextPart("gone")], tool_call_id="c2", is_error=True),
    Message(role="assistant", content=[TextPart("Hm."), RefusalPart("No.")]),
    Message(role="user", content="Go on.", name="ann"),
]
REQUESTS = {
    "a talk": ChatRequest(messages=TALK, tools=TOOLS, tool_choice=Named("look"), stream=True),
    "one of two": ChatRequest(messages=TALK, tools=TOOLS, tool_choice=Named("look", ["bare"]), stream=True),
    "every setting": ChatRequest(
        messages=TALK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=5,
        temperature=0.5, top_p=0.9, frequency_penalty=0.1, presence_penalty=0.2, logit_bias={"5": -100},
        stop=["END"], seed=1, logprobs=True, top_logprobs=2, verbosity="low", service_tier="flex",
        cache_key="k", cache_ttl="24h", thinking=Thinking(effort="low"),
        response_schema=ResponseSchema("seen", SCHEMA, "What was seen", True), stream=True,
    ),
    "any JSON": ChatRequest(messages=TALK[-1:], response_schema=ResponseSchema(), stream=True),
}  # fmt: skip


def body(name: str) -> dict[str, Any]:
    """What is sent to OpenAI for a request."""
    return openai.encode(REQUESTS[name], Target("gpt-4o", vendor="openai")).body


def settled(value: Any) -> Any:
    """A validated value with the lists drawn out that the SDK's types leave to be drawn."""
    if isinstance(value, dict):
        return {key: settled(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else [settled(item) for item in value]


@pytest.mark.parametrize("name", REQUESTS)
def test_the_types_of_the_sdk_take_what_is_sent(name: str) -> None:
    """Nothing of it is refused, and nothing is left out as unknown."""
    sent = body(name)
    types: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsStreaming)
    assert settled(types.validate_python(sent)) == sent


@pytest.mark.parametrize("name", REQUESTS)
def test_the_sdk_itself_sends_the_same(name: str) -> None:
    heard: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        heard.append(json.loads(request.content))
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=b"data: [DONE]\n\n"
        )

    with client(answer) as made:
        assert list(made.chat.completions.create(**body(name))) == []
    assert heard == [body(name)]


def client(answer: Any) -> sdk.OpenAI:
    """The SDK's client over an answer that is at hand."""
    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return sdk.OpenAI(api_key="none", base_url="http://box/v1", http_client=http, max_retries=0)


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk, with all that the SDK wants to see in one."""
    choices = (
        [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}] if delta or finish else []
    )
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    return {**head, "choices": choices, **more}


USAGE = {
    "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 1},
}  # fmt: skip
STREAM = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Let me "}),
    chunk({"content": "see 🙂"}),
    chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function",
                           "function": {"name": "look", "arguments": ""}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"at":'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"é"}'}}]}),
    chunk({"tool_calls": [{"index": 1, "id": "b", "type": "function",
                           "function": {"name": "bare", "arguments": "{}"}}]}),
    chunk({}, "tool_calls"),
    chunk({}, usage=USAGE),
]  # fmt: skip
WHOLE = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "gpt-4o", "usage": USAGE,
    "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": {
        "role": "assistant", "content": "Let me see 🙂", "refusal": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at":"é"}'}},
            {"id": "b", "type": "function", "function": {"name": "bare", "arguments": "{}"}}]}}],
}  # fmt: skip


def events() -> bytes:
    """The stream's bytes."""
    return b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in STREAM) + b"data: [DONE]\n\n"


def ours(data: bytes) -> tuple[str, list[tuple[str, str, Any]], tuple[int, int, int | None]]:
    """Text, calls and usage as they are read here."""
    decoder = openai.decoder(ResponseInfo("m"))
    frames = [*decoder.feed(data), *decoder.finish()]
    done = frames[-1]
    assert isinstance(done, Done)
    assert done.stop_reason == "tool_calls"
    calls = [(frame.id, frame.name, frame.arguments) for frame in frames if isinstance(frame, ToolCall)]
    text = "".join(frame.text for frame in frames if isinstance(frame, TextDelta))
    return text, calls, (done.tokens_in, done.tokens_out, done.tokens_cached)


def theirs(message: Any, usage: Any) -> tuple[str, list[tuple[str, str, Any]], tuple[int, int, int | None]]:
    """The same as the SDK has it."""
    calls = [(one.id, one.function.name, json.loads(one.function.arguments)) for one in message.tool_calls]
    cached = usage.prompt_tokens_details.cached_tokens
    return message.content, calls, (usage.prompt_tokens, usage.completion_tokens, cached)


def test_a_stream_says_here_what_it_says_to_the_sdk() -> None:
    for one in STREAM:
        ChatCompletionChunk.model_validate(one, strict=True)

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events())

    with client(answer) as made, made.chat.completions.stream(model="m", messages=[]) as stream:
        whole = stream.get_final_completion()
    assert ours(events()) == theirs(whole.choices[0].message, whole.usage)


def test_one_object_says_here_what_it_says_to_the_sdk() -> None:
    whole = ChatCompletion.model_validate(WHOLE, strict=True)
    assert ours(json.dumps(WHOLE).encode()) == theirs(whole.choices[0].message, whole.usage)
    assert ours(json.dumps(WHOLE).encode()) == ours(events())


def test_bytes_one_by_one_give_the_same_frames_as_all_at_once() -> None:
    one_by_one, at_once = (openai.decoder(ResponseInfo("m")) for _ in range(2))
    pieces: Iterator[bytes] = (events()[at : at + 1] for at in range(len(events())))
    found = [frame for piece in pieces for frame in one_by_one.feed(piece)]
    assert [*found, *one_by_one.finish()] == [*at_once.feed(events()), *at_once.finish()]
    assert TextDelta("see 🙂") in found, "before the end"
