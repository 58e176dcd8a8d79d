"""Signed revocations of tokens and standing grants, kept until none could still be valid.

See: docs/protocol/tokens.md#revocation, docs/decisions/0041.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json, refuse_repeated_keys
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.token import MAX_TTL_SECONDS, SKEW_SECONDS
from hearthnet.trust.community.roster import RANK
from hearthnet.trust.keys import Identity

PURPOSE: Final = "token revocation"
RETENTION_MS: Final = (MAX_TTL_SECONDS + 2 * SKEW_SECONDS) * 1000
"""Lifetime of a revocation: the longest lifetime of a token, and the skew of two clocks."""
MOST_OF_ONE: Final = 10_000
"""Maximum revocations kept per node; further ones are refused, so that one node cannot fill the memory."""

Reason = Literal["manual", "policy", "compromise"]


class MemberDirectory(Protocol):
    """The part of a roster that is needed here."""

    @property
    def community_id(self) -> str: ...
    def level(self, node: str) -> str: ...


class TokenRevocation(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement by node `by` that the token `token_id` of `issuer` is void.

    Times are milliseconds since the epoch. A standing grant is revoked the same way: `token_id` is its id,
    `issuer` its approver.
    """

    token_id: str
    issuer: str
    reason: Reason
    revoked_at: Count
    forget_at: Count
    by: str

    @classmethod
    def sign(
        cls, identity: Identity, token_id: str, issuer: str, reason: Reason, *, now_ms: int
    ) -> TokenRevocation:
        """Return a revocation signed by `identity`: the issuer, a trusted member or the root."""
        document = cls(
            token_id=token_id,
            issuer=issuer,
            reason=reason,
            revoked_at=now_ms,
            forget_at=now_ms + RETENTION_MS,
            by=identity.node_id,
        )
        return signed_document.sign(document, identity, PURPOSE)


def decode(data: bytes) -> TokenRevocation:
    """Read the revocation in `data`, without checking its signature.

    Raises:
        HearthNetError: `bad_request` if it is malformed.
    """
    document = read_json(data, _DECODER)
    refuse_repeated_keys(data)
    return document


_DECODER: Final = msgspec.json.Decoder(TokenRevocation)


class Revocations:
    """The revocations that a process knows: a set that only grows until its members expire."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], TokenRevocation] = {}
        self._of: dict[str, int] = {}

    def add(self, revocation: TokenRevocation, roster: MemberDirectory) -> bool:
        """Add a revocation; False if one that is kept as long is present already.

        Raises:
            HearthNetError: `bad_request` for a malformed one; `unauthorized` if `by` may not revoke it;
                `invalid_signature` if it is not signed by `by`; `capacity_exceeded` for one too many.
        """
        if not self.lacks(revocation):
            return False
        check(revocation, roster)
        return self.keep(revocation)

    def lacks(self, revocation: TokenRevocation) -> bool:
        """Return whether none that is kept as long is present."""
        known = self._known.get((revocation.issuer, revocation.token_id))
        return known is None or known.forget_at < revocation.forget_at

    def keep(self, revocation: TokenRevocation) -> bool:
        """Add a revocation that `check` has passed, as `add`.

        Raises:
            HearthNetError: `capacity_exceeded` for one too many.
        """
        if not self.lacks(revocation):
            return False
        if self._of.get(revocation.by, 0) >= MOST_OF_ONE:
            raise HearthNetError(
                "capacity_exceeded",
                f"{ids.short_id(revocation.by)} has revoked {MOST_OF_ONE} tokens in a day",
            )
        key = (revocation.issuer, revocation.token_id)
        self._forget(key)
        self._known[key] = revocation
        self._of[revocation.by] = self._of.get(revocation.by, 0) + 1
        return True

    def revoked(self, issuer: str, token_id: str) -> bool:
        """Return whether that token, or standing grant, of `issuer` is void."""
        return (issuer, token_id) in self._known

    def current(self, now_ms: int) -> tuple[TokenRevocation, ...]:
        """Return those that may still matter at `now_ms`, and forget the others."""
        for key in [key for key, known in self._known.items() if known.forget_at < now_ms]:
            self._forget(key)
        return tuple(self._known.values())

    def _forget(self, key: tuple[str, str]) -> None:
        old = self._known.pop(key, None)
        if old is not None:
            self._of[old.by] -= 1


def check(revocation: TokenRevocation, roster: MemberDirectory) -> None:
    """Check the form of `revocation`, the right of its author by `roster`, and its signature.

    Raises:
        HearthNetError: As `Revocations.add`.
    """
    _check_form(revocation)
    _check_right(revocation, roster)
    signed_document.check(revocation, revocation.by, PURPOSE)


def _check_form(revocation: TokenRevocation) -> None:
    ids.public_key(revocation.issuer)
    ids.public_key(revocation.by)
    if not ids.is_ulid(revocation.token_id):
        raise HearthNetError("bad_request", "the revocation names no token (a ULID)")
    if revocation.forget_at != revocation.revoked_at + RETENTION_MS:
        raise HearthNetError("bad_request", "a revocation is kept for a day and two minutes")


def _check_right(revocation: TokenRevocation, roster: MemberDirectory) -> None:
    by = revocation.by
    if by == roster.community_id:
        return
    needed = "member" if by == revocation.issuer else "trusted"
    if RANK.get(roster.level(by), 0) < RANK[needed]:
        raise HearthNetError(
            "unauthorized", "a token is revoked by its issuer, a trusted member or the community's root"
        )
