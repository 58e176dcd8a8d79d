"""How examples are prepared and judged."""

from __future__ import annotations

import pytest

from hearthnet.contracts.registry import contracts
from tests.helpers.contract_examples import missing_from_output, request_of


@pytest.mark.req("CONTRACT-2")
def test_what_is_known_only_later_is_put_into_the_request() -> None:
    contract = contracts().get("market.expire@1.0")
    example = contract.examples[0]
    request = request_of(example, {"posts": [{"event_id": "01JZZZZZZZZZZZZZZZZZZZZZAA"}]})
    assert request["input"]["event_id"] == "01JZZZZZZZZZZZZZZZZZZZZZAA"
    assert example["request"]["input"]["event_id"] != "01JZZZZZZZZZZZZZZZZZZZZZAA"
    contract.check_request(request)


@pytest.mark.req("CONTRACT-2")
def test_an_example_without_such_values_is_sent_as_it_stands() -> None:
    example = contracts().get("rag.query@1.0").examples[0]
    assert request_of(example, {}) == example["request"]


@pytest.mark.req("CONTRACT-2")
def test_an_answer_is_held_to_what_is_expected() -> None:
    expect = {"min_chunks": 2, "required": ["total"], "output": {"corpus": "system"}, "frames": ["done"]}
    assert (
        missing_from_output(expect, {"chunks": [1, 2], "total": 2, "corpus": "system"}, ["token", "done"])
        == []
    )
    assert missing_from_output(expect, {"chunks": [1], "corpus": "other"}) == [
        "no total in the output",
        "no frame done",
        "corpus is 'other', not 'system'",
        "fewer than 2 chunks",
    ]
    assert missing_from_output({"min_posts": 1}, {}) == ["fewer than 1 posts"]
