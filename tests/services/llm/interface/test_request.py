"""The types of requests say what the contracts say."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from hearthnet.contracts.registry import contracts
from hearthnet_llm.interface.content_parts import CacheHint, Part
from hearthnet_llm.interface.frames import ToolCall
from hearthnet_llm.interface.request import (
    ChatRequest,
    CompleteRequest,
    Message,
    ModelParams,
    Named,
    ResponseSchema,
    ServerTool,
    Thinking,
    Tool,
)

pytestmark = pytest.mark.req("LLM-12")
_MESSAGES = contracts().get("llm.chat@2.0").request_schema["properties"]["input"]["properties"]["messages"]
PARTS = _MESSAGES["items"]["properties"]["content"]["anyOf"][1]["items"]
CASES = [
    ("llm.chat@2.0", ChatRequest, {"messages": []}),
    ("llm.complete@1.0", CompleteRequest, {"prompt": "x"}),
]
SAMPLING = (
    *("max_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty"),
    *("repetition_penalty", "logit_bias", "seed"),
)


@pytest.mark.parametrize(("name", "kind", "least"), CASES)
def test_the_fields_and_defaults_are_the_contracts(
    name: str, kind: type[msgspec.Struct], least: dict[str, Any]
) -> None:
    contract = contracts().get(name)
    schema = contract.request_schema["properties"]["input"]["properties"]
    bare = msgspec.convert(least, kind)
    made = msgspec.convert(contract.with_defaults({"params": {}, "input": least})["input"], kind)
    assert set(kind.__struct_fields__) == set(schema)
    for field, part in schema.items():
        if "default" in part:
            assert getattr(made, field) == part["default"]
            assert getattr(bare, field) in (None, part["default"])


@pytest.mark.req("LLM-145")
@pytest.mark.parametrize(("name", "kind", "least"), CASES)
def test_contract_fills_in_no_sampling(name: str, kind: type[msgspec.Struct], least: dict[str, Any]) -> None:
    filled = contracts().get(name).with_defaults({"params": {}, "input": least})["input"]
    given = {field for field, value in filled.items() if value is not None}
    assert given - least.keys() <= {"stream", "tool_choice"}, "no other default, of a later field either"
    made = msgspec.convert(filled, kind)
    sampling = [field for field in SAMPLING if field in kind.__struct_fields__]
    assert {field: getattr(made, field) for field in sampling} == dict.fromkeys(sampling)


def test_params_are_the_contracts() -> None:
    schema = contracts().get("llm.chat@2.0").request_schema["properties"]["params"]["properties"]
    assert set(ModelParams.__struct_fields__) == set(schema)


def test_the_requests_of_the_examples_can_be_read() -> None:
    for name, kind, _ in CASES:
        for example in contracts().get(name).examples:
            if "error" not in example:
                msgspec.convert(example["request"]["input"], kind)


def test_parts_messages_and_tools_have_the_contracts_fields() -> None:
    fields = contracts().get("llm.chat@2.0").request_schema["properties"]["input"]["properties"]
    message = fields["messages"]["items"]["properties"]
    variants = {variant["properties"]["type"]["const"]: variant for variant in PARTS["oneOf"]}
    types = {kind.__struct_config__.tag: kind for kind in get_args(Part)}
    assert variants.keys() == types.keys()
    for tag, kind in types.items():
        assert set(kind.__struct_fields__) | {"type"} == set(variants[str(tag)]["properties"])
    named = fields["tool_choice"]["anyOf"][1]
    for kind, schema in (
        (Message, message),
        (Tool, fields["tools"]["items"]["properties"]),
        (ServerTool, fields["tools"]["items"]["properties"]["server"]["properties"]),
        (ToolCall, message["tool_calls"]["items"]["properties"]),
        (Named, named["properties"]),
        (Thinking, fields["thinking"]["properties"]),
        (ResponseSchema, fields["response_schema"]["properties"]),
        (CacheHint, message["cache"]["properties"]),
    ):
        assert set(kind.__struct_fields__) == set(schema), kind
