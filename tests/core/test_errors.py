"""The one family of errors.

See: docs/protocol/errors.md#codes, docs/protocol/errors.md#mapping-to-exit-codes.
"""

from __future__ import annotations

import pytest

from hearthnet.core.errors import CODES, MINE, PEER, WORLD, HearthNetError, exit_code


@pytest.mark.req("WIRE-12")
def test_every_code_is_somebodys_fault_and_only_one_persons() -> None:
    assert len(MINE) + len(PEER) + len(WORLD) == len(CODES)


@pytest.mark.req("WIRE-12")
def test_every_code_has_an_exit_code_a_script_may_rely_on() -> None:
    refused = "unauthorized invalid_signature revoked expired token_invalid token_expired "
    refused += "token_scope_insufficient token_revoked not_federated"
    expected = {
        1: "internal_error not_implemented outcome_unknown payload_too_large",
        2: "bad_request",
        4: refused,
        5: "not_found schema_mismatch thread_missing",
        6: "timeout partition",
        8: "capacity_exceeded rate_limited",
    }
    assert {code: exit_code(code) for code in CODES} == {
        code: number for number, codes in expected.items() for code in codes.split()
    }


@pytest.mark.req("WIRE-12")
def test_an_error_crosses_the_wire_whole() -> None:
    error = HearthNetError(
        "capacity_exceeded", "busy", details={"limit": 4}, retry_after_ms=250, alt=["rag.query@1.0"]
    )
    back = HearthNetError.from_body(error.to_body())
    assert back.to_body() == error.to_body()
    assert (back.code, back.message, back.details) == ("capacity_exceeded", "busy", {"limit": 4})
    assert (back.retry_after_ms, back.alt, back.exit_status) == (250, ["rag.query@1.0"], 8)


def test_what_is_absent_is_not_written() -> None:
    assert HearthNetError("timeout", "late").to_body() == {"error": "timeout", "message": "late"}


def test_a_code_outside_the_set_cannot_be_raised() -> None:
    with pytest.raises(ValueError, match="'oops' is not a wire code"):
        HearthNetError("oops", "x")


def test_a_foreign_body_becomes_an_internal_error_that_names_what_it_was() -> None:
    error = HearthNetError.from_body(
        {"error": "oops", "details": 3, "alt_capabilities": "no", "retry_after_ms": "1"}
    )
    assert (error.code, error.message) == ("internal_error", "no message (unknown code 'oops')")
    assert (error.details, error.alt, error.retry_after_ms) == ({}, [], None)


@pytest.mark.req("WIRE-12")
@pytest.mark.parametrize("code", ["relay_unreachable", "e2e_decrypt_failed", "dht_lookup_failed"])
def test_from_body_reserved_code_is_an_internal_error(code: str) -> None:
    assert code not in CODES
    error = HearthNetError.from_body({"error": code, "message": "no way there"})
    assert (error.code, error.message) == ("internal_error", f"no way there (unknown code {code!r})")


@pytest.mark.req("WIRE-12")
@pytest.mark.parametrize("wait", [True, -1, 1.5, "1", None, [1]], ids=str)
def test_a_wait_that_is_no_number_of_milliseconds_is_left_out(wait: object) -> None:
    assert HearthNetError.from_body({"error": "timeout", "retry_after_ms": wait}).retry_after_ms is None
    assert HearthNetError.from_body({"error": "timeout", "retry_after_ms": 0}).retry_after_ms == 0


def test_a_shells_own_exit_code_stands_above_the_codes() -> None:
    assert HearthNetError("partition", "the node is not running", exit_status=3).exit_status == 3


@pytest.mark.req("BADINPUT-4")
def test_a_message_is_one_line_on_the_wire_whatever_it_quotes() -> None:
    said = HearthNetError("bad_request", "no\x1b[2J\nsuch \u202e\ud800 thing").to_body()["message"]
    assert said == "no\\x1b[2J\\nsuch \\u202e\\ud800 thing"
    long = HearthNetError("bad_request", "begin " + "x" * 1_000_000 + " end").to_body()["message"]
    assert long == "begin " + "x" * 994 + " ... " + "x" * 996 + " end"
    assert HearthNetError("bad_request", "Grüße, 漢字").to_body()["message"] == "Grüße, 漢字"
