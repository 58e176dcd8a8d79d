"""The types of requests say what the contracts say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.contracts import contracts
from hearthnet_llm.request import ChatRequest, CompleteRequest, ModelParams

pytestmark = pytest.mark.req("LLM-12")
CASES = [
    ("llm.chat@2.0", ChatRequest, {"messages": []}),
    ("llm.complete@1.0", CompleteRequest, {"prompt": "x"}),
]


@pytest.mark.parametrize(("name", "kind", "least"), CASES)
def test_the_fields_and_defaults_are_the_contracts(
    name: str, kind: type[msgspec.Struct], least: dict[str, Any]
) -> None:
    schema = contracts().get(name).request_schema["properties"]["input"]["properties"]
    made = msgspec.convert(least, kind)
    assert set(kind.__struct_fields__) == set(schema)
    for field, part in schema.items():
        if "default" in part:
            assert getattr(made, field) == part["default"]


def test_params_are_the_contracts() -> None:
    schema = contracts().get("llm.chat@2.0").request_schema["properties"]["params"]["properties"]
    assert set(ModelParams.__struct_fields__) == set(schema)


def test_the_requests_of_the_examples_can_be_read() -> None:
    for name, kind, _ in CASES:
        for example in contracts().get(name).examples:
            if "error" not in example:
                msgspec.convert(example["request"]["input"], kind)
