"""What OpenAI itself gets of a request: nothing that it would refuse (strict.py)."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import AudioPart, DocumentPart, ImagePart, TextPart, VideoPart
from hearthnet_llm.interface.request import ChatRequest, Message, ResponseSchema, Thinking
from hearthnet_llm.vendors import openai
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm.shapes import ASKED, LOOK, MP3, PDF, PNG, SCHEMA, answered

pytestmark = pytest.mark.req("LLM-148")
SHOWN = ImagePart(PNG, media_type="image/png")
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def body(request: ChatRequest, vendor: str = "openai") -> dict[str, Any]:
    """What is sent."""
    return openai.encode(request, Target("gpt-4o", "https://o/v1", vendor)).body


@pytest.mark.parametrize("vendor", ["openai", "azure", ""])
def test_a_schema_without_a_name_gets_one(vendor: str) -> None:
    made = body(ChatRequest(messages=[ASKED], response_schema=ResponseSchema(schema=SCHEMA)), vendor)
    form = {"type": "json_schema", "json_schema": {"name": "response", "schema": SCHEMA}}
    assert made["response_format"] == form
    named = body(ChatRequest(messages=[ASKED], response_schema=ResponseSchema("answer", SCHEMA)), vendor)
    assert named["response_format"]["json_schema"]["name"] == "answer"


def test_what_only_others_know_is_left_out() -> None:
    request = ChatRequest(
        messages=[ASKED], top_k=3, min_p=0.1, repetition_penalty=1.1, thinking=Thinking("on", "low")
    )
    assert set(body(request)) == {"model", "messages", "stream_options", "reasoning_effort"}
    assert {"top_k", "min_p", "repetition_penalty", "thinking"} <= set(body(request, ""))


def test_of_tools_nothing_is_said_without_any() -> None:
    made = body(ChatRequest(messages=[ASKED], tools=[], tool_choice="auto", parallel_tool_calls=False))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(made)
    made = body(ChatRequest(messages=[ASKED], tools=[LOOK], tool_choice="auto", parallel_tool_calls=False))
    assert {"tools", "tool_choice", "parallel_tool_calls"} <= set(made)


def test_a_tools_picture_is_shown_after_all_results() -> None:
    first = answered([TextPart("a lake"), SHOWN])
    second = Message("tool", [SHOWN], tool_call_id="c_2")
    messages = body(ChatRequest(messages=[*first, second, Message("user", "And?")]))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert messages[2]["content"] == [{"type": "text", "text": "a lake"}]
    assert "is shown in the user's message" in messages[3]["content"]
    assert messages[4]["content"] == [PICTURE, PICTURE]
    last = body(ChatRequest(messages=[*first]))["messages"][-1]
    assert last == {"role": "user", "content": [PICTURE]}


def test_an_assistant_that_said_nothing_has_an_empty_text() -> None:
    made = body(ChatRequest(messages=[ASKED, Message("assistant"), Message("assistant", []), ASKED]))
    assert [message["content"] for message in made["messages"][1:3]] == ["", ""]
    assert body(ChatRequest(messages=answered("blue")))["messages"][1]["content"] is None


def test_a_document_without_a_name_gets_one() -> None:
    part = DocumentPart(PDF, media_type="application/pdf")
    (made,) = body(ChatRequest(messages=[Message("user", [part])]))["messages"][0]["content"]
    assert made["file"]["filename"] == "document.pdf"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (VideoPart(url="https://example.org/a.mp4"), "takes no video"),
        (AudioPart(MP3, media_type="audio/flac"), "WAV or MP3 alone"),
        (AudioPart(url="https://example.org/a.mp3"), "by value"),
        (DocumentPart(url="https://example.org/a.pdf"), "fetches none"),
    ],
)
def test_what_openai_has_not_is_refused_here(part: Any, why: str) -> None:
    with pytest.raises(HearthNetError, match=why) as refused:
        body(ChatRequest(messages=[Message("user", [part])]))
    assert refused.value.code == "bad_request"


def test_a_recorded_request_keeps_its_extras() -> None:
    native = {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "?"}],
        "top_k": 3,
        "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    }
    read, target = openai.read(HttpRequest("POST", "https://o/v1/chat/completions", native), "openai")
    assert openai.encode(read, target).body == native
