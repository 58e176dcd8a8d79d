"""What a call may do: one pure function, asked by the service library and by nobody else.

    effective(caller, token, demand, body) -> Authority, or the reason against it

Effective authority = what the issuer may do AND what the token says AND what the capability demands.
Without a token the caller is its own issuer. A token never adds trust, and nobody issues tokens under one.

See: docs/protocol/tokens.md#effective-authority.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.trust.approval import Via
from hearthnet.trust.roster import RANK
from hearthnet.trust.token import Claims
from hearthnet.types import Capability, parse_capability

SELF: Final = "self"
UNDELEGABLE: Final = frozenset({"auth.token.issue"})
"""What no token covers, whatever it says: who holds a token cannot pass it on.

See: docs/protocol/tokens.md#effective-authority.
"""


WRAPPER: Final = "llm.tools.call"
"""Makes the call that its body names: both must be covered, and constraints are about that body."""
MOST_WRAPPED: Final = 6


class Standing(msgspec.Struct, frozen=True):
    """A node and what the roster says of it now: its level, and whether it was revoked."""

    node: str
    level: str
    revoked: bool = False


class Token(msgspec.Struct, frozen=True):
    """The claims of a token that was proved and is in its life, and how its issuer stands."""

    claims: Claims
    issuer: Standing


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What is called: the offered capability, the trust it takes (a level or `self`), its node.

    `own_key`: where it takes an approval, one that a gateway gave in somebody's name is not enough.
    """

    capability: Capability
    trust: str
    node: str
    side_effects: bool
    own_key: bool = False


class Authority(msgspec.Struct, frozen=True, gc=False):
    """The outcome: on whose behalf the call acts, and whether and by whose key it must be approved.

    `principal` is a node id, and for a session the issuer's id, a slash and the guest's name there.
    """

    principal: str
    needs_approval: bool
    approver: str
    via: Via


def effective(caller: Standing, token: Token | None, demand: Demand, body: dict[str, Any]) -> Authority:
    """The authority of a call with `body` by `caller`, under `token` if there is one.

    Raises, in this order: `revoked` for a revoked caller or issuer, `unauthorized` where a level is too low
    or the capability is for its own node, `token_scope_insufficient` where the token does not cover the call,
    and `unauthorized` where only a person's own key could approve and there is none.
    """
    issuer = caller if token is None else token.issuer
    refuse_revoked(caller, "you were")
    refuse_revoked(issuer, "the token's issuer was")
    principal = caller.node if token is None else _principal(token.claims)
    _check_trust(caller, issuer, principal, demand)
    if token is None:
        return Authority(principal, needs_approval=False, approver=caller.node, via="")
    _check_members(caller, issuer, demand)
    _check_scope(token.claims, demand.capability, body)
    approver, via = _approver(token.claims)
    if demand.side_effects and demand.own_key and via:
        raise HearthNetError(
            "unauthorized",
            f"{demand.capability} takes the approval of a person's own key; this session has none",
            details={"rule": "own_key"},
        )
    return Authority(principal, demand.side_effects, approver, via)


def _principal(claims: Claims) -> str:
    """Whose the call is: named by the issuer, so that no two issuers can mean the same guest."""
    return f"{claims.iss}/{claims.principal}" if claims.principal else claims.iss


def _approver(claims: Claims) -> tuple[str, Via]:
    """The key whose yes counts: the guest's own, the guest's gateway's, or the issuer's."""
    if claims.kind != "session":
        return claims.iss, ""
    return (claims.sub, "gateway") if claims.cnf is None else (claims.cnf.key, "")


def refuse_revoked(standing: Standing, who: str) -> None:
    """Raises `revoked` where the node was; the message begins with `who`."""
    if standing.revoked:
        raise HearthNetError("revoked", f"{who} revoked from the community")


def _check_trust(caller: Standing, issuer: Standing, principal: str, demand: Demand) -> None:
    if demand.trust == SELF:
        # All three: a token cannot carry what is the node's own to another caller, nor
        # can another member's token, or a guest's, reach it through the node.
        if not caller.node == principal == demand.node:
            raise HearthNetError("unauthorized", f"{demand.capability} serves only its own node")
    elif demand.trust not in RANK:
        raise HearthNetError("unauthorized", f"{demand.capability} takes {demand.trust}, a rule unknown here")
    elif RANK.get(issuer.level, 0) < RANK[demand.trust]:
        raise HearthNetError(
            "unauthorized", f"{demand.capability} takes level {demand.trust}; the caller's is {issuer.level}"
        )


def _check_members(caller: Standing, issuer: Standing, demand: Demand) -> None:
    """A token is between members, however little is asked for; a node is its own."""
    for who, standing in (("issuer", issuer), ("holder", caller)):
        if standing.node != demand.node and RANK.get(standing.level, 0) < RANK["member"]:
            raise HearthNetError("unauthorized", f"the token's {who} is no member of this community")


def _check_scope(claims: Claims, capability: Capability, body: dict[str, Any]) -> None:
    if capability.name in UNDELEGABLE:
        raise HearthNetError("unauthorized", f"{capability} is not called under a token; use your own key")
    if not claims.scope.covers(capability):
        raise HearthNetError("token_scope_insufficient", f"the token does not cover {capability}")
    if capability.name == WRAPPER:
        _check_wrapped(claims, body)
    else:
        _check_constraints(claims, body)


def _check_wrapped(claims: Claims, body: dict[str, Any]) -> None:
    """What is called in the end, and each wrapper around it."""
    for _ in range(MOST_WRAPPED):
        capability, body = _wrapped(body)
        if capability.name in UNDELEGABLE or not claims.scope.covers(capability):
            raise HearthNetError("token_scope_insufficient", f"the token does not cover {capability}")
        if capability.name != WRAPPER:
            _check_constraints(claims, body)
            return
    raise HearthNetError("bad_request", f"{WRAPPER} lies in itself more than {MOST_WRAPPED} times")


def _wrapped(body: dict[str, Any]) -> tuple[Capability, dict[str, Any]]:
    given = body.get("input")
    target = given.get("target_body") if isinstance(given, dict) else None
    name = given.get("target_capability") if isinstance(given, dict) else None
    if not isinstance(target, dict) or not isinstance(name, str):
        raise HearthNetError(
            "bad_request",
            f"{WRAPPER} takes a target_capability and its target_body",
            details={"path": "/input"},
        )
    return parse_capability(name), target


def _check_constraints(claims: Claims, body: dict[str, Any]) -> None:
    key = claims.scope.constraints.violated(body)
    if key is not None:
        raise HearthNetError(
            "token_scope_insufficient",
            f"the token allows {key} only as one of {claims.scope.params_constraints[key]}",
            details={"path": key},
        )
