"""What a server's failure means on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.models import error_mapping


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "bad_request"), (401, "unauthorized"), (403, "unauthorized"), (404, "not_found"),
     (408, "timeout"), (413, "bad_request"), (418, "internal_error"), (422, "bad_request"),
     (429, "rate_limited"), (500, "internal_error"), (503, "capacity_exceeded"),
     (504, "timeout"), (529, "capacity_exceeded")],
)  # fmt: skip
def test_each_status_has_a_code(status: int, code: str) -> None:
    failed = error_mapping.of_status(
        "m", status, {"retry-after": "1.5"}, b'{"error": {"message": "because"}}', "M_KEY"
    )
    assert failed.code == code
    assert "because" in failed.message
    assert ("M_KEY" in failed.message) == (code == "unauthorized")
    assert failed.retry_after_ms == (1500 if code in ("rate_limited", "capacity_exceeded") else None)


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    ("body", "said"),
    [(b"<html><h1>Bad Gateway</h1>", "an HTML page"), (b"", "nothing"), (b"plain", "plain"), (b"[]", "[]"),
     (b'{"detail": "no"}', "no"), (b'[{"error": {"message": "list"}}]', "list"),
     (b'{"error": "word"}', "word"), (b'{"message": "of Amazon"}', "of Amazon")],
)  # fmt: skip
def test_what_the_server_says_is_said_in_one_line(body: bytes, said: str) -> None:
    assert error_mapping.of_status("m", 500, {}, body, "").message.endswith(said)


NOW = "Sat, 21 Nov 2026 22:00:00 GMT"
DELAY = b'{"error":{"details":[{"@type":"RetryInfo","retryDelay":"12.5s"}]}}'


@pytest.mark.req("LLM-23")
@pytest.mark.parametrize(
    ("headers", "body", "wait"),
    [
        ({"retry-after-ms": "20"}, b"", 20),
        ({"retry-after": "2"}, DELAY, 2000),
        ({"retry-after": "0"}, b"", 0),
        ({"retry-after": "Sat, 21 Nov 2026 22:00:30 GMT", "date": NOW}, b"", 30_000),
        ({"retry-after": "Sat, 21 Nov 2026 21:00:00 GMT", "date": NOW}, b"", 1000),
        ({"retry-after": "Sat, 21 Nov 2026 22:00:30 GMT"}, b"", 1000),
        ({"x-ratelimit-reset-requests": "1m2.5s"}, b"", 62_500),
        ({"x-ratelimit-reset-requests": "250ms"}, b"", 250),
        ({"x-ratelimit-reset-requests": "soon"}, b"", 1000),
        ({}, DELAY, 12_500),
        ({"retry-after": "soon"}, b"", 1000),
    ],
)
def test_how_long_to_wait_is_taken_from_wherever_a_server_says_it(
    headers: dict[str, str], body: bytes, wait: int
) -> None:
    assert error_mapping.of_status("m", 429, headers, body, "").retry_after_ms == wait


@pytest.mark.req("LLM-11")
def test_a_key_that_is_not_named() -> None:
    assert "api_key_env" in error_mapping.of_status("m", 401, {}, b"", "").message


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": 429, "message": "slow"}, "rate_limited"),
        ({"code": "503", "message": "x"}, "capacity_exceeded"),
        ({"status_code": 400, "message": "x"}, "bad_request"),
        ({"type": "overloaded_error", "message": "x"}, "capacity_exceeded"),
        ({"type": "rate_limit_error"}, "rate_limited"),
        ({"type": "authentication_error"}, "unauthorized"),
        ({"type": "invalid_request_error"}, "bad_request"),
        ({"type": "ThrottlingException"}, "rate_limited"),
        ({"type": "insufficient_quota"}, "rate_limited"),
        ({"type": "ServiceUnavailableException"}, "capacity_exceeded"),
        ({"type": "ModelNotReadyException"}, "capacity_exceeded"),
        ({"type": "AccessDeniedException"}, "unauthorized"),
        ({"type": "UnrecognizedClientException"}, "unauthorized"),
        ({"type": "permission_error"}, "unauthorized"),
        ({"type": "not_found_error"}, "not_found"),
        ({"type": "ResourceNotFoundException"}, "not_found"),
        ({"type": "ModelTimeoutException"}, "timeout"),
        ({"type": "ValidationException"}, "bad_request"),
        ({"code": "context_length_exceeded", "message": "too long"}, "bad_request"),
        ({"code": 12, "message": "odd"}, "internal_error"),
        ("overloaded", "internal_error"),
        (["what"], "internal_error"),
    ],
)
def test_an_error_inside_an_answer_has_the_code_it_names(error: Any, code: str) -> None:
    failed = error_mapping.of_error_in_stream("mine", error)
    assert failed.code == code
    assert failed.message.startswith("mine: the server reported in mid-answer: ")
    assert (failed.retry_after_ms is not None) == (code in ("rate_limited", "capacity_exceeded"))


OVERLONG: Any = [
    (400, {"error": {"code": "context_length_exceeded", "message": "Please reduce the length."}}),
    (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, you requested 9000"
            }
        },
    ),
    (400, {"error": {"type": "exceed_context_size_error", "message": "request (5 tokens) is too large"}}),
    (400, {"error": {"message": "the request exceeds the available context size, try increasing it"}}),
    (500, {"error": {"code": 500, "message": "context size exceeded"}}),
    (
        400,
        {"object": "error", "message": "The decoder prompt (9) is longer than the maximum model length of 8"},
    ),
    (400, {"type": "error", "error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
    (400, {"error": {"message": "input length and `max_tokens` exceed context limit: 19 + 2 > 20"}}),
    (400, {"error": {"message": "Your input exceeds the context window of this model."}}),
    (
        400,
        {
            "error": {
                "message": "The input token count (12) exceeds the maximum number of tokens allowed (10)."
            }
        },
    ),
    (400, {"message": "Input is too long for requested model."}),
    (400, {"error": "the input length exceeds the context length"}),
    (400, {"error": "This model's maximum prompt length is 131072 but the request contains 150000 tokens."}),
    (400, {"message": "Prompt contains 4 tokens, too large for model with 3 maximum context length"}),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9"}),
    (
        400,
        {
            "error": "Trying to keep the first 9 tokens when context the overflows. However, the model is "
            "loaded with context length of only 8 tokens, which is not enough."
        },
    ),
]
OTHERWISE: Any = [
    (
        400,
        {
            "error": {
                "message": "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens"
            }
        },
    ),
    (
        400,
        {"error": {"message": "string too long. Expected a string with maximum length 64", "param": "user"}},
    ),
    (400, {"error": {"message": "Invalid schema for function 'context': exceeds 100 properties"}}),
    (429, {"error": {"message": "Request too large: too many tokens per minute"}}),
    (401, {"error": {"message": "your key may not use the maximum context length"}}),
]


@pytest.mark.req("LLM-79")
@pytest.mark.parametrize(("status", "page"), OVERLONG)
def test_overlong_context_is_known_by_the_vendors_words(status: int, page: Any) -> None:
    failed = error_mapping.of_status("mine", status, {}, json.dumps(page).encode(), "")
    assert (failed.code, failed.details["rule"]) == ("bad_request", "context_length")
    assert failed.details["status"] == status
    assert "shorten the messages" in failed.message
    if isinstance(page.get("error"), dict):
        assert error_mapping.of_error_in_stream("mine", page["error"]).details["rule"] == "context_length"


@pytest.mark.req("LLM-79")
@pytest.mark.parametrize(("status", "page"), OTHERWISE)
def test_other_refusals_are_no_overlong_context(status: int, page: Any) -> None:
    failed = error_mapping.of_status("mine", status, {}, json.dumps(page).encode(), "")
    assert "rule" not in failed.details


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    "failure", [error_mapping.unreachable, error_mapping.silent, error_mapping.broken_off]
)
def test_a_server_that_is_lost_is_named_without_its_password(
    failure: Callable[[str, str], HearthNetError],
) -> None:
    error = failure("mine", "http://me:secret@box.lan:8080/v1/chat/completions")
    assert "mine" in error.message
    assert "at box.lan:8080" in error.message
    rule = {"rule": "backend_gone"} if error.code == "partition" else {}
    assert error.details == {**rule, "model": "mine", "host": "box.lan:8080"}
    assert "secret" not in str(error.to_body())
