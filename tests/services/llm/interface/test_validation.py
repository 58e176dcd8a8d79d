"""Which conversations can be asked at all."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.builtin.model_file import BUILT_IN
from hearthnet_llm.interface.backend import Profile
from hearthnet_llm.interface.content_parts import ImagePart, ListedTool, TextPart, ToolListingPart
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import ChatRequest, Message, Named, ResponseSchema, ServerTool, Tool
from hearthnet_llm.interface.validation import check

pytestmark = pytest.mark.req("LLM-6")
SYSTEM = Message(role="system", content="s")
USER = Message(role="user", content="u")
ASSISTANT = Message(role="assistant", content="a")
CALLING = Message(role="assistant", tool_calls=[ToolCall("c1", "t", {}), ToolCall("c2", "t", {})])
TWICE = Message(role="assistant", tool_calls=[ToolCall("c1", "t", {}), ToolCall("c1", "t", {})])
FIRST = Message(role="tool", content="1", tool_call_id="c1")
SECOND = Message(role="tool", content="2", tool_call_id="c2")
TOOL = Tool("t", "T.", {"type": "object"})


@pytest.mark.parametrize(
    "messages",
    [[USER], [SYSTEM, SYSTEM, USER], [USER, ASSISTANT, USER], [USER, CALLING, SECOND, FIRST],
     [USER, CALLING, FIRST, SECOND, ASSISTANT, USER], [CALLING, FIRST, SECOND]],
)  # fmt: skip
def test_a_conversation_in_order(messages: list[Message]) -> None:
    check(ChatRequest(messages=messages), BUILT_IN)


@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ([SYSTEM], "/input/messages"),
        ([USER, SYSTEM, USER], "/input/messages/1"),
        ([USER, FIRST], "/input/messages/1"),
        ([USER, CALLING, FIRST, USER], "/input/messages/3"),
        ([USER, CALLING, FIRST], "/input/messages/2"),
        ([USER, CALLING, FIRST, FIRST, SECOND], "/input/messages/3"),
        ([USER, TWICE, FIRST], "/input/messages/1"),
        ([Message(role="user", content="u", tool_calls=[ToolCall("c", "t", {})])], "/input/messages/0"),
        ([USER, ASSISTANT], "/input/messages/1"),
    ],
)
def test_what_is_out_of_order_is_named_with_its_place(messages: list[Message], path: str) -> None:
    with pytest.raises(HearthNetError) as refused:
        check(ChatRequest(messages=messages), BUILT_IN)
    assert refused.value.code == "bad_request"
    assert refused.value.details["path"] == path


def test_the_beginning_of_an_answer_is_for_models_that_take_one() -> None:
    begun = ChatRequest(messages=[USER, Message(role="assistant", content="{", prefix=True)])
    check(begun, Profile(model="m", backend="openai", ctx=100, continues=True))
    with pytest.raises(HearthNetError, match="cannot continue the beginning of an answer") as refused:
        check(begun, BUILT_IN)
    assert (refused.value.code, refused.value.details["path"]) == ("bad_request", "/input/messages/1")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tool_choice": "required"}, "/input/tool_choice"),
        ({"tools": [TOOL], "tool_choice": Named("other")}, "/input/tool_choice/name"),
        ({"tool_choice": Named("other")}, "/input/tool_choice/name"),
        ({"tools": [TOOL, TOOL]}, "/input/tools"),
        ({"tools": [Tool(f"t{n}", "", {}) for n in range(65)]}, "/input/tools"),
    ],
)
def test_tools_that_cannot_be_demanded(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(HearthNetError) as refused:
        check(ChatRequest(messages=[USER], **fields), BUILT_IN)
    assert refused.value.code == "bad_request"
    assert refused.value.details["path"] == path


REMOTE = {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "https://example.org/x"}]}}}


@pytest.mark.req("ATTACK-38")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tools": [Tool("t", "", {"$ref": "file:///etc/passwd"})]}, "/input/tools/0"),
        ({"tools": [TOOL, Tool("u", "", {}, result_schema=REMOTE)]}, "/input/tools/1"),
        (
            {"tools": [Tool("t", server=ServerTool("mcp", listed=[ListedTool("x", None, REMOTE)]))]},
            "/input/tools/0",
        ),
        ({"response_schema": ResponseSchema(schema={"$dynamicRef": "other.json"})}, "/input/response_schema"),
        (
            {"messages": [USER, Message("user", [ToolListingPart("s", [ListedTool("x", None, REMOTE)])])]},
            "/input/messages/1",
        ),
    ],
)
def test_a_schema_refers_to_itself_alone(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(HearthNetError, match="put what it refers to into the schema") as refused:
        check(ChatRequest(**{"messages": [USER], **fields}), BUILT_IN)
    assert (refused.value.code, refused.value.details["path"]) == ("bad_request", path)


def test_references_within_a_schema_are_left() -> None:
    schema = {"$defs": {"a": {"type": "string"}}, "properties": {"$ref": {"$ref": "#/$defs/a"}}}
    check(ChatRequest(messages=[USER], tools=[Tool("t", "", schema)]), BUILT_IN)


def test_a_model_without_eyes_says_so() -> None:
    image = Message(role="user", content=[TextPart("what is it?"), ImagePart(image_cid="blake3:0")])
    with pytest.raises(HearthNetError, match=rf"^{BUILT_IN.model} cannot see images; ask for") as refused:
        check(ChatRequest(messages=[image]), BUILT_IN)
    assert refused.value.code == "not_found"
