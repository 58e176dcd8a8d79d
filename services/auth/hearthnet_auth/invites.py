"""Invites: made once for each client id, and told again as they were (docs/decisions/0040)."""

from __future__ import annotations

from typing import Final, NamedTuple

import blake3

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.node_state import ServerState
from hearthnet.times import from_rfc3339, now_ms
from hearthnet.trust import acts
from hearthnet.trust.community import CommunityEvent, Invited
from hearthnet.trust.invite import InviteText
from hearthnet.trust.keys import Identity
from hearthnet.trust.roster import Roster
from hearthnet_auth.inputs import InviteInput

_PURPOSE: Final = "invite seed"
_CONTEXT: Final = "hearthnet 2026 invite seed"
_ROUNDING_MS: Final = 2_000


class OneTime(NamedTuple):
    """The key of one invite, and the seed that its text holds."""

    key: Identity
    seed: bytes


def one_time_key(own: Identity, client_id: str) -> OneTime:
    """The key of the invite that a call with `client_id` makes. It is kept nowhere: this node finds it again,
    and nobody else can.

    It follows from a signature that is never shown; Ed25519 gives the same one each time.
    """
    secret = own.sign(_PURPOSE, client_id.encode("utf-8"))
    seed = blake3.blake3(secret, derive_key_context=_CONTEXT).digest()
    return OneTime(Identity(seed), seed)


def make(held: Roster, own: Identity, wanted: InviteInput) -> CommunityEvent:
    """The event that makes the invite; the one from before, where there is one.

    Raises `unauthorized` where this node may not invite, `bad_request` for a client id that was used for
    another invite.
    """
    key = one_time_key(own, wanted.client_id).key
    earlier = made(held, own, wanted.client_id)
    if earlier is not None:
        return _same(earlier, wanted)
    now = now_ms()
    return acts.invite(
        held,
        own,
        key,
        display_name=wanted.display_name,
        expires_at=now + wanted.ttl_seconds * 1000,
        now_ms=now,
        invitee=wanted.invitee_node_id,
    )


def made(held: Roster, own: Identity, client_id: str) -> CommunityEvent | None:
    """The invite that a call with this client id made, None where there is none."""
    key = one_time_key(own, client_id).key.node_id
    for event in held.events:
        if isinstance(event.content, Invited) and event.content.invite_key == key:
            return event
    return None


def text(event: CommunityEvent, own: Identity, client_id: str, server: ServerState, name: str) -> InviteText:
    """What to hand over: the key, and where others reach the community called `name`."""
    content = event.content
    return InviteText(
        community_id=event.community_id,
        seed=ids.b64(one_time_key(own, client_id).seed),
        address=server.address,
        fingerprint=server.fingerprint,
        inviter=own.node_id,
        name=name,
        expires_at=content.expires_at if isinstance(content, Invited) else 0,
    )


def _same(earlier: CommunityEvent, wanted: InviteInput) -> CommunityEvent:
    """`earlier`, where it is what is wanted now; its time is written in whole seconds."""
    content = earlier.content
    if isinstance(content, Invited):
        lasts = content.expires_at - from_rfc3339(earlier.wall_clock)
        terms = (content.display_name, content.invitee_node_id)
        alike = abs(lasts - wanted.ttl_seconds * 1000) < _ROUNDING_MS
        if alike and terms == (wanted.display_name, wanted.invitee_node_id):
            return earlier
    raise HearthNetError(
        "bad_request",
        "this client_id was used for another invite; make a new one",
        details={"path": "/input/client_id", "rule": "reused"},
    )
