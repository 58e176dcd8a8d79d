"""What a call may do, over every combination of caller, issuer, token, demand, scope, constraint and effect.

See: docs/protocol/tokens.md#effective-authority, docs/protocol/approvals.md#verification.

The expectation is written a second time, in sentences, and compared over the whole table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from hearthnet.core.capability_name import Capability, parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.authority import (
    Authority,
    CallerStatus,
    CallRequirement,
    PresentedToken,
    authorize,
    foreseen_refusal,
    owner_of,
)
from hearthnet.trust.authorization.token import Claims, Confirmation, Scope
from hearthnet.trust.keys import Identity
from tests.trust.people import PAGE, PAPER, added, settled
from tests.trust.town import MAX, NORA, SAM, town, with_events

NODE, CALLER, ISSUER, GUEST = (Identity(bytes([number]) * 32).node_id for number in (1, 2, 3, 4))
QUERY = Capability("rag.query", 1, 3)
"""What is offered; in `SCOPES` an older minor covers it, a newer one does not."""
BODY = {"params": {"corpus": "system", "k": 1}, "input": {"query": "Kerzen", "deep": True, "corpus": "x"}}

LADDER = ["unknown", "invited", "member", "trusted", "anchor"]
"""From below; `self` is the node that is called, here a plain member."""
WHO = [*LADDER, "self"]
KINDS = ["grant", "run", "session", "session with a key"]
TRUSTS = [*LADDER, "self", "home", "custom:moderator"]
SCOPES = {
    "fits": ("market.list", "rag.query@1.1"),
    "other name": ("rag.query_all", "rag.list_corpora@1.0"),
    "other minor": ("rag.query@1.4",),
    "other major": ("rag.query@2.0", "rag.query@0.3"),
}
CONSTRAINTS: dict[str, dict[str, list[Any]]] = {
    "none": {},
    "right": {"corpus": ["personal", "system"], "input.query": ["Kerzen"]},
    "wrong": {"k": [1], "corpus": ["personal"]},
    "absent": {"model": ["smollm2"]},
    "wrong input": {"input.query": ["Brot"]},
}
THE_CALLER = "the caller"
EFFECTS = ["none", "effect", "effect for own keys"]


class Case(NamedTuple):
    """One row of the table, in words. The issuer's is empty where there is no token."""

    caller: str
    caller_revoked: bool
    kind: str
    issuer: str
    issuer_revoked: bool
    scope: str
    constraint: str
    trust: str
    effect: str


def cases() -> Iterator[Case]:
    """Every combination, with and without a token."""
    callers = list(itertools.product(WHO, (False, True)))
    demands = list(itertools.product(TRUSTS, EFFECTS))
    issuers = [*callers, (THE_CALLER, False)]
    for (caller, revoked), (trust, effect) in itertools.product(callers, demands):
        yield Case(caller, revoked, "", "", False, "fits", "none", trust, effect)
        for kind, (issuer, gone), scope, constraint in itertools.product(KINDS, issuers, SCOPES, CONSTRAINTS):
            yield Case(caller, revoked, kind, issuer, gone, scope, constraint, trust, effect)


def allowed(level: str, trust: str) -> bool:
    """Whether a level reaches what is demanded; the node itself is a plain member here."""
    level = "member" if level == "self" else level
    return trust in LADDER and LADDER.index(level) >= LADDER.index(trust)


def refusal(case: Case) -> str:
    """The code that the rules give, or none. One rule a sentence, in the order in which they decide."""
    issuer = case.caller if case.issuer in ("", THE_CALLER) else case.issuer
    session = case.kind.startswith("session")
    # Who was revoked has no rights, and gives none.
    if case.caller_revoked or case.issuer_revoked:
        return "revoked"
    # What is the node's own is only for the node, in its own name.
    if case.trust == "self" and (case.caller, issuer, session) != ("self", "self", False):
        return "unauthorized"
    # What is for the home alone is for the node, and for clients under its own tokens.
    if case.trust == "home" and (case.caller, issuer) != ("self", "self"):
        return "unauthorized"
    # A call may do what its issuer may do; a token adds nothing to that ...
    if case.trust not in ("self", "home") and not allowed(issuer, case.trust):
        return "unauthorized"
    # ... and is between members, however little is asked for.
    if case.kind and not (allowed(issuer, "member") and allowed(case.caller, "member")):
        return "unauthorized"
    # A token covers the capabilities it names, in these versions, with these values.
    if case.kind and (case.scope != "fits" or case.constraint not in ("none", "right")):
        return "token_scope_insufficient"
    # Where a person's own key is asked for, a gateway cannot say yes.
    if case.kind == "session" and case.effect == "effect for own keys":
        return "unauthorized"
    return ""


