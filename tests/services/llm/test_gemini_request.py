"""Requests to Gemini, exactly as they go out, and read back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import DocumentPart, ImagePart, TextPart, ThinkingPart, VideoPart
from hearthnet_llm.interface.request import Message, Named, ResponseSchema, ServerTool, Thinking, Tool
from hearthnet_llm.vendors import gemini
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm.asking import ANSWER, ASKED, PNG, changed, sent

pytestmark = pytest.mark.req("LLM-32")
TARGET = Target("gemini-2.5-flash", "/v1beta")


def body(**fields: Any) -> dict[str, Any]:
    """The body of the request with other fields."""
    return sent("gemini", TARGET, changed(**fields)).body


@pytest.mark.parametrize(
    ("detail", "level"),
    [
        ("low", "MEDIA_RESOLUTION_LOW"),
        ("ultra_high", "MEDIA_RESOLUTION_ULTRA_HIGH"),
        ("auto", None),
        ("X", "X"),
    ],
)
def test_how_closely_to_look_has_the_vendors_word(detail: str, level: str | None) -> None:
    part = ImagePart(PNG, media_type="image/png", detail=detail)
    native = gemini.encode(changed(messages=[Message("user", [part])]), TARGET).body
    assert native["contents"][0]["parts"][0].get("mediaResolution") == (level and {"level": level})
    (again,) = gemini.read(HttpRequest("POST", "/models/g:generateContent", native), "")[0].messages
    assert again.content == [msgspec.structs.replace(part, detail=detail if level else None)]


def test_a_request_has_exactly_this_json() -> None:
    native = sent("gemini", TARGET)
    assert (native.method, native.url) == (
        "POST",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    )
    assert native.body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Which city is this, and how is it there?"},
                    {"inlineData": {"mimeType": "image/png", "data": PNG}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "I will look."},
                    {"functionCall": {"id": "c_one", "name": "weather", "args": {"city": "Köln"}}},
                    {"functionCall": {"id": "c_two", "name": "clock", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c_one", "name": "weather", "response": {"sky": "blue"}}},
                    {
                        "functionResponse": {
                            "id": "c_two",
                            "name": "clock",
                            "response": {"error": "no clock here"},
                        }
                    },
                    {"text": "And is it warm?"},
                ],
            },
        ],
        "generationConfig": {"maxOutputTokens": 200, "temperature": 0.5, "stopSequences": ["END"]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "weather",
                        "description": "Tells the weather",
                        "parametersJsonSchema": {
                            "type": "object",
                            "properties": {"city": {"type": "string"}},
                            "required": ["city"],
                        },
                    },
                    {"name": "clock", "description": "Tells the time"},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    }


@pytest.mark.parametrize(
    ("base", "stream", "url"),
    [
        ("/v1beta", False, "/v1beta/models/g:generateContent"),
        (
            "/v1/projects/P/locations/L/publishers/google",
            True,
            "/v1/projects/P/locations/L/publishers/google/models/g:streamGenerateContent?alt=sse",
        ),
    ],
)
def test_the_path_says_which_model_where_and_whether_to_stream(base: str, stream: bool, url: str) -> None:
    assert sent("gemini", Target("g", base), changed(stream=stream)).url == url


@pytest.mark.parametrize(
    ("choice", "native"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (Named("clock"), {"mode": "ANY", "allowedFunctionNames": ["clock"]}),
        (Named("clock", ["weather"]), {"mode": "ANY", "allowedFunctionNames": ["clock", "weather"]}),
        (Named("clock", required=False), {"mode": "VALIDATED", "allowedFunctionNames": ["clock"]}),
    ],
)
def test_a_choice_is_made_in_each_of_its_forms(choice: Any, native: Any) -> None:
    assert body(tool_choice=choice)["toolConfig"]["functionCallingConfig"] == native


def test_made_up_ids_are_not_sent_and_results_find_their_calls_by_name() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "a", "args": {"n": n}}} for n in (1, 2)]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "a", "response": {"result": n}}} for n in (1, 2)],
        },
    ]
    native = HttpRequest("POST", "/v1beta/models/g:generateContent", {"contents": contents})
    request, target = gemini.read(native, "")
    ids = [call.id for call in request.messages[1].tool_calls]
    assert ids == ["call_1", "call_2"] == [message.tool_call_id for message in request.messages[2:]]
    assert gemini.encode(request, target).body["contents"] == contents


def test_a_result_without_a_name_or_a_call_is_refused() -> None:
    with pytest.raises(HearthNetError, match="names no tool"):
        gemini.encode(
            changed(messages=[Message("user", "x"), Message("tool", "y", tool_call_id="gone")]), TARGET
        )


def test_text_of_a_tool_is_its_output() -> None:
    tool = Message("tool", "fine", tool_call_id="c_one")
    made = gemini.encode(changed(messages=[*ASKED.messages[1:3], tool]), TARGET).body["contents"][-1]
    assert made["parts"] == [
        {"functionResponse": {"id": "c_one", "name": "weather", "response": {"output": "fine"}}}
    ]


def test_a_schema_and_thinking_have_their_fields() -> None:
    made = body(response_schema=ResponseSchema("answer", ANSWER), thinking=Thinking("off", show="parsed"))
    assert made["generationConfig"] == {
        "maxOutputTokens": 200,
        "temperature": 0.5,
        "stopSequences": ["END"],
        "responseMimeType": "application/json",
        "responseJsonSchema": ANSWER,
        "thinkingConfig": {"thinkingBudget": 0, "includeThoughts": True},
    }
    assert (
        body(response_schema=ResponseSchema())["generationConfig"]["responseMimeType"] == "application/json"
    )
    assert body(thinking=Thinking("auto"))["generationConfig"]["thinkingConfig"] == {"thinkingBudget": -1}
    assert body(thinking=Thinking(effort="low"))["generationConfig"]["thinkingConfig"] == {
        "thinkingLevel": "low"
    }


def test_schemas_in_googles_own_dialect_are_json_schema_here() -> None:
    native = {
        "type": "OBJECT",
        "properties": {
            "a": {"type": "STRING", "nullable": True},
            "b": {"type": "ARRAY", "items": {"type": "INTEGER"}},
        },
    }
    ours = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"]},
            "b": {"type": "array", "items": {"type": "integer"}},
        },
    }
    tools = [{"function_declarations": [{"name": "t", "parameters": native}]}]
    sent_in = HttpRequest("POST", "/v1/models/g:generateContent", {"contents": [], "tools": tools})
    request, target = gemini.read(sent_in, "")
    assert request.tools == [Tool("t", parameters_schema=ours)]
    assert gemini.encode(request, target).body["tools"] == tools


def test_what_it_thought_goes_back_and_what_others_thought_does_not() -> None:
    thoughts = [
        ThinkingPart("so", "p1", format="gemini"),
        ThinkingPart(signature="p2"),
        ThinkingPart("x", "y", format="anthropic"),
    ]
    asked = changed(
        messages=[Message("user", "Hi"), Message("assistant", "Yes", thinking=thoughts), Message("user", "?")]
    )
    assert gemini.encode(asked, TARGET).body["contents"][1]["parts"] == [
        {"text": "so", "thought": True, "thoughtSignature": "p1"},
        {"text": "", "thoughtSignature": "p2"},
        {"text": "Yes"},
    ]


def test_calls_of_another_model_are_marked_for_those_that_want_a_proof() -> None:
    parts = gemini.encode(ASKED, Target("gemini-3-pro", "/v1beta")).body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [
        None,
        "skip_thought_signature_validator",
        None,
    ]


def test_media_and_own_tools_have_their_places() -> None:
    film = VideoPart(url="gs://b/film.mp4", media_type="video/mp4", start="1s", end="2s", fps=0.5)
    paper = DocumentPart(data="RA==", media_type="application/pdf", name="Paper")
    own = Tool("web_search", server=ServerTool("web_search"))
    made = body(
        messages=[Message("user", [film, paper, TextPart("?")])],
        tools=[own, Tool("t")],
        show_server_tools=True,
    )
    assert made["contents"][0]["parts"][:2] == [
        {
            "fileData": {"fileUri": "gs://b/film.mp4", "mimeType": "video/mp4"},
            "videoMetadata": {"startOffset": "1s", "endOffset": "2s", "fps": 0.5},
        },
        {"inlineData": {"mimeType": "application/pdf", "data": "RA==", "displayName": "Paper"}},
    ]
    assert made["tools"] == [{"googleSearch": {}}, {"functionDeclarations": [{"name": "t"}]}]
    assert made["toolConfig"]["includeServerSideToolInvocations"] is True


@pytest.mark.parametrize(
    ("path", "native", "place"),
    [
        ("/v1/models/g:embed", {}, "path"),
        ("/v1/models/g:generateContent", {"contents": [{"role": "robot", "parts": []}]}, "contents[0].role"),
        (
            "/v1/models/g:generateContent",
            {"contents": [{"parts": [{"hologram": 1}]}]},
            "contents[0].parts[0]",
        ),
        ("/v1/models/g:generateContent", {"contents": [], "tools": [{"magic": {}}]}, "tools[0].magic"),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(path: str, native: Any, place: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        gemini.read(HttpRequest("POST", path, native), "")
    assert (caught.value.code, caught.value.details["path"]) == ("bad_request", place)


def test_names_may_be_written_in_either_way() -> None:
    native = {
        "contents": [{"parts": [{"file_data": {"file_uri": "u", "mime_type": "audio/mp3"}}]}],
        "system_instruction": {"parts": {"text": "Be brief."}},
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"include_thoughts": False}},
        "tool_config": {"function_calling_config": {"mode": 2}},
        "tools": [{"code_execution": {}, "google_search": {}}],
    }
    request, target = gemini.read(HttpRequest("POST", "/v1/models/g:generateContent", native), "")
    assert request.max_tokens == 5
    assert request.thinking == Thinking(show="hidden")
    assert gemini.encode(request, target).body == native
