"""What a contract checks, fills in and says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts.registry import contracts
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError

QUERY = contracts().get("rag.query@1.0")
CHAT = contracts().get("llm.chat@2.0")
POST = contracts().get("market.post@1.0")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def refusal(check: Any, *values: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        check(*values)
    return caught.value


@pytest.mark.req("CONTRACT-4")
def test_a_refusal_names_capability_path_and_rule_in_one_line() -> None:
    error = refusal(
        QUERY.check_request, {"params": {"corpus": "system"}, "input": {"query": "water", "k": 21}}
    )
    assert error.code == "bad_request"
    assert error.message == "rag.query@1.0: /input/k: 21 is greater than the maximum of 20"
    assert error.details == {"path": "/input/k", "rule": "maximum"}


@pytest.mark.req("CONTRACT-4")
def test_a_refusal_says_how_much_else_is_wrong() -> None:
    for query, more in (("", "(and 2 more)"), ("water", "(and 1 more)")):
        error = refusal(QUERY.check_request, {"params": {"corpus": "A"}, "input": {"query": query, "k": 0}})
        assert error.message.endswith(more)


@pytest.mark.req("CONTRACT-4")
def test_a_refusal_of_the_whole_body_has_an_empty_path() -> None:
    error = refusal(QUERY.check_request, [])
    assert error.message == 'rag.query@1.0: [] is not of type "object"'
    assert error.details == {"path": "", "rule": "type"}


@pytest.mark.req("CONTRACT-4")
@given(json_values)
def test_whatever_comes_is_accepted_or_refused_in_one_line(value: Any) -> None:
    for body in (value, {"params": value, "input": value}, {"params": {}, "input": {"messages": value}}):
        error = refusal(CHAT.check_request, body)
        assert error.code == "bad_request"
        assert "\n" not in error.message
        assert len(error.message) < 400


@pytest.mark.req("CONTRACT-5")
def test_fields_the_contract_does_not_know_pass() -> None:
    body = {
        "params": {"corpus": "system", "later": 1},
        "input": {"query": "water", "later": [1]},
        "later": None,
    }
    QUERY.check_request(body)
    assert QUERY.with_defaults(body)["input"]["later"] == [1]


def test_replies_are_checked() -> None:
    meta = {"corpus": "system", "embedding_model": None, "ms": 3}
    QUERY.check_reply({"output": {"chunks": []}, "meta": meta})
    error = refusal(QUERY.check_reply, {"output": {"chunks": []}, "meta": {**meta, "ms": -1}})
    assert error.details == {"path": "/meta/ms", "rule": "minimum"}


def test_the_params_of_an_offer_are_checked() -> None:
    QUERY.check_offer({"corpus": "system", "k_max": 20})
    assert refusal(QUERY.check_offer, {"corpus": "system", "k_max": 99}).message.endswith(
        "/k_max: 99 is not 20"
    )


def test_frames_are_checked_by_event() -> None:
    CHAT.check_frame("token", {"text": "Boil"})
    CHAT.check_frame("tool_call", {"id": "call_1", "name": "search_corpus", "arguments": {"query": "rain"}})
    CHAT.check_frame("done", {"tokens_out": 4, "stop_reason": "tool_calls", "ms": 12, "later": True})
    assert refusal(CHAT.check_frame, "token", {}).details == {"path": "", "rule": "required"}
    assert refusal(CHAT.check_frame, "done", {"tokens_out": 1, "stop_reason": "bored", "ms": 1}).message == (
        'llm.chat@2.0: /stop_reason: "bored" is not one of '
        '"end", "max_tokens", "stop_sequence", "cancelled", "tool_calls", "refusal"'
    )


@pytest.mark.req("CONTRACT-5")
def test_an_unknown_frame_is_refused_to_the_sender_and_can_be_told_by_the_receiver() -> None:
    assert refusal(CHAT.check_frame, "later", {}).details == {"path": "/event", "rule": "enum"}
    assert CHAT.has_event("notice")
    assert not CHAT.has_event("later")
    assert not QUERY.has_event("token")
    assert refusal(QUERY.check_frame, "token", {"text": ""}).code == "bad_request"


@pytest.mark.req("CONTRACT-6")
def test_absent_fields_get_their_defaults_and_present_ones_stay() -> None:
    body = {"params": {"corpus": "system"}, "input": {"query": "water", "k": 3}}
    filled = QUERY.with_defaults(body)
    assert filled == {
        "params": {"corpus": "system"},
        "input": {"query": "water", "k": 3, "include_text": True},
    }
    assert body == {"params": {"corpus": "system"}, "input": {"query": "water", "k": 3}}


@pytest.mark.req("CONTRACT-6")
def test_an_optional_object_that_is_absent_stays_so() -> None:
    filled = POST.with_defaults({"params": {}, "input": {"title": "Eggs"}})
    assert filled["input"] == {"title": "Eggs", "ttl_seconds": 604800}


@pytest.mark.req("CONTRACT-6")
@given(st.integers(1, 20) | st.none(), st.booleans() | st.none(), st.text(min_size=1, max_size=20))
def test_defaults_are_valid_complete_and_stable(k: int | None, text: bool | None, query: str) -> None:
    given_fields = (
        {"query": query} | ({} if k is None else {"k": k}) | ({} if text is None else {"include_text": text})
    )
    body = {"params": {"corpus": "system"}, "input": given_fields}
    QUERY.check_request(body)
    filled = QUERY.with_defaults(body)
    QUERY.check_request(filled)
    assert filled["input"].items() >= given_fields.items()
    assert filled["input"].keys() == {"query", "k", "include_text"}
    assert QUERY.with_defaults(filled) == filled


def test_defaults_hold_for_objects_inside_objects_and_are_never_shared() -> None:
    from hearthnet.contracts.contract import _Defaults

    inner = {"type": "object", "properties": {"list": {"default": []}}}
    plan = _Defaults.of({"properties": {"inner": inner, "empty": {"properties": {}}}})
    first, second = plan.fill({"inner": {}, "empty": {}}), plan.fill({"inner": {}})
    first["inner"]["list"].append(1)
    assert second == {"inner": {"list": []}}
    assert plan.fill({"inner": None}) == {"inner": None}


@pytest.mark.req("CONTRACT-3")
def test_the_hash_covers_name_version_and_the_three_schemas_as_expanded() -> None:
    assert QUERY.schema_hash == digest(
        {
            "name": "rag.query",
            "version": "1.0",
            "request_schema": QUERY.request_schema,
            "response_schema": QUERY.response_schema,
            "stream_schema": None,
        }
    )


def test_a_contract_says_its_version_and_what_it_does() -> None:
    assert (CHAT.id, CHAT.major, CHAT.minor, str(CHAT.capability)) == ("llm.chat@2.0", 2, 0, "llm.chat@2.0")
    assert (POST.side_effects, POST.idempotent, POST.effect_scope, POST.approval) == (
        True,
        "client_id",
        "node",
        "any",
    )
    assert (QUERY.side_effects, QUERY.effect_scope, QUERY.approval) == (False, None, None)
