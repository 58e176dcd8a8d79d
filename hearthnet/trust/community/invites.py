"""Invites as texts to hand over, and joining by one (docs/decisions/0040).

    hninvite://v1/<base64url of canonical JSON>.<first 8 characters of its BLAKE3, in hex>

The text holds the seed of the invite's one-time key, the address of a server and the inviter to call there.
Every holder can join by it, so it must be handed over like a key. A text by which a new node becomes a
device of the inviter's person names that person, too, and begins with `hndevice://v1/`
(docs/protocol/persons.md#a-second-node).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from hearthnet.core import ids
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339
from hearthnet.trust import text_armor
from hearthnet.trust.community import commands, event_validation, events
from hearthnet.trust.community.events import Admitted, CommunityEvent, Joined
from hearthnet.trust.community.names import check_name
from hearthnet.trust.community.roster import Invite, Roster, merge
from hearthnet.trust.keys import Identity

SCHEME: Final = "hninvite://v1/"
DEVICE_SCHEME: Final = "hndevice://v1/"
MAX_LENGTH: Final = 2048
DAY_MS: Final = 86_400_000
MAX_DOORS: Final = 3
"""Maximum of further places in an invite, so that it can still be shown as a QR code."""
Address = Annotated[str, msgspec.Meta(min_length=3, max_length=300)]
Fingerprint = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")]


class InviteText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The contents of an invite.

    `address` is `host:port`; `fingerprint` the SHA-256 of the certificate there, in hex, empty without one;
    `expires_at` in milliseconds. `person` is the person whose device the newcomer becomes, if any. `doors`
    are further places at which the invite can be redeemed, each an address with its fingerprint.
    """

    key_purpose: ClassVar[str] = "person key for a device"
    """The purpose for which the person key is sealed, with the seed as the secret."""

    community_id: str = msgspec.field(name="c")
    seed: str = msgspec.field(name="k")
    address: Address = msgspec.field(name="a")
    fingerprint: Fingerprint = msgspec.field(name="t")
    inviter: str = msgspec.field(name="i")
    name: Annotated[str, msgspec.Meta(max_length=200)] = msgspec.field(name="n")
    expires_at: Count = msgspec.field(name="x")
    person: str = msgspec.field(name="p", default="")
    doors: Annotated[tuple[tuple[Address, Fingerprint], ...], msgspec.Meta(max_length=MAX_DOORS)] = (
        msgspec.field(name="d", default=())
    )

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """The addresses at which the invite can be redeemed, with their fingerprints, best first."""
        return (self.address, self.fingerprint), *self.doors

    def key(self) -> Identity:
        """Return the invite's one-time key."""
        return Identity(ids.unb64(self.seed))

    def encode(self) -> str:
        """Return the text to hand over."""
        scheme = DEVICE_SCHEME if self.person else SCHEME
        return text_armor.armor(scheme, msgspec.to_builtins(self))

    def opened_key(self, own: Identity, sealed: str) -> Identity:
        """Return the person key that the inviter has sealed for the node `own`.

        Raises:
            HearthNetError: `invalid_signature` if it does not open; `bad_request` if it is no key.
        """
        data = own.open_from(self.inviter, self.key_purpose, ids.unb64(sealed), ids.unb64(self.seed))
        return Identity.from_text(data.decode("ascii", "replace"))

    def __repr__(self) -> str:
        return f"InviteText({self.name!r}, {self.address})"


_DECODER: Final = msgspec.json.Decoder(InviteText)


def decode(text: str) -> InviteText:
    """Read the invite in `text`.

    Raises:
        HearthNetError: `bad_request`, worded for people, if it is malformed or damaged.
    """
    if text.startswith(DEVICE_SCHEME):
        raise HearthNetError(
            "bad_request", "this makes a computer another device of a person: hearthnet device join"
        )
    invite = text_armor.unarmor(text, SCHEME, MAX_LENGTH, _DECODER, "invite")
    return _checked(invite, is_for_device=False)


def decode_device(text: str) -> InviteText:
    """Read the text by which a new node becomes a device of a person.

    Raises:
        HearthNetError: `bad_request`, worded for people, if it is malformed or damaged.
    """
    if text.startswith(SCHEME):
        raise HearthNetError(
            "bad_request", "this lets in a home of its own, with a person of its own: hearthnet invite redeem"
        )
    invite = text_armor.unarmor(text, DEVICE_SCHEME, MAX_LENGTH, _DECODER, "text of a device")
    return _checked(invite, is_for_device=True)


