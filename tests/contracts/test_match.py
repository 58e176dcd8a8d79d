"""Which offers a request fits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.match import MatchRule, matcher
from hearthnet.contracts.match import fits as fits_once
from hearthnet.contracts.registry import contracts

OFFER = {"model": "small", "models": ["small", "tiny"], "ctx": 2048, "modalities": ["text"]}
CHAT = contracts().get("llm.chat@2.0")
QUERY = contracts().get("rag.query@1.0")


def chat(**params: object) -> dict[str, dict[str, object]]:
    return {"params": params, "input": {}}


def fits(match: dict[str, MatchRule], body: dict[str, Any], offer: dict[str, Any]) -> bool:
    """Whether the offer fits; the bus asks as prepared for many requests, which must say the same."""
    found = fits_once(match, body, offer)
    assert matcher(match, offer)(body) is found
    return found


def suits(contract: Contract, body: dict[str, Any], offer: dict[str, Any]) -> bool:
    """The same of a contract."""
    found = fits(contract.match, body, offer)
    assert contract.fits(body, offer) is contract.matcher(offer)(body) is found
    return found


@pytest.mark.req("CONTRACT-7")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, True),
        ({"model": "small"}, True),
        ({"model": "tiny"}, True),
        ({"model": "large"}, False),
        ({"ctx": 2048}, True),
        ({"ctx": 2049}, False),
        ({"modalities": ["text"]}, True),
        ({"modalities": []}, True),
        ({"modalities": ["text", "vision"]}, False),
        ({"model": "tiny", "ctx": 4096}, False),
    ],
)
def test_a_model_is_chosen_by_name_context_and_abilities(params: dict[str, object], expected: bool) -> None:
    assert suits(CHAT, chat(**params), OFFER) is expected


@pytest.mark.req("CONTRACT-7")
def test_an_offer_that_does_not_say_it_cannot_be_held_to_it() -> None:
    assert suits(CHAT, chat(), {})
    for wanted in ({"model": "small"}, {"ctx": 1}, {"modalities": ["text"]}):
        assert not suits(CHAT, chat(**wanted), {})
    assert not suits(CHAT, chat(ctx=1), {"ctx": "a lot"})


@pytest.mark.req("CONTRACT-7")
@given(st.text(), st.text())
def test_a_corpus_fits_the_offer_of_the_same_name_only(wanted: str, offered: str) -> None:
    body = {"params": {"corpus": wanted}, "input": {}}
    assert suits(QUERY, body, {"corpus": offered}) is (wanted == offered)
    assert suits(QUERY, body, {"corpus": wanted})


@pytest.mark.req("CONTRACT-7")
def test_a_field_of_the_input_can_decide_too() -> None:
    match = {"input.to": MatchRule(rule="in", offer="languages")}
    assert fits(match, {"params": {}, "input": {"to": "de"}}, {"languages": ["de", "en"]})
    assert not fits(match, {"params": {}, "input": {"to": "fr"}}, {"languages": ["de", "en"]})
    assert fits(match, {"params": {}}, {"languages": []})


@pytest.mark.req("CONTRACT-7")
@given(
    st.lists(st.sampled_from("abcd")),
    st.lists(st.sampled_from("abcd"), min_size=1),
    st.integers(),
    st.integers(),
)
def test_subset_and_at_most_are_what_they_are_called(
    wants: list[str], has: list[str], need: int, most: int
) -> None:
    subset = {"params.all": MatchRule(rule="subset", offer="has")}
    at_most = {"params.need": MatchRule(rule="at_most", offer="most")}
    assert fits(subset, {"params": {"all": wants}}, {"has": has}) is (set(wants) <= set(has))
    assert fits(at_most, {"params": {"need": need}}, {"most": most}) is (need <= most)


PAIR = {"input.to": MatchRule(rule="pair", offer="pairs", after="input.from", whatever="auto")}
PAIRS = {"pairs": [["en", "es"], ["es", "en"], ["es", "ca"], "broken", ["a", "b", "c"]]}


@pytest.mark.req("CONTRACT-7")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"from": "en", "to": "es"}, True),
        ({"from": "en", "to": "ca"}, False),
        ({"from": "auto", "to": "ca"}, True),
        ({"from": "auto", "to": "de"}, False),
        ({"to": "ca"}, True),
        ({"from": "es"}, True),
        ({"from": "de"}, False),
        ({}, True),
    ],
)
def test_two_fields_stand_together_in_an_offered_pair(asked: dict[str, str], expected: bool) -> None:
    body = {"params": {}, "input": asked}
    assert fits(PAIR, body, PAIRS) is expected
    assert not fits(PAIR, body, {})


@pytest.mark.req("BADINPUT-2")
@pytest.mark.parametrize(
    "body",
    [
        {"params": None},
        {"params": "all of it"},
        {"params": {"ctx": "many"}},
        {"params": {"ctx": {"most": 1}}},
        {"params": {"modalities": 7}},
        {"params": {"modalities": "text"}},
    ],
)
def test_what_no_rule_can_be_asked_about_is_left_to_the_schema(body: dict[str, Any]) -> None:
    assert suits(CHAT, body, {"model": "tiny", "ctx": 100, "modalities": ["vision"]})
