"""The authority of a call: one pure function, called by the service library alone.

    effective(caller, token, demand, body) -> Authority, or the reason against it

Effective authority = rights of the issuer AND scope of the token AND demand of the capability. Without a
token the caller is its own issuer. A token never adds trust, and no tokens are issued under one.

See: docs/protocol/tokens.md#effective-authority.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.core.capability_name import Capability, parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.approval import Via
from hearthnet.trust.authorization.token import Claims
from hearthnet.trust.community.roster import RANK, Roster

SELF: Final = "self"
HOME: Final = "home"
"""Requirement of an offer for the home alone: its node and the clients that `is_let_in` of token.py names.

It is announced to nobody else, and a call of anybody else is answered as if there were no such offer. With a
slash and a guest's name it is for that person of the home alone.
"""
UNDELEGABLE: Final = frozenset(
    {
        "auth.token.issue",
        "community.device.conversations",
        "community.device.copy",
        "community.device.decide",
        "community.device.key",
        "community.device.run",
        "community.device.runs",
        "community.device.take",
        "community.door.check",
        "community.log.sync",
        "community.recovery.give",
        "community.recovery.keep",
        "rag.manifest",
        "rag.read_document",
    }
)
"""Capabilities that no token covers: its holder cannot pass it on, nor ask for what is a person's or home's.

See: docs/protocol/tokens.md#effective-authority.
"""


WRAPPER: Final = "llm.tools.call"
"""Makes the call that its body names: the token must cover both, and its constraints apply to that body."""
MOST_WRAPPED: Final = 6


def is_to_home(trust: str) -> bool:
    """Return whether an offer that requires `trust` is for its home or one person of it."""
    return trust == HOME or bool(guest_of(trust))


def guest_of(trust: str) -> str:
    """Return the guest to whom alone an offer with `trust` is made, without which it is empty."""
    home, _, guest = trust.partition("/")
    return guest if home == HOME else ""


class CallerStatus(msgspec.Struct, frozen=True):
    """A node with its level in the roster now and whether it was revoked."""

    node: str
    level: str
    revoked: bool = False


class PresentedToken(msgspec.Struct, frozen=True):
    """The claims of a verified, unexpired token, and the standing of its issuer."""

    claims: Claims
    issuer: CallerStatus


class CallRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """The offered capability, the trust that it requires (a level, `self` or `home`), and its node.

    `own_key`: if an approval is required, one given by a gateway in a person's name is not enough.
    """

    capability: Capability
    trust: str
    node: str
    side_effects: bool
    own_key: bool = False


class Authority(msgspec.Struct, frozen=True, gc=False):
    """The principal of a call, whether it needs an approval, and whose key must sign that.

    `principal` is a node id; for a session it is the issuer's id, a slash and the guest's name there.
    """

    principal: str
    needs_approval: bool
    approver: str
    via: Via


def authorize(
    caller: CallerStatus, token: PresentedToken | None, demand: CallRequirement, body: dict[str, Any]
) -> Authority:
    """Return the authority of a call with `body` by `caller`, under `token` if there is one.

    Raises:
        HearthNetError: In this order, `revoked` for a revoked caller or issuer; `unauthorized` if a level is
            too low or the capability is for its own node; `token_scope_insufficient` if the token does not
            cover the call; `unauthorized` if only a person's own key could approve and the session has none.
    """
    issuer = caller if token is None else token.issuer
    refuse_revoked(caller, "you were")
    refuse_revoked(issuer, "the token's issuer was")
    principal = caller.node if token is None else token.claims.on_behalf_of
    _check_trust(caller, issuer, principal, demand)
    if token is None:
        return Authority(principal, needs_approval=False, approver=caller.node, via="")
    _check_members(caller, issuer, demand)
    _check_scope(token.claims, demand.capability, body)
    approver, via = approver_of(token.claims)
    if demand.side_effects and demand.own_key and via:
        raise HearthNetError(
            "unauthorized",
            f"{demand.capability} takes the approval of a person's own key; this session has none",
            rule="own_key",
        )
    return Authority(principal, demand.side_effects, approver, via)


def foreseen_refusal(
    demand: CallRequirement, claims: Claims | None, *, caller: str, principal: str, level: str
) -> str:
    """Return the reason for which a call that is not made yet would be refused; empty without one.

    Its params are not known, so that the token's constraints on them are left out. `level` is that of the
    issuer of `claims`, else of the caller.
    """
    if demand.trust not in (SELF, HOME, *RANK):
        return (
            f"{demand.capability} has a rule of its own, {demand.trust}: what decides is what the call says"
        )
    issuer = CallerStatus(principal.partition("/")[0], level)
    token = None
    if claims is not None:
        scope = msgspec.structs.replace(claims.scope, params_constraints={})
        token = PresentedToken(msgspec.structs.replace(claims, scope=scope), issuer)
    try:
        authorize(
            issuer if token is None else CallerStatus(caller, "member"),
            token,
            demand,
            {"params": {}, "input": {}},
        )
    except HearthNetError as error:
        return error.message
    return ""


def approver_of(claims: Claims) -> tuple[str, Via]:
    """Return the key whose consent counts: the guest's own, its gateway's, or the issuer's."""
    if claims.kind != "session":
        return claims.iss, ""
    return (claims.sub, "gateway") if claims.cnf is None else (claims.cnf.key, "")


