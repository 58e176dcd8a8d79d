"""What a model and a run say, as OpenAI's API says it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from hearthnet.core.errors import CODES, HearthNetError
from hearthnet.gateway.http.errors import error_body, param_of
from hearthnet.gateway.openai.answer import (
    Form,
    OpenAIAnswer,
    call_id_for,
    notice_of,
    run_and_call,
    run_named_in,
)

RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
FORM = Form("chatcmpl-1", 1, "m")
DONE = {"tokens_in": 3, "tokens_out": 4, "stop_reason": "end", "ms": 5}


def fed(answer: OpenAIAnswer, *frames: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [delta for event, data in frames for delta in answer.feed(event, data)]


def pending(**members: Any) -> dict[str, Any]:
    body = {"params": {}, "input": {"title": "Jam"}}
    return {"run": RUN, "tool_call_id": "call_1", "name": "market_post", "body": body, **members}


def wanted(call: str = "call_2") -> dict[str, Any]:
    return {"run": RUN, "tool_call_id": call, "name": "look", "arguments": {"at": "sky"}}


@pytest.mark.req("HTTP-15")
def test_text_and_thoughts_are_passed_on_as_they_come() -> None:
    answer = OpenAIAnswer(of_run=False)
    said = [("token", {"text": "Good "}), ("thinking", {"text": "hm"}), ("token", {"text": "day"})]
    deltas = fed(
        answer, *said, ("notice", {"code": "x"}), ("progress", {}), ("token", {"text": ""}), ("done", DONE)
    )
    assert deltas == [{"content": "Good "}, {"reasoning_content": "hm"}, {"content": "day"}]
    whole = FORM.whole(answer)
    ChatCompletion.model_validate(whole, strict=True)
    assert whole["choices"][0]["message"]["content"] == "Good day"
    assert whole["choices"][0]["message"]["reasoning_content"] == "hm"
    assert whole["choices"][0]["finish_reason"] == "stop"
    used = whole["usage"]
    assert (used["prompt_tokens"], used["completion_tokens"], used["total_tokens"]) == (3, 4, 7)
    for delta in deltas:
        ChatCompletionChunk.model_validate(FORM.chunk(delta), strict=True)
    ChatCompletionChunk.model_validate(FORM.last(answer), strict=True)
    ChatCompletionChunk.model_validate(FORM.usage(answer), strict=True)


@pytest.mark.req("HTTP-15")
@pytest.mark.parametrize(
    ("stopped", "finished"),
    [
        ("end", "stop"),
        ("stop_sequence", "stop"),
        ("cancelled", "stop"),
        ("max_tokens", "length"),
        ("tool_calls", "tool_calls"),
        ("refusal", "content_filter"),
    ],
)
def test_each_end_has_its_word(stopped: str, finished: str) -> None:
    answer = OpenAIAnswer(of_run=False)
    answer.feed("done", {**DONE, "stop_reason": stopped})
    assert answer.finish_reason == finished
    assert FORM.whole(answer)["choices"][0]["message"]["content"] == ""


@pytest.mark.req("HTTP-12")
def test_calls_of_the_clients_tools_go_out_whole_and_numbered() -> None:
    answer = OpenAIAnswer(of_run=False, texts=frozenset({"code"}))
    deltas = fed(
        answer,
        ("tool_call_delta", {"id": "c1", "arguments_delta": "{"}),
        ("tool_call", {"id": "c1", "name": "look", "arguments": {"at": "sky"}}),
        ("tool_call", {"id": "c2", "name": "code", "arguments": {"input": "1+1"}}),
        ("done", {**DONE, "stop_reason": "tool_calls"}),
    )
    assert [(call["index"], call["id"]) for delta in deltas for call in delta["tool_calls"]] == [
        (0, "c1"),
        (1, "c2"),
    ]
    assert json.loads(deltas[0]["tool_calls"][0]["function"]["arguments"]) == {"at": "sky"}
    assert deltas[1]["tool_calls"][0]["custom"] == {"name": "code", "input": "1+1"}
    whole = FORM.whole(answer)
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["choices"][0]["message"]["content"] is None
    ChatCompletion.model_validate(whole, strict=True)


@pytest.mark.req("HTTP-14")
def test_of_a_run_only_the_clients_own_calls_go_out_under_an_id_that_names_the_run() -> None:
    answer = OpenAIAnswer(of_run=True)
    deltas = fed(
        answer,
        ("iteration", {"iteration": 1}),
        ("token", {"text": "Let me look."}),
        ("tool_call", {"id": "call_1", "name": "search_corpus", "arguments": {}}),
        ("iteration", {"iteration": 2}),
        ("token", {"text": "And now?"}),
        ("tool_wanted", wanted()),
        ("suspended", {"run": RUN, "pending": [], "wanted": [wanted(), wanted("call_3")]}),
    )
    assert answer.text == "Let me look.\n\nAnd now?"
    ids = [delta["tool_calls"][0]["id"] for delta in deltas if "tool_calls" in delta]
    assert ids == [call_id_for(RUN, "call_2"), call_id_for(RUN, "call_3")]
    assert [run_and_call(name) for name in ids] == [(RUN, "call_2"), (RUN, "call_3")]
    assert answer.finish_reason == "tool_calls"
    assert FORM.last(answer)["hearthnet"]["run"] == RUN


@pytest.mark.req("HTTP-16")
def test_a_run_that_waits_for_a_person_says_so_in_words_that_name_it() -> None:
    answer = OpenAIAnswer(of_run=True)
    waits = {"run": RUN, "pending": [pending(problem="too long")], "wanted": []}
    deltas = fed(answer, ("token", {"text": "I will post it."}), ("suspended", waits))
    told = deltas[-1]["content"]
    assert told.startswith("\n\n")
    for words in (
        "approval",
        f"hearthnet runs approve {RUN} call_1",
        f"runs deny {RUN} call_1",
        "Jam",
        "too long",
    ):
        assert words in told
    assert run_named_in(answer.text) == RUN
    assert answer.finish_reason == "stop"
    assert FORM.whole(answer)["hearthnet"] == waits
    long = pending(body={"params": {}, "input": {"body": "x" * 5000}})
    assert len(notice_of({"run": RUN, "pending": [long], "wanted": []})) < 3000


@pytest.mark.req("HTTP-16")
def test_only_the_gateways_own_words_name_a_run() -> None:
    assert run_named_in(f"[hearthnet run {RUN}]\n ") == RUN
    for other in (
        f"[hearthnet run {RUN}] and more",
        "[hearthnet run ZZZ]",
        "",
        f"[hearthnet run {'U' * 26}]",
    ):
        assert run_named_in(other) == ""
    for other in ("call_1", f"run_{RUN}", f"run_{'U' * 26}_call_1", ""):
        assert run_and_call(other) is None


TYPES = {
    "bad_request": "invalid_request_error",
    "schema_mismatch": "invalid_request_error",
    "payload_too_large": "invalid_request_error",
    "invalid_signature": "invalid_request_error",
    "expired": "invalid_request_error",
    "not_federated": "invalid_request_error",
    "not_found": "not_found_error",
    "unauthorized": "permission_error",
    "revoked": "permission_error",
    "token_scope_insufficient": "permission_error",
    "token_invalid": "authentication_error",
    "token_expired": "authentication_error",
    "token_revoked": "authentication_error",
    "rate_limited": "rate_limit_error",
    "timeout": "service_unavailable_error",
    "partition": "service_unavailable_error",
    "capacity_exceeded": "service_unavailable_error",
    "internal_error": "server_error",
    "not_implemented": "server_error",
    "outcome_unknown": "server_error",
    "thread_missing": "server_error",
}


@pytest.mark.req("HTTP-17")
def test_every_error_has_openais_form() -> None:
    assert {code: error_body(HearthNetError(code, "x"))["error"]["type"] for code in CODES} == TYPES
    for code in CODES:
        error = HearthNetError(
            code, "why", retry_after_ms=1500, alt=["near"], details={"path": "/input/messages/0"}
        )
        told = error_body(error)["error"]
        assert (told["message"], told["code"], told["param"]) == ("why", code, "messages[0]")
        assert told["retry_after_ms"] == 1500
        assert told["alt_capabilities"] == ["near"]
    assert param_of(HearthNetError("bad_request", "x", details={"path": "/params/model"})) == "model"
    assert error_body(HearthNetError("timeout", "x"))["error"]["param"] is None
