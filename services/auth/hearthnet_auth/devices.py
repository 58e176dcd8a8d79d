"""A new node as a device of the owner's person: the text for it, and the person key that it gets.

The key is handed to the one node that has joined by the text, and not to who reads the text later: the events
of this node say which one that is. Nothing else has to be remembered here. Nodes that are devices of the
person already get it as well, since a recovery at one of them replaces it.

See: docs/protocol/persons.md#a-second-node, docs/decisions/0205-devices-get-the-person-key.md.
"""

from __future__ import annotations

from typing import Final

from hearthnet import HearthNetError, Home
from hearthnet.bus import load_identity
from hearthnet.core import b64, now_ms
from hearthnet.trust import Admitted, CommunityEvent, Identity, Invited, InviteText, Roster
from hearthnet_auth import invites
from hearthnet_auth.schemas import DeviceInviteInput, InviteInput

_NOT_FOR_IT: Final = "this node has not joined by a text of hearthnet device add, so it gets no person key"


def own_person(held: Roster, own: Identity, home: Home) -> str:
    """Return the person of this node, whose present person key is here.

    Raises:
        HearthNetError: `not_found` if the node is no device, or the key is missing; `unauthorized` if
            the key was replaced.
    """
    person = held.person(held.person_of(own.node_id))
    if person is None:
        raise HearthNetError(
            "not_found",
            "this node is no device of a person yet; try again in a moment, or see: hearthnet logs auth",
        )
    if load_identity(home.person_key).node_id != person.key:
        raise HearthNetError("unauthorized", "the person key of this home was replaced by a newer one")
    return person.person


def invite(held: Roster, own: Identity, wanted: DeviceInviteInput) -> CommunityEvent:
    """Return the event of the invite for a new device, or that of an earlier call with its client id.

    Raises:
        HearthNetError: as `invites.make`; `unauthorized` where an invite takes several signatures.
    """
    asked = InviteInput(wanted.client_id, wanted.ttl_seconds, display_name=wanted.display_name)
    try:
        return invites.make(held, own, asked, invites.DEVICE_PURPOSE)
    except HearthNetError as error:
        if error.details.get("path") != "/input/invitee_node_id":
            raise
        raise HearthNetError(
            "unauthorized",
            "a new node takes several signatures in this community, so no device is added by a text",
        ) from error


def sealed_key(held: Roster, own: Identity, home: Home, node: str) -> str:
    """Return the person key, sealed for `node`.

    That is a new one, with the secret of the text by which it joined, or a device of the person, which may
    have an older key.

    Raises:
        HearthNetError: `unauthorized` if it is none of the two; `expired` after the end of the text;
            `not_found` if this home has no person key.
    """
    person = own_person(held, own, home)
    secret = b"" if _is_node_of(held, node, person) else _secret_of(held, own, node)
    text = load_identity(home.person_key).to_text()
    return b64(own.seal_to(node, InviteText.key_purpose, text.encode("ascii"), secret))


def _is_node_of(held: Roster, node: str, person: str) -> bool:
    return any(one.key == node and one.kind == "node" for one in held.devices(person))


def _secret_of(held: Roster, own: Identity, newcomer: str) -> bytes:
    """Return the secret of the text by which `newcomer` joined."""
    invited = _invite_of(held, own, newcomer)
    if now_ms() >= invited.expires_at:
        raise HearthNetError("expired", "the text of the device has expired; make a new one")
    return invites.one_time_seed(own, invited.client_id, invites.DEVICE_PURPOSE)


def _invite_of(held: Roster, own: Identity, newcomer: str) -> Invited:
    """Return the invite for a device under which this node has let in the member `newcomer`.

    Its own event counts alone: in the log another member could let in a second node under a used invite.
    """
    for event in held.events if held.member(newcomer) is not None else ():
        content = event.content
        if not isinstance(content, Admitted) or content.node_id != newcomer:
            continue
        if event.author != own.node_id or held.flaw(event):
            continue
        asked = held.history.get(content.joined_event_hash)
        invited = held.history.get("" if asked is None else asked.data["invite_event_hash"])
        if invited is not None and isinstance(invited.content, Invited):
            seed = invites.one_time_seed(own, invited.content.client_id, invites.DEVICE_PURPOSE)
            if Identity(seed).node_id == invited.content.invite_key:
                return invited.content
    raise HearthNetError("unauthorized", _NOT_FOR_IT)