def authority(case: Case, issuer: str, caller: str) -> Authority:
    """On whose behalf, and whose yes it takes."""
    effect = case.effect != "none"
    return {
        "": Authority(caller, needs_approval=False, approver=caller, via=""),
        "grant": Authority(issuer, needs_approval=effect, approver=issuer, via=""),
        "run": Authority(issuer, needs_approval=effect, approver=issuer, via=""),
        "session": Authority(f"{issuer}/eva", needs_approval=effect, approver=caller, via="gateway"),
        "session with a key": Authority(f"{issuer}/eva", needs_approval=effect, approver=GUEST, via=""),
    }[case.kind]


def standing(who: str, node: str, *, revoked: bool = False) -> CallerStatus:
    """A node of this level."""
    return CallerStatus(NODE, "member", revoked) if who == "self" else CallerStatus(node, who, revoked)


def claims(kind: str, issuer: str, holder: str, scope: Scope) -> Claims:
    """What was proved of a token of `issuer` for `holder`."""
    more: dict[str, dict[str, Any]] = {
        "grant": {},
        "run": {"run": "r"},
        "session": {"principal": "eva"},
        "session with a key": {"principal": "eva", "cnf": Confirmation.of(GUEST)},
    }
    return Claims(iss=issuer, sub=holder, aud=NODE, iat=0, nbf=0, exp=1, jti="", scope=scope, **more[kind])


def demand(trust: str, effect: str = "none", capability: Capability = QUERY) -> CallRequirement:
    """What the node demands for `rag.query`."""
    return CallRequirement(
        capability=capability,
        trust=trust,
        node=NODE,
        side_effects=effect != "none",
        own_key=effect == "effect for own keys",
    )


def outcome(*arguments: Any) -> tuple[str, Authority | None]:
    """The code of the refusal, or the authority."""
    try:
        return "", authorize(*arguments)
    except HearthNetError as error:
        return error.code, None


@pytest.mark.req("TRUST-6", "TRUST-7")
def test_every_combination() -> None:
    scopes = {
        (scope, constraint): Scope(SCOPES[scope], CONSTRAINTS[constraint])
        for scope, constraint in itertools.product(SCOPES, CONSTRAINTS)
    }
    seen = 0
    for case in cases():
        caller = standing(case.caller, CALLER, revoked=case.caller_revoked)
        token, issuer = None, caller
        if case.kind:
            if case.issuer != THE_CALLER:
                issuer = standing(case.issuer, ISSUER, revoked=case.issuer_revoked)
            scope = scopes[case.scope, case.constraint]
            token = PresentedToken(claims(case.kind, issuer.node, caller.node, scope), issuer)
        code, found = outcome(caller, token, demand(case.trust, case.effect), BODY)
        assert code == refusal(case), case
        assert found == (None if code else authority(case, issuer.node, caller.node)), case
        seen += 1
    assert seen == len(WHO) * 2 * len(TRUSTS) * len(EFFECTS) * (1 + len(KINDS) * 13 * len(SCOPES) * 5)


