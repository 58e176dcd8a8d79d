"""The one family of errors.

See: docs/protocol/errors.md#codes, docs/protocol/errors.md#mapping-to-exit-codes.
"""

from __future__ import annotations

import pytest

from hearthnet.core.errors import CODES, LONGEST_MESSAGE, MINE, PEER, WORLD, HearthNetError, exit_code


@pytest.mark.req("WIRE-12")
def test_every_code_is_somebodys_fault_and_only_one_persons() -> None:
    assert len(MINE) + len(PEER) + len(WORLD) == len(CODES)


@pytest.mark.req("WIRE-12")
def test_every_code_has_an_exit_code_a_script_may_rely_on() -> None:
    assert {exit_code(code) for code in CODES} == {1, 2, 4, 5, 6, 8}
    expected = {
        "bad_request": 2,
        "unauthorized": 4,
        "not_found": 5,
        "timeout": 6,
        "partition": 6,
        "rate_limited": 8,
    }
    assert {code: exit_code(code) for code in expected} == expected
    assert exit_code("internal_error") == 1


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
    assert error.code == "internal_error"
    assert "'oops'" in error.message
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
    assert len(long) < LONGEST_MESSAGE + 10
    assert long.startswith("begin ")
    assert long.endswith(" end")
    assert HearthNetError("bad_request", "Grüße, 漢字").to_body()["message"] == "Grüße, 漢字"
