"""What a call may do, over every combination of level, demand, token, scope, constraint and effect.

Specified in wire.md, "Tokens", and resolutions.md 61, 62, 66 and 67.

The expectation is written a second time, as the sentences of the design, and compared over the whole table.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hearthnet.errors import HearthNetError
from hearthnet.trust.authority import Authority, Demand, effective
from hearthnet.trust.keys import Identity
from hearthnet.trust.token import Claims, Scope
from hearthnet.types import Capability, parse_capability

NODE, MEMBER, EXECUTOR = (Identity(bytes([number]) * 32).node_id for number in (1, 2, 3))
QUERY = parse_capability("rag.query@1.3")
LEVELS = ["unknown", "member", "trusted", "anchor", "king"]
TRUSTS = ["unknown", "member", "trusted", "anchor", "self", "custom:moderator"]
SCOPES = {
    ("rag.query@1.0",): True,
    ("rag.query@1.3",): True,
    ("rag.query",): True,
    ("market.list", "rag.query@1.1"): True,
    ("rag.query@1.4",): False,
    ("rag.query@2.0",): False,
    ("rag.query@0.3",): False,
    ("rag.list_corpora@1.0",): False,
    ("rag.query_all",): False,
    (): False,
}
BODY = {"params": {"corpus": "system", "k": 1}, "input": {"query": "Kerzen", "deep": True, "corpus": "x"}}
CONSTRAINTS: list[tuple[dict[str, list[Any]], bool]] = [
    ({}, True),
    ({"corpus": ["system"]}, True),
    ({"corpus": ["personal", "system"], "input.query": ["Kerzen"]}, True),
    ({"k": [1.0]}, True),
    ({"input.deep": [True]}, True),
    ({"corpus": ["personal"]}, False),
    ({"corpus": []}, False),
    ({"corpus": ["personal"], "k": [1]}, False),
    ({"k": [True]}, False),
    ({"input.deep": [1]}, False),
    ({"k": ["1"]}, False),
    ({"model": ["smollm2"]}, False),
    ({"model": [None]}, False),
    ({"query": ["Kerzen"]}, False),
    ({"input.query": ["Brot"]}, False),
    ({"input.model": ["x"]}, False),
    ({"input.corpus": ["system"]}, False),
    ({"input.": ["x"]}, False),
    ({"": ["x"]}, False),
    ({"params.corpus": ["system"]}, False),
]


def claims(scope: Scope, issuer: str = MEMBER, holder: str = EXECUTOR) -> Claims:
    """What was proved of a token of `issuer` for `holder`."""
    return Claims(iss=issuer, sub=holder, aud=NODE, iat=0, nbf=0, exp=1, jti="", scope=scope)


def demand(trust: str, *, side_effects: bool = False) -> Demand:
    """What the node demands for `rag.query`."""
    return Demand(capability=QUERY, trust=trust, node=NODE, side_effects=side_effects)


def expected(level: str, trust: str, covered: bool | None, constrained: bool) -> str:
    """The code of the refusal, or none: trust comes first, and a token only narrows."""
    ladder = ["unknown", "member", "trusted", "anchor"]
    if trust not in ladder or (ladder.index(level) if level in ladder else 0) < ladder.index(trust):
        return "unauthorized"
    return "" if covered in (None, True) and constrained else "token_scope_insufficient"


def outcome(*arguments: Any) -> tuple[str, Authority | None]:
    """The code of the refusal, or the authority."""
    try:
        return "", effective(*arguments)
    except HearthNetError as error:
        return error.code, None


@pytest.mark.req("TRUST-6")
def test_every_combination_with_a_token() -> None:
    table = itertools.product(LEVELS, TRUSTS, SCOPES.items(), CONSTRAINTS, (False, True))
    for level, trust, (capabilities, covered), (constraints, fits), side_effects in table:
        held = claims(Scope(capabilities, constraints))
        code, authority = outcome(EXECUTOR, level, held, demand(trust, side_effects=side_effects), BODY)
        where = f"{level} {trust} {capabilities} {constraints}"
        assert code == expected(level, trust, covered, fits), where
        if authority is not None:
            assert authority == Authority(MEMBER, needs_approval=side_effects), where


@pytest.mark.req("TRUST-6")
def test_every_combination_without_a_token() -> None:
    for level, trust, side_effects in itertools.product(LEVELS, TRUSTS, (False, True)):
        code, authority = outcome(MEMBER, level, None, demand(trust, side_effects=side_effects), BODY)
        assert code == expected(level, trust, None, constrained=True)
        if authority is not None:
            assert authority == Authority(MEMBER, needs_approval=False)


@pytest.mark.req("TRUST-7")
def test_self_is_the_node_itself_with_or_without_its_own_token() -> None:
    for caller, issuer, level in itertools.product((NODE, MEMBER), (None, NODE, MEMBER), LEVELS):
        held = None if issuer is None else claims(Scope(("rag.query",)), issuer, caller)
        code, authority = outcome(caller, level, held, demand("self"), BODY)
        itself = caller == NODE and issuer in (None, NODE)
        assert code == ("" if itself else "unauthorized")
        assert authority == (Authority(NODE, needs_approval=False) if itself else None)


@pytest.mark.req("TRUST-6")
def test_whoever_acts_under_a_token_acts_for_its_issuer() -> None:
    held = claims(Scope(("rag.query",)))
    authority = effective(EXECUTOR, "member", held, demand("member", side_effects=True), BODY)
    assert authority == Authority(MEMBER, needs_approval=True)
    with pytest.raises(HearthNetError, match="takes level trusted; the caller's is member"):
        effective(EXECUTOR, "member", held, demand("trusted"), BODY)


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize(
    "body", [{}, {"params": None}, {"params": ["corpus"]}, {"params": "corpus", "input": 1}]
)
def test_a_constraint_on_a_body_of_another_shape_is_not_met(body: dict[str, Any]) -> None:
    for key in ("corpus", "input.corpus"):
        code, _ = outcome(
            EXECUTOR, "member", claims(Scope(("rag.query",), {key: ["x"]})), demand("member"), body
        )
        assert code == "token_scope_insufficient"


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize("value", [["a", {"b": 1}], {"b": [1.0], "a": None}, 1e16, "é", None, []], ids=ascii)
def test_values_are_compared_as_json(value: Any) -> None:
    held = claims(Scope(("rag.query",), {"x": [0, value]}))
    assert outcome(EXECUTOR, "member", held, demand("member"), {"params": {"x": value}})[0] == ""
    other = outcome(EXECUTOR, "member", held, demand("member"), {"params": {"x": [value]}})
    assert other[0] == "token_scope_insufficient"


@pytest.mark.req("TRUST-6")
def test_the_refusal_names_the_constraint() -> None:
    held = claims(Scope(("rag.query",), {"corpus": ["personal"]}))
    with pytest.raises(HearthNetError, match=r"allows corpus only as one of \['personal'\]") as caught:
        effective(EXECUTOR, "member", held, demand("member"), BODY)
    assert caught.value.details == {"path": "corpus"}


def test_the_table_is_about_the_version_that_is_offered() -> None:
    assert Capability("rag.query", 1, 3) == QUERY