@pytest.mark.req("PERSON-60", "ATTACK-68")
@pytest.mark.parametrize("trust", ["home/eva", "home/adam", "away/eva"])
@pytest.mark.parametrize("kind", ["", "run", "session with a key"])
def test_an_offer_to_one_person_is_for_nobody_else(trust: str, kind: str) -> None:
    itself = CallerStatus(NODE, "anchor")
    held = claims(kind, NODE, NODE, Scope(("rag.query",))) if kind else None
    token = None if held is None else PresentedToken(held, itself)
    code, _ = outcome(itself, token, demand(trust), BODY)
    assert code == ("" if (trust, kind) == ("home/eva", "session with a key") else "unauthorized")


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_level_that_is_not_known_is_none(trust: str) -> None:
    code, _ = outcome(CallerStatus(CALLER, "king"), None, demand(trust), BODY)
    assert code == ("" if trust == "unknown" else "unauthorized")


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trust", ["member", "self"])
def test_no_token_covers_the_issue_of_tokens(kind: str, trust: str) -> None:
    issue = parse_capability("auth.token.issue@1.0")
    itself = CallerStatus(NODE, "anchor")
    held = claims(kind, NODE, NODE, Scope(("auth.token.issue@1.0", "auth.token.issue")))
    # A session is refused one step earlier what is for its own node alone.
    earlier = trust == "self" and kind.startswith("session")
    said = "serves only its own node" if earlier else "is not called under a token; use your own key"
    with pytest.raises(HearthNetError, match=f"auth.token.issue@1.0 {said}") as caught:
        authorize(itself, PresentedToken(held, itself), demand(trust, "effect", issue), BODY)
    assert caught.value.code == "unauthorized"
    assert outcome(itself, None, demand(trust, "effect", issue), BODY)[0] == ""


@pytest.mark.req("TRUST-6")
def test_a_token_is_between_members_or_of_the_serving_node_itself() -> None:
    itself, stranger = CallerStatus(NODE, "unknown"), CallerStatus(CALLER, "unknown")
    scope = Scope(("rag.query",))
    held = claims("grant", NODE, NODE, scope)
    assert outcome(itself, PresentedToken(held, itself), demand("unknown"), BODY)[0] == ""
    for caller, issuer, who in ((stranger, itself, "holder"), (itself, stranger, "issuer")):
        held = claims("grant", issuer.node, caller.node, scope)
        with pytest.raises(HearthNetError, match=f"the token's {who} is no member") as caught:
            authorize(caller, PresentedToken(held, issuer), demand("unknown"), BODY)
        assert caught.value.code == "unauthorized"


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        ("rag.query", True),
        ("rag.query@1.0", True),
        ("rag.query@1.3", True),
        ("rag.query@1.4", False),
        ("rag.query@2.0", False),
        ("rag.query@0.3", False),
        ("rag.list_corpora@1.0", False),
        ("rag.query_all", False),
    ],
)
def test_a_token_names_capabilities_by_the_version_rule(entry: str, covered: bool) -> None:
    member = CallerStatus(CALLER, "member")
    token = PresentedToken(claims("grant", CALLER, CALLER, Scope((entry,))), member)
    code, _ = outcome(member, token, demand("member"), BODY)
    assert code == ("" if covered else "token_scope_insufficient")


@pytest.mark.req("TRUST-6")
def test_the_refusal_names_the_constraint() -> None:
    member = CallerStatus(CALLER, "member")
    held = claims("grant", CALLER, CALLER, Scope(("rag.query",), {"corpus": ["personal"]}))
    with pytest.raises(HearthNetError, match=r"allows corpus only as one of \['personal'\]") as caught:
        authorize(member, PresentedToken(held, member), demand("member"), BODY)
    assert caught.value.details == {"path": "corpus"}
    with pytest.raises(HearthNetError, match="takes level trusted; the caller's is member"):
        authorize(member, None, demand("trusted"), BODY)


def wrapping(capability: str, body: Any, times: int = 1) -> dict[str, Any]:
    """The body of a call that makes that one, which may make another."""
    for _ in range(times):
        body = {"params": {}, "input": {"target_capability": capability, "target_body": body}}
        capability = "llm.tools.call@1.0"
    return dict(body)


WRAPPER = demand("member", capability=parse_capability("llm.tools.call@1.0"))


