"""Invites, made once for each client id and returned unchanged on repetition.

See: docs/decisions/0040.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import blake3

from hearthnet import HearthNetError
from hearthnet.core import b64, from_rfc3339, now_ms
from hearthnet.trust import CommunityAuthor, CommunityEvent, Identity, Invited, InviteText, Proposal, Roster
from hearthnet_auth.roles import require_signatures
from hearthnet_auth.schemas import InviteInput, invalid

PURPOSE: Final = "invite seed"
DEVICE_PURPOSE: Final = "device invite seed"
"""For the invites by which a node becomes a device; so no other invite passes for one of these."""
_CONTEXT: Final = "hearthnet 2026 invite seed"
_ROUNDING_MS: Final = 2_000
_LONGEST_MS: Final = 7 * 86_400_000
_MOST_DOORS: Final = 3
_LONGEST_ADDRESS: Final = 100
"""Of a further place: an invite has at most 2,048 characters."""


def one_time_seed(own: Identity, client_id: str, purpose: str = PURPOSE) -> bytes:
    """Return the seed of the key of the invite made by a call with `client_id`.

    It is not stored: it derives from a signature of this node that is never published, and Ed25519 gives
    the same signature each time. No other node can derive it.
    """
    secret = own.sign(purpose, client_id.encode("utf-8"))
    return blake3.blake3(secret, derive_key_context=_CONTEXT).digest()


def make(held: Roster, own: Identity, wanted: InviteInput, purpose: str = PURPOSE) -> CommunityEvent:
    """Return the event that makes the invite, or that of an earlier call with its client id.

    Raises:
        HearthNetError: `unauthorized` if this node may not invite or too few members have signed;
            `invalid_signature` if one of them has signed other terms; `expired` if the end has passed;
            `bad_request` if the client id was used for another invite, if the end is more than 7 days away,
            or if several signatures are required and no node is named.
    """
    earlier = made(held, own, wanted.client_id, purpose)
    if earlier is not None:
        return _same(earlier, wanted)
    now = now_ms()
    ends = _end(wanted, now)
    _check_signatures(held, own, wanted, ends)
    return CommunityAuthor(held, own).invite(
        Identity(one_time_seed(own, wanted.client_id, purpose)),
        display_name=wanted.display_name,
        expires_at=ends,
        now_ms=now,
        invitee=wanted.invitee_node_id,
        client_id=wanted.client_id,
        co_signers=wanted.co_signers,
    )


def made(held: Roster, own: Identity, client_id: str, purpose: str = PURPOSE) -> CommunityEvent | None:
    """Return the invite made by a call with this client id, or None."""
    key = Identity(one_time_seed(own, client_id, purpose)).node_id
    for event in held.events:
        if isinstance(event.content, Invited) and event.content.invite_key == key:
            return event
    return None


def text(
    event: CommunityEvent,
    own: Identity,
    client_id: str,
    places: Sequence[tuple[str, str]],
    name: str,
    person: str = "",
) -> InviteText:
    """Return the invite's text: its key, and the places where the community called `name` is reached.

    Each of `places` is an address with its fingerprint; the first few are named. With a `person` it is the
    text by which a node becomes a device of that one.
    """
    content = event.content
    return InviteText(
        community_id=event.community_id,
        seed=b64(one_time_seed(own, client_id, DEVICE_PURPOSE if person else PURPOSE)),
        address=places[0][0],
        fingerprint=places[0][1],
        doors=tuple(one for one in places[1:] if len(one[0]) <= _LONGEST_ADDRESS)[:_MOST_DOORS],
        inviter=own.node_id,
        name=name,
        expires_at=content.expires_at if isinstance(content, Invited) else 0,
        person=person,
    )


def _end(wanted: InviteInput, now: int) -> int:
    """Return the end of the invite in milliseconds since the epoch."""
    if not wanted.expires_at:
        if wanted.co_signers:
            raise invalid("expires_at", "required", "say until when, as the others signed it")
        return now + wanted.ttl_seconds * 1000
    ends = _moment(wanted.expires_at)
    if ends <= now:
        raise HearthNetError("expired", f"the invite would have ended at {wanted.expires_at}; make a new one")
    if ends > now + _LONGEST_MS:
        raise invalid("expires_at", "maximum", "an invite is good for 7 days at most")
    return ends


def _moment(text: str) -> int:
    try:
        return from_rfc3339(text)
    except HearthNetError as error:
        raise invalid("expires_at", "format", error.message) from error


def _check_signatures(held: Roster, own: Identity, wanted: InviteInput, ends: int) -> None:
    proposal = Proposal(
        event_type="community.member.invited",
        community_id=held.community_id,
        target_node_id=wanted.invitee_node_id,
        what=wanted.display_name,
        client_id=wanted.client_id,
        expires_at=ends,
        recalls=held.revocation_of(wanted.invitee_node_id),
        co_signers=wanted.co_signers,
    )
    several = wanted.co_signers or proposal.needed(held) > 1
    if several and not wanted.invitee_node_id:
        raise invalid(
            "invitee_node_id",
            "required",
            "an invite takes several signatures here; name its node: hearthnet invite create --for NODE_ID",
        )
    require_signatures(held, own, proposal)


def _same(earlier: CommunityEvent, wanted: InviteInput) -> CommunityEvent:
    """Return `earlier` if it has the terms in `wanted`, else raise.

    Ends are compared with a tolerance: an event's time is written in whole seconds.
    """
    content = earlier.content
    if isinstance(content, Invited):
        terms = (content.display_name, content.invitee_node_id)
        if _ends_alike(earlier, content, wanted) and terms == (wanted.display_name, wanted.invitee_node_id):
            return earlier
    raise invalid("client_id", "reused", "this client_id was used for another invite; make a new one")


def _ends_alike(earlier: CommunityEvent, content: Invited, wanted: InviteInput) -> bool:
    if wanted.expires_at:
        return content.expires_at == _moment(wanted.expires_at)
    lasts = content.expires_at - from_rfc3339(earlier.wall_clock)
    return abs(lasts - wanted.ttl_seconds * 1000) < _ROUNDING_MS
