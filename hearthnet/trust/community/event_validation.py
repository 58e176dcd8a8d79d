"""The validity of a single event: form, signatures and proofs (docs/decisions/0040).

Checked once for each event, before it is kept. All nodes keep a valid event and pass it on, whether it counts
or not and whether its kind is known or not. Nothing else limits the form of an event: the replies of
`community.sync` and `community.join` fix names and types alone (contracts/_common.json, told_event).
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339
from hearthnet.trust import signed_document
from hearthnet.trust.community import events
from hearthnet.trust.community.doors import DoorClosed, DoorOpened, check_door
from hearthnet.trust.community.events import (
    CREATED,
    POLICY,
    CommunityEvent,
    Created,
    Demoted,
    EventEntry,
    Invited,
    Joined,
    Promoted,
    Revoked,
)
from hearthnet.trust.community.person_statements import (
    DeviceAdded,
    DeviceRemoved,
    PersonKeyed,
    check_statement,
)
from hearthnet.trust.community.quorum import check_signatures, cosign_payload
from hearthnet.trust.community.recovery_statements import (
    HelpersNamed,
    RecoveryBegun,
    RecoveryObjected,
    RecoveryWitnessed,
    check_recovery_statement,
)
from hearthnet.trust.keys import verify, verify_login

MAX_BYTES: Final = 16 * 1024
"""Maximum JSON size of an event, which all nodes keep for good; 32 co-signers and 64 heads take 11 KiB."""
MAX_POLICY_BYTES: Final = 1024 * 1024
"""Maximum size of a change of policy, which names the heads of all authors; only the root makes one."""
MAX_DEPTH: Final = 16
"""Maximum nesting of an event: the limits of readers differ, and all nodes must keep the same events."""
MAX_INVITE_MS: Final = 30 * 86_400_000
_ROOT_ONLY: Final = (CREATED, POLICY)


def validate_event(event: CommunityEvent, community_id: str) -> None:
    """Check that `event` is valid by itself.

    Raises:
        HearthNetError: `bad_request` or `invalid_signature` if it is not.
    """
    if event.community_id != community_id:
        raise HearthNetError("bad_request", "the event is of another community")
    _check_form(event)
    signed_document.check(event, event.author, events.PURPOSE)
    match event.content:
        case Created(founder=entry):
            _check_entry(entry)
        case Invited() as content:
            _check_invited(event, content)
        case Joined() as content:
            _check_joined(event, content)
        case Promoted(new_level=what) | Demoted(new_level=what) | Revoked(reason=what) as content:
            _check_co_signers(event, content, what)
        case DoorOpened() | DoorClosed() as content:
            check_door(content)
        case PersonKeyed() | DeviceAdded() | DeviceRemoved() as content:
            check_statement(community_id, event.author, content)
        case HelpersNamed() | RecoveryBegun() | RecoveryWitnessed() | RecoveryObjected() as content:
            check_recovery_statement(community_id, content)
        case _:
            pass


def _check_form(event: CommunityEvent) -> None:
    if event.event_type in _ROOT_ONLY and event.author != event.community_id:
        raise HearthNetError("bad_request", f"{event.event_type} is for the community's root alone")
    if (event.event_type == CREATED) != (event.author == event.community_id and event.sequence == 1):
        raise HearthNetError("bad_request", "a community begins with its root's first event, and only there")
    if not ids.is_ulid(event.event_id):
        raise HearthNetError("bad_request", "an event id is a ULID")
    if (event.sequence == 1) != (event.previous == ""):
        raise HearthNetError("bad_request", "the first event of an author has no event before it")
    from_rfc3339(event.wall_clock)
    if _depth(event.data) > MAX_DEPTH:
        raise HearthNetError("bad_request", f"an event is nested at most {MAX_DEPTH} deep")
    limit = MAX_POLICY_BYTES if event.event_type == POLICY else MAX_BYTES
    if len(event.encode()) > limit:
        raise HearthNetError("bad_request", f"an event has at most {limit} bytes")


def _depth(value: Any) -> int:
    """Return the nesting of the innermost value; never more than one above `MAX_DEPTH`."""
    level, depth = [value], 0
    while depth <= MAX_DEPTH and (level := [one for one in level if isinstance(one, dict | list)]):
        level = [one for outer in level for one in (outer.values() if isinstance(outer, dict) else outer)]
        depth += 1
    return depth


def _check_entry(entry: EventEntry) -> None:
    signature = ids.unb64(entry.login_signature)
    if not verify(entry.node_id, events.LOGIN_PURPOSE, entry.login.encode("utf-8"), signature):
        raise HearthNetError(
            "invalid_signature", f"the login of {ids.short_id(entry.node_id)} is not its own"
        )
    _check_proof(entry.login, entry.node_id, entry.login_proof)


def _check_invited(event: CommunityEvent, content: Invited) -> None:
    if content.invitee_node_id:
        ids.public_key(content.invitee_node_id)
    if not 0 < content.expires_at - from_rfc3339(event.wall_clock) <= MAX_INVITE_MS:
        raise HearthNetError("bad_request", "an invite ends within 30 days, and not before it begins")
    signature = ids.unb64(content.login_signature)
    if not verify(
        content.invite_key,
        events.INVITE_PURPOSE,
        events.invitation(event.community_id, event.author, content),
        signature,
    ):
        raise HearthNetError("invalid_signature", "the invite is not signed by its own key")
    _check_proof(content.login, content.invite_key, content.login_proof)
    if content.co_signers and not content.invitee_node_id:
        raise HearthNetError("bad_request", "an invite that others agreed to names the node it is for")
    agreed = cosign_payload(
        event.event_type,
        event.community_id,
        content.invitee_node_id,
        content.display_name,
        content.client_id,
        expires_at=content.expires_at,
        recalls=content.recalls,
    )
    check_signatures(agreed, content.co_signers)


def _check_joined(event: CommunityEvent, content: Joined) -> None:
    if content.member.node_id != event.author:
        raise HearthNetError("bad_request", "a node joins by its own event")
    _check_entry(content.member)
    signature = ids.unb64(content.invite_signature)
    if not verify(
        content.invite_key,
        events.INVITE_PURPOSE,
        events.request(event.community_id, content),
        signature,
    ):
        raise HearthNetError("invalid_signature", "the request to join is not signed by the invite's key")


def _check_co_signers(event: CommunityEvent, content: Promoted | Demoted | Revoked, what: str) -> None:
    ids.public_key(content.target_node_id)
    agreed = cosign_payload(
        event.event_type, event.community_id, content.target_node_id, what, content.client_id
    )
    check_signatures(agreed, content.co_signers)


def _check_proof(login: str, node: str, proof: str) -> None:
    if not verify_login(login, events.PROOF_PURPOSE, node.encode("ascii"), ids.unb64(proof)):
        raise HearthNetError("invalid_signature", f"the login of {ids.short_id(node)} is another's, or none")
