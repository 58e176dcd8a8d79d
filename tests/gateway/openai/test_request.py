"""OpenAI's requests as the mesh is asked them: each member, each role, each kind of part."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.errors import error_body
from hearthnet.gateway.openai.request import OpenAIRequest, read_request

USER = {"role": "user", "content": "Hello"}
CHAT = contracts().get("llm.chat@2.0")


def asked(*messages: dict[str, Any], **members: Any) -> OpenAIRequest:
    read = read_request({"model": "qwen3-8b", "messages": list(messages) or [USER], **members})
    CHAT.check_request(read.body)
    return read


def given(**members: Any) -> dict[str, Any]:
    read: dict[str, Any] = asked(**members).body["input"]
    return {name: value for name, value in read.items() if name != "messages"}


def message(**members: Any) -> dict[str, Any]:
    read: dict[str, Any] = asked(USER, members).body["input"]["messages"][1]
    return read


def asking(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **members}


def refusal(value: Any) -> dict[str, Any]:
    with pytest.raises(HearthNetError) as refused:
        read_request(value)
    assert refused.value.code == "bad_request"
    told: dict[str, Any] = error_body(refused.value)["error"]
    return told


@pytest.mark.req("HTTP-10")
def test_each_setting_of_an_answer_reaches_the_model_under_its_name_there() -> None:
    assert given(
        temperature=0,
        top_p=0.9,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        logit_bias={"50256": -100},
        seed=7,
        parallel_tool_calls=False,
        verbosity="low",
        max_tokens=99,
        stop="END",
        reasoning_effort="low",
        prompt_cache_key="home",
    ) == {
        "temperature": 0,
        "top_p": 0.9,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "logit_bias": {"50256": -100},
        "seed": 7,
        "parallel_tool_calls": False,
        "verbosity": "low",
        "max_tokens": 99,
        "stop": ["END"],
        "thinking": {"effort": "low"},
        "cache_key": "home",
    }
    assert given(max_tokens=1, max_completion_tokens=2) == {"max_tokens": 2}
    assert given(stop=["a", "b"]) == {"stop": ["a", "b"]}
    assert given(reasoning_effort="none") == {"thinking": {"mode": "off"}}
    assert given(temperature=None, stop=None, tools=None, n=1, modalities=["text"]) == {}


@pytest.mark.req("HTTP-10")
def test_what_changes_nothing_is_passed_over_and_what_cannot_be_done_is_refused_by_name() -> None:
    assert given(user="anna", metadata={"a": "b"}, store=True, service_tier="auto", a_new_thing=[1]) == {}
    for member, value in (
        ("n", 2),
        ("logprobs", True),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("web_search_options", {}),
    ):
        assert refusal({"model": "m", "messages": [USER], member: value})["param"] == member
    for sound in ({"modalities": ["text", "audio"]}, {"audio": {"voice": "alloy", "format": "wav"}}):
        assert refusal({"model": "m", "messages": [USER], **sound})["param"] == "modalities"


@pytest.mark.req("HTTP-10")
def test_a_wrong_request_says_where() -> None:
    nurse, unknown = {"role": "nurse", "content": "x"}, {"tolls": [1]}
    roles = "write one of: system, developer, user, assistant, tool"
    for value, where, message in (
        ([], None, "Expected `object`, got `array`"),
        ({"messages": [USER]}, None, "Object missing required field `model`"),
        ({"model": 7, "messages": [USER]}, "model", "Expected `str`, got `int`"),
        (asking(USER, {"role": 1}), "messages[1].role", "Expected `str`, got `int`"),
        (asking(nurse), "messages[0].role", f"there is no role 'nurse'; {roles}"),
        (asking({"role": "user"}), "messages[0].content", "a message of role user needs its content"),
        (asking(USER, hearthnet=unknown), "hearthnet", "Object contains unknown field `tolls`"),
        (asking(USER, max_tokens="9"), "max_tokens", "Expected `int | null`, got `str`"),
    ):
        told = refusal(value)
        assert (told["type"], told["param"], told["message"]) == ("invalid_request_error", where, message)


@pytest.mark.req("HTTP-11")
def test_each_role_is_read() -> None:
    assert asked({"role": "developer", "content": "Be brief."}, USER).body["input"]["messages"] == [
        {"role": "system", "content": "Be brief."},
        USER,
    ]
    assert message(role="user", content="Hi", name="anna") == {
        "role": "user",
        "content": "Hi",
        "name": "anna",
    }
    assert message(role="assistant", content=None, refusal="No.") == {"role": "assistant", "refusal": "No."}
    assert message(role="tool", content="21 C", tool_call_id="c1") == {
        "role": "tool",
        "content": "21 C",
        "tool_call_id": "c1",
    }
    refused = refusal({"model": "m", "messages": [USER, {"role": "tool", "content": "x"}]})
    assert refused["param"] == "messages[1].tool_call_id"


@pytest.mark.req("HTTP-11")
def test_calls_of_an_assistant_are_read_and_broken_arguments_are_refused() -> None:
    def called(arguments: str) -> dict[str, Any]:
        return {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}

    text = {"id": "c2", "type": "custom", "custom": {"name": "code", "input": "print()"}}
    read = message(role="assistant", tool_calls=[called('{"at": "sky"}'), text])
    assert read["tool_calls"] == [
        {"id": "c1", "name": "look", "arguments": {"at": "sky"}},
        {"id": "c2", "name": "code", "arguments": {"input": "print()"}},
    ]
    assert message(role="assistant", tool_calls=[called(" ")])["tool_calls"][0]["arguments"] == {}
    for broken in ('{"at"', "[]", '"\\ud800"', "\ud800"):
        where = refusal(
            {"model": "m", "messages": [USER, {"role": "assistant", "tool_calls": [called(broken)]}]}
        )
        assert where["param"] == "messages[1].tool_calls[0].function.arguments"
    unknown = {"role": "assistant", "tool_calls": [{"id": "c", "type": "magic"}]}
    assert refusal({"model": "m", "messages": [USER, unknown]})["param"] == "messages[1].tool_calls[0]"


@pytest.mark.req("HTTP-11")
def test_each_kind_of_part_is_read() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": "JVBERi0="}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]
    read = asked({"role": "user", "content": parts})
    assert read.body["params"]["modalities"] == ["vision"]
    assert read.body["input"]["messages"][0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "data": "iVBORw0KGgo=", "media_type": "image/png", "detail": "low"},
        {"type": "image", "url": "https://example.org/a.png"},
        {"type": "audio", "data": "UklGRg==", "media_type": "audio/wav"},
        {"type": "document", "data": "JVBERi0=", "media_type": "application/pdf", "name": "a.pdf"},
        {"type": "document", "data": "JVBERi0="},
        {"type": "document", "file_id": "file-1"},
    ]
    said = message(role="assistant", content=[{"type": "refusal", "refusal": "No."}])
    assert said["content"] == [{"type": "refusal", "text": "No."}]


@pytest.mark.req("HTTP-11")
@pytest.mark.parametrize("kind", ["text", "refusal", "image_url", "input_audio", "file", "hologram"])
def test_a_part_that_lacks_what_it_needs_is_refused(kind: str) -> None:
    told = refusal({"model": "m", "messages": [{"role": "user", "content": [{"type": kind}]}]})
    member = "" if kind == "hologram" else f".{kind}"
    assert told["param"] == f"messages[0].content[0]{member}"
    assert repr(kind) in told["message"]


@pytest.mark.req("HTTP-12")
def test_tools_of_the_client_are_declared_as_they_are() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    look = {"name": "look", "description": "Looks", "parameters": schema, "strict": True}
    code = {"name": "code", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}}
    tools = [
        {"type": "function", "function": look},
        {"type": "function", "function": {"name": "now"}},
        {"type": "custom", "custom": code},
        {"type": "custom", "custom": {"name": "say"}},
    ]
    read = asked(tools=tools)
    assert read.texts == {"code", "say"}
    assert read.body["input"]["tools"] == [
        {"name": "look", "description": "Looks", "parameters_schema": schema, "strict": True},
        {
            "name": "now",
            "parameters_schema": {"type": "object", "properties": {}, "additionalProperties": False},
        },
        {"name": "code", "text": {"syntax": "lark", "definition": "x"}},
        {"name": "say", "text": {"syntax": "text"}},
    ]
    assert refusal({"model": "m", "messages": [USER], "tools": [{"type": "magic"}]})["param"] == "tools[0]"


@pytest.mark.req("HTTP-12")
def test_a_choice_among_tools_is_kept() -> None:
    def named(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name}}

    def allowed(mode: str, *names: str) -> dict[str, Any]:
        tools = [named(name) for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}

    for word in ("auto", "none", "required"):
        assert given(tool_choice=word)["tool_choice"] == word
    assert given(tool_choice=named("look"))["tool_choice"] == {"name": "look"}
    assert given(tool_choice=allowed("auto", "a", "b"))["tool_choice"] == {
        "name": "a",
        "others": ["b"],
        "required": False,
    }
    assert given(tool_choice=allowed("required", "a"))["tool_choice"] == {"name": "a", "required": True}
    for nothing, where in (
        ({"type": "function"}, "tool_choice"),
        (allowed("auto"), "tool_choice.allowed_tools.tools"),
    ):
        told = refusal({"model": "m", "messages": [USER], "tool_choice": nothing})
        assert told["param"] == where


@pytest.mark.req("HTTP-13")
def test_the_form_of_the_answer_is_kept() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    wanted = {"name": "number", "schema": schema, "strict": True}
    assert given(response_format={"type": "text"}) == {}
    assert given(response_format={"type": "json_object"}) == {"response_schema": {}}
    assert given(response_format={"type": "json_schema", "json_schema": wanted}) == {
        "response_schema": wanted
    }
    for wrong in ({"type": "yaml"}, {"type": "json_schema"}):
        told = refusal({"model": "m", "messages": [USER], "response_format": wrong})
        assert told["param"] == "response_format.type"


@pytest.mark.req("HTTP-14")
def test_tools_of_the_mesh_are_asked_for_by_a_member_or_by_the_models_name() -> None:
    assert asked().body["params"] == {"model": "qwen3-8b"}
    assert not asked().with_mesh
    some = asked(hearthnet={"tools": ["search_corpus", {"use": "market.post"}], "events": True})
    assert some.with_mesh
    assert some.events
    assert some.mesh_tools == ["search_corpus", {"use": "market.post"}]

    def of(model: str, **members: Any) -> OpenAIRequest:
        return read_request({"model": model, "messages": [USER], **members})

    everything = of("qwen3-8b+tools")
    assert everything.with_mesh
    assert everything.mesh_tools is None
    assert everything.body["params"] == {"model": "qwen3-8b"}
    assert of("mesh").body["params"] == {}
    assert of("mesh+tools").body["params"] == {}
    assert of("mesh+tools", hearthnet={"tools": ["search_corpus"]}).mesh_tools == ["search_corpus"]
    assert of("mesh", hearthnet={"run": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}).run == "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.req("HTTP-10")
def test_streaming_is_asked_for() -> None:
    assert not asked().stream
    assert asked(stream=True).stream
    assert not asked(stream=True).include_usage
    assert asked(stream=True, stream_options={"include_usage": True}).include_usage
    said = asked({"role": "assistant", "content": "Before."}, {"role": "assistant", "content": []}, USER)
    assert said.last_answer == "Before."