def owner_of(roster: Roster, principal: str, claims: Claims | None, approver: str = "") -> str:
    """Return the person in whose name a call under `claims` is made; the principal itself without one.

    A guest is its gateway's word. It is taken for the person whose device the guest's key is where that
    person's own node says so, or where a device of the person, `approver`, approved this very call.

    See: docs/protocol/persons.md#ownership.
    """
    if claims is None or claims.cnf is None:
        return roster.owner(principal)
    person = roster.person_of(claims.cnf.key)
    is_vouched = roster.owner(claims.iss) == person or roster.is_device(approver, person)
    return person if person and is_vouched else principal


def refuse_revoked(standing: CallerStatus, who: str) -> None:
    """Check that the node was not revoked; the error message begins with `who`.

    Raises:
        HearthNetError: `revoked` if it was.
    """
    if standing.revoked:
        raise HearthNetError("revoked", f"{who} revoked from the community")


def _check_trust(caller: CallerStatus, issuer: CallerStatus, principal: str, demand: CallRequirement) -> None:
    if demand.trust == SELF:
        # All three: no token opens the node's own capabilities to another caller, and neither
        # another member's token nor a guest's reaches them through the node.
        if not caller.node == principal == demand.node:
            raise HearthNetError("unauthorized", f"{demand.capability} serves only its own node")
    elif is_to_home(demand.trust):
        node, _, guest = principal.partition("/")
        if not caller.node == node == demand.node or guest_of(demand.trust) not in ("", guest):
            raise HearthNetError("unauthorized", f"{demand.capability} serves only its own home")
    elif demand.trust not in RANK:
        raise HearthNetError("unauthorized", f"{demand.capability} takes {demand.trust}, a rule unknown here")
    elif RANK.get(issuer.level, 0) < RANK[demand.trust]:
        raise HearthNetError(
            "unauthorized", f"{demand.capability} takes level {demand.trust}; the caller's is {issuer.level}"
        )


def _check_members(caller: CallerStatus, issuer: CallerStatus, demand: CallRequirement) -> None:
    """Check that the token is between members, however little the capability requires.

    The serving node itself always passes.
    """
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
    """Check the wrapped call and each wrapper around it."""
    for _ in range(MOST_WRAPPED):
        capability, body = _wrapped(body)
        if capability.name in UNDELEGABLE or not claims.scope.covers(capability):
            raise HearthNetError("token_scope_insufficient", f"the token does not cover {capability}")
        if capability.name != WRAPPER:
            _check_constraints(claims, body)
            return
    raise HearthNetError("bad_request", f"{WRAPPER} lies in itself more than {MOST_WRAPPED} times")


def _wrapped(body: dict[str, Any]) -> tuple[Capability, dict[str, Any]]:
    wrapped = body.get("input")
    target = wrapped.get("target_body") if isinstance(wrapped, dict) else None
    name = wrapped.get("target_capability") if isinstance(wrapped, dict) else None
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