def _checked(invite: InviteText, *, is_for_device: bool) -> InviteText:
    if bool(invite.person) != is_for_device:
        raise HearthNetError("bad_request", "the text is damaged; ask for another")
    named = (invite.community_id, invite.inviter, *((invite.person,) if is_for_device else ()))
    for one in named:
        ids.public_key(one)
    invite.key()
    return invite


def ask(held: Roster, key: Identity, newcomer: Identity, display_name: str, now_ms: int) -> CommunityEvent:
    """Return the newcomer's request to join under the open invite of `key`.

    `held` is the community's roster as received from the inviter.

    Raises:
        HearthNetError: `unauthorized` if there is no such open invite; `expired` after its end.
    """
    invite = _open_invite(held, key.node_id, now_ms)
    bare = Joined(
        invite_event_hash=invite.event_hash,
        invite_key=key.node_id,
        member=events.entry_of(newcomer, display_name),
        invite_signature="",
    )
    signature = key.sign(events.INVITE_PURPOSE, events.request(held.community_id, bare))
    return events.write(
        newcomer,
        held.community_id,
        events.JOINED,
        msgspec.structs.replace(bare, invite_signature=ids.b64(signature)),
        place=held.next(newcomer.node_id),
        now_ms=now_ms,
    )


def _open_invite(held: Roster, key: str, now_ms: int, event_hash: str = "") -> Invite:
    invite = held.invite(key)
    if invite is None or event_hash not in ("", invite.event_hash):
        raise HearthNetError(
            "unauthorized", "the invite was used or withdrawn, or never was; ask for a new one"
        )
    if now_ms >= invite.expires_at:
        raise HearthNetError("expired", "the invite has expired; ask for a new one")
    return invite


def admit(
    held: Roster, author: Identity, joined: CommunityEvent, now_ms: int
) -> tuple[CommunityEvent, CommunityEvent]:
    """Admit a newcomer: return its `joined` event and this node's event that admits it.

    The two must be kept in this order. Called by the provider of `community.join`.

    Raises:
        HearthNetError: `invalid_signature` or `bad_request` for an invalid event; `revoked` for a revoked
            node; `bad_request` for a name that a home may not give itself; `unauthorized` for an invite
            that was used, withdrawn, is for another node, or that this node may not honour; `expired` after
            the invite's end.
    """
    event_validation.validate_event(joined, held.community_id)
    content = joined.content
    if not isinstance(content, Joined):
        raise HearthNetError("bad_request", f"{joined.event_type} is no request to join")
    inviter = _check_open(held, content, now_ms).inviter
    if inviter != author.node_id and not held.stands_alone(inviter):
        raise HearthNetError("unauthorized", "a member's invite is honoured by its own home; ask that one")
    _check_day(held, inviter, now_ms)
    check_name(content.member.display_name)
    with_request = merge(held, [joined])
    flaw = "it does not follow the newcomer's events before" if with_request is held else ""
    flaw = flaw or with_request.flaw(joined)
    if flaw:
        raise HearthNetError("unauthorized", f"the request to join does not count: {flaw}")
    return joined, commands.CommunityAuthor(with_request, author).admit(joined, now_ms)


def _check_day(held: Roster, inviter: str, now_ms: int) -> None:
    """Raise if as many came by the line of `inviter` today as others take in (decisions/0198).

    All but the last of it have half, as with all that a line shares.
    """
    if held.stands_alone(inviter):
        return
    today = [
        held.folded.inviters[event.content.node_id]
        for event in held.events
        if isinstance(event.content, Admitted)
        and 0 <= now_ms - from_rfc3339(event.wall_clock) < DAY_MS
        and not held.flaw(event)
    ]
    lines = [held.line(one) for one in today if not held.stands_alone(one)]
    line, daily = held.line(inviter), held.policy.daily_admissions
    for one in line:
        most = daily if one == line[-1] or daily == 1 else daily // 2
        if sum(one in others for others in lines) >= most:
            raise HearthNetError(
                "unauthorized",
                f"this member and those who came by its invites have let in {most} nodes within a day; ask a "
                "trusted member for an invite, or try again tomorrow",
            )


def _check_open(held: Roster, asked: Joined, now_ms: int) -> Invite:
    newcomer = asked.member.node_id
    if held.member(newcomer) is not None:
        raise HearthNetError("unauthorized", "the newcomer is a member already")
    invite = _open_invite(held, asked.invite_key, now_ms, asked.invite_event_hash)
    if held.is_revoked(newcomer) and invite.invitee_node_id != newcomer:
        raise HearthNetError(
            "revoked", "this node was put out; it comes back only by an invite of a trusted member for its id"
        )
    return invite
