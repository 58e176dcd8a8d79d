"""What is offered near a pair that nobody offers."""

from __future__ import annotations

import pytest

from hearthnet.contracts.match import nearest, pairs_in

PAIRS = {("en", "es"), ("es", "en"), ("es", "ca"), ("fr", "ca")}


@pytest.mark.req("TRANS-3")
def test_what_is_no_pair_is_left_out() -> None:
    assert pairs_in([["en", "es"], ["en"], "en", [1, 2], None]) == {("en", "es")}


@pytest.mark.req("TRANS-3")
def test_both_ends_and_the_way_between_are_named() -> None:
    words, details = nearest("en", "ca", PAIRS)
    assert words == "from en into: es; into ca from: es, fr; in two steps by way of: es"
    assert details == {"from": ["es"], "to": ["es", "fr"], "through": ["es"]}


@pytest.mark.req("TRANS-3")
def test_where_nothing_is_near_that_is_said() -> None:
    words, details = nearest("qq", "xx", PAIRS)
    assert words == "from qq into: nothing; into xx from: nothing"
    assert details == {"from": [], "to": [], "through": []}


@pytest.mark.req("TRANS-3")
def test_from_a_language_into_itself_there_is_no_way_round() -> None:
    words, details = nearest("en", "en", PAIRS)
    assert words == "from en into: es; into en from: es"
    assert details["through"] == []


@pytest.mark.req("TRANS-3")
def test_from_anything_all_targets_are_named_but_not_more_than_a_line_holds() -> None:
    many = {("en", f"a{number:02d}") for number in range(20)}
    words, details = nearest(None, "xx", many)
    assert words.startswith("from any into: a00, a01,")
    assert "a11 and 8 more; into xx" in words
    assert details["through"] == []
    assert len(details["from"]) == 20