def under(scope: Scope, body: dict[str, Any]) -> str:
    """The code with which a wrapped call under a run token is refused."""
    member = CallerStatus(CALLER, "member")
    return outcome(member, PresentedToken(claims("run", CALLER, CALLER, scope), member), WRAPPER, body)[0]


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize("times", [1, 2, 6])
def test_what_makes_another_call_is_covered_where_both_are(times: int) -> None:
    both, body = ("llm.tools.call", "rag.query"), wrapping("rag.query@1.3", BODY, times)
    assert under(Scope(both, CONSTRAINTS["right"]), body) == ""
    short = "token_scope_insufficient"
    assert under(Scope(both, CONSTRAINTS["wrong"]), body) == short
    assert under(Scope(("llm.tools.call",)), body) == short
    assert under(Scope(("rag.query",)), body) == short
    issuing = Scope(("llm.tools.call", "auth.token.issue"))
    assert under(issuing, wrapping("auth.token.issue@1.0", BODY, times)) == short


@pytest.mark.req("TRUST-6")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": []},
        {"input": {"target_body": {}}},
        {"input": {"target_capability": "rag.query@1.0"}},
        {"input": {"target_capability": 7, "target_body": {}}},
        {"input": {"target_capability": "rag", "target_body": {}}},
        wrapping("rag.query@1.3", BODY, 7),
    ],
)
def test_what_makes_no_call_that_can_be_judged_is_refused(body: dict[str, Any]) -> None:
    assert under(Scope(("llm.tools.call", "rag.query")), body) == "bad_request"


def foreseen(trust: str, held: Claims | None = None, level: str = "member", effect: str = "none") -> str:
    """Why a call of the caller, under `held` if that is given, would be refused."""
    principal = CALLER if held is None else held.on_behalf_of
    return foreseen_refusal(demand(trust, effect), held, caller=CALLER, principal=principal, level=level)


@pytest.mark.req("MESH-2", "TRUST-6")
@pytest.mark.parametrize("level", LADDER)
@pytest.mark.parametrize("trust", ["self", "home", *LADDER])
def test_a_refusal_is_foreseen_as_the_call_would_get_it(level: str, trust: str) -> None:
    for kind in ("", *KINDS):
        for scope in SCOPES.values():
            caller, issuer = CallerStatus(CALLER, "member"), CallerStatus(ISSUER, level)
            held = claims(kind, ISSUER, CALLER, Scope(scope)) if kind else None
            token = None if held is None else PresentedToken(held, issuer)
            said = ""
            try:
                authorize(CallerStatus(CALLER, level) if held is None else caller, token, demand(trust), BODY)
            except HearthNetError as error:
                said = error.message
            assert foreseen(trust, held, level) == said


@pytest.mark.req("MESH-2")
def test_constraints_on_params_refuse_nothing_beforehand() -> None:
    assert (
        foreseen("member", claims("grant", ISSUER, CALLER, Scope(("rag.query",), CONSTRAINTS["wrong"]))) == ""
    )
    held = claims("session", ISSUER, CALLER, Scope(("rag.query",), CONSTRAINTS["wrong"]))
    assert foreseen("member", held, effect="effect") == ""
    assert "a person's own key" in foreseen("member", held, effect="effect for own keys")


@pytest.mark.req("MESH-2")
def test_a_rule_that_is_not_known_is_named_beforehand() -> None:
    assert foreseen("custom:moderator") == (
        "rag.query@1.3 has a rule of its own, custom:moderator: what decides is what the call says"
    )


@pytest.mark.req("PERSON-21")
def test_a_page_is_its_persons_at_the_word_of_a_device_of_that_person() -> None:
    held = settled(town(), MAX, NORA)
    held, person = with_events(held, added(held, MAX, PAGE)), PAPER.node_id
    key = Confirmation.of(PAGE.node_id)
    assert owner_of(held, NORA.node_id, None) == person
    for issuer, cnf, approver, owner in (
        (MAX, key, "", person),
        (SAM, key, "", f"{SAM.node_id}/eva"),
        (SAM, key, PAGE.node_id, person),
        (SAM, key, NORA.node_id, person),
        (SAM, key, SAM.node_id, f"{SAM.node_id}/eva"),
        (MAX, Confirmation.of(GUEST), MAX.node_id, f"{MAX.node_id}/eva"),
        (MAX, None, PAGE.node_id, f"{MAX.node_id}/eva"),
    ):
        bare = claims("session", issuer.node_id, issuer.node_id, Scope(("rag.query",)))
        said = msgspec.structs.replace(bare, cnf=cnf)
        assert owner_of(held, said.on_behalf_of, said, approver) == owner
