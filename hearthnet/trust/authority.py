"""What a call may do: one pure function, asked by the service library and by nobody else (wire.md, "Tokens").

Effective authority = what the issuer may do AND what the token says AND what the capability demands.
Without a token
the caller is its own issuer. A token never adds trust.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.canonical import canonical_json
from hearthnet.errors import HearthNetError
from hearthnet.trust.roster import RANK
from hearthnet.trust.token import Claims
from hearthnet.types import Capability, split_name

_ABSENT: Final = object()


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What is called: the offered capability, the trust it takes (`member`, `trusted`, `anchor` or
    `self`), its node.
    """

    capability: Capability
    trust: str
    node: str
    side_effects: bool


class Authority(msgspec.Struct, frozen=True):
    """The outcome: on whose behalf the call acts, and whether it must carry an approval."""

    principal: str
    needs_approval: bool


def effective(
    caller: str, issuer_level: str, claims: Claims | None, demand: Demand, body: dict[str, Any]
) -> Authority:
    """The authority of a call by `caller` under `claims` (already proved and in their life), or the reason
    against it.

    `issuer_level` is the roster's level of the token's issuer, or of the caller where there is no token.
    Raises
    `unauthorized` where the level is too low and `token_scope_insufficient` where the token does not cover
    the call.
    A side effect that the principal's own key did not ask for directly needs an approval.
    """
    principal = caller if claims is None else claims.iss
    _check_trust(caller, principal, issuer_level, demand)
    if claims is not None:
        _check_scope(claims, demand.capability, body)
    return Authority(principal, demand.side_effects and claims is not None)


def _check_trust(caller: str, principal: str, level: str, demand: Demand) -> None:
    if demand.trust == "self":
        # Both: a token cannot carry what is the node's own to another caller (resolutions.md 62), nor can
        # another member's token reach it through the node.
        if not caller == principal == demand.node:
            raise HearthNetError("unauthorized", f"{demand.capability} serves only its own node")
    elif demand.trust not in RANK:
        raise HearthNetError("unauthorized", f"{demand.capability} takes {demand.trust}, a rule unknown here")
    elif RANK.get(level, 0) < RANK[demand.trust]:
        raise HearthNetError(
            "unauthorized", f"{demand.capability} takes level {demand.trust}; the caller's is {level}"
        )


def _check_scope(claims: Claims, capability: Capability, body: dict[str, Any]) -> None:
    if not any(_covers(entry, capability) for entry in claims.scope.capabilities):
        raise HearthNetError("token_scope_insufficient", f"the token does not cover {capability}")
    for key, allowed in claims.scope.params_constraints.items():
        value = _constrained(key, body)
        if value is _ABSENT or canonical_json(value) not in map(canonical_json, allowed):
            raise HearthNetError(
                "token_scope_insufficient",
                f"the token allows {key} only as one of {allowed}",
                details={"path": key},
            )


def _covers(entry: str, capability: Capability) -> bool:
    name, version = split_name(entry)
    return name == capability.name and (version is None or capability.serves(Capability(name, *version)))


def _constrained(key: str, body: dict[str, Any]) -> Any:
    section, name = ("input", key.removeprefix("input.")) if key.startswith("input.") else ("params", key)
    members = body.get(section)
    return members.get(name, _ABSENT) if isinstance(members, dict) else _ABSENT
