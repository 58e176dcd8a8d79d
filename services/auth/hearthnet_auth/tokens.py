"""Issue of grant tokens, and judgement of a presented token.

See: docs/protocol/tokens.md#issuing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from hearthnet import HearthNetError, OfferView
from hearthnet.contracts import contracts
from hearthnet.core import short_id
from hearthnet.trust import (
    BEARER,
    RANK,
    UNDELEGABLE,
    Claims,
    Identity,
    Revocations,
    Roster,
    Scope,
    decode_token,
    mint_token,
)
from hearthnet_auth.schemas import IssueInput, invalid

_SELF: Final = "self"


def issue(
    own: Identity, held: Roster, offers: Sequence[OfferView], wanted: IssueInput, now_ms: int
) -> tuple[str, Claims]:
    """Return the signed token that `wanted` describes, and its claims.

    Raises:
        HearthNetError: `not_found` if the subject is not a member or a capability is not offered;
            `unauthorized` if this node may not make such calls itself or may not delegate them;
            `not_federated` if the audience is another community; `bad_request` if the lifetime exceeds the
            community's policy.
    """
    scope = scope_of(wanted)
    _check_subject(held, own.node_id, wanted.subject)
    if wanted.audience not in ("", held.community_id):
        raise HearthNetError("not_federated", "this community has no agreement with that one")
    longest = held.policy.capability_token_ttl_seconds
    if wanted.ttl_seconds > longest:
        raise invalid(
            "ttl_seconds", "maximum", f"the community's rules let a token live {longest} seconds at most"
        )
    for entry in scope.capabilities:
        _check_reach(entry, offers, held.level(own.node_id), own.node_id, wanted.subject)
    text = mint_token(
        own,
        subject=wanted.subject,
        audience=held.community_id,
        scope=scope,
        now_ms=now_ms,
        ttl_seconds=wanted.ttl_seconds,
        principal=wanted.principal,
        cnf="" if wanted.cnf is None else wanted.cnf.key,
        issued_via="manual",
    )
    return text, decode_token(text)


def scope_of(wanted: IssueInput) -> Scope:
    """Return the scope of the token; `corpora` is short for a constraint on `corpus`.

    See: docs/protocol/tokens.md#scope.

    Raises:
        HearthNetError: `bad_request` if the scope is malformed, gives the corpora twice, or has an unknown
            limit, because a limit that is not enforced would be none.
    """
    members = {name: value for name, value in wanted.scope.items() if value is not None}
    constraints = dict(members.get("params_constraints", {}))
    ways = [members.pop("corpora", None), list(wanted.corpora) or None, constraints.get("corpus")]
    listed = [corpora for corpora in ways if corpora is not None]
    if len(listed) > 1:
        raise HearthNetError("bad_request", "corpora and a constraint on corpus say the same; give one")
    if listed:
        constraints["corpus"] = listed[0]
    try:
        return msgspec.convert({**members, "params_constraints": constraints}, Scope)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"the scope is malformed: {error}") from error


def refusal(claims: Claims, held: Roster, revocations: Revocations, now_ms: int) -> HearthNetError | None:
    """Return the reason that the subject cannot use the token now for any call, or None."""
    try:
        claims.check_use(caller=claims.sub, community=held.community_id, now_ms=now_ms)
    except HearthNetError as error:
        return error
    if revocations.revoked(claims.iss, claims.jti):
        return HearthNetError("token_revoked", "the token was revoked")
    for node in (claims.iss, claims.sub):
        if held.is_revoked(node):
            return HearthNetError("revoked", f"{short_id(node)} was revoked")
        if RANK[held.level(node)] < RANK["member"]:
            return HearthNetError("unauthorized", f"{short_id(node)} is no member")
    return None


def _check_subject(held: Roster, own: str, subject: str) -> None:
    if subject == BEARER:
        raise HearthNetError("unauthorized", "a token names its holder; one for anybody is not issued")
    if subject != own and RANK[held.level(subject)] < RANK["member"]:
        raise HearthNetError("not_found", f"{subject} is no member of {held.name}")


def _check_reach(entry: str, offers: Iterable[OfferView], level: str, own: str, subject: str) -> None:
    """Raise unless `entry` is offered, may be called by this node and may be delegated."""
    covered = Scope((entry,))
    covered.check()
    if entry.partition("@")[0] in UNDELEGABLE:
        raise HearthNetError("unauthorized", f"{entry} is not called under a token")
    found = [view for view in offers if covered.covers(view.capability)]
    if not found:
        raise HearthNetError("not_found", f"nobody offers {entry} now; see: hearthnet caps")
    demands = {_demand(view) for view in found if _demand(view) != _SELF or view.node == own == subject}
    if not demands:
        raise HearthNetError(
            "unauthorized", f"{entry} serves only its own node; no token carries it to another"
        )
    if not any(demand == _SELF or RANK[level] >= RANK.get(demand, len(RANK)) for demand in demands):
        raise HearthNetError("unauthorized", f"{entry} takes more than level {level}, which is this node's")


def _demand(view: OfferView) -> str:
    """Return the trust level that an offer requires.

    The result is `unknown` for a contract version that is not known here: its provider decides.
    """
    if view.offer.trust:
        return view.offer.trust
    try:
        return contracts().get(str(view.capability)).trust_required
    except HearthNetError:
        return "unknown"
