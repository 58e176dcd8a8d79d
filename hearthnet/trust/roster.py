"""The community's roster: who belongs to it, at which level, with which NATS login (wire.md;
conventions.md 6 and 13).

The community id is the root's public key, so a roster proves itself. A member's login is bound to it by
the member's
own signature: nobody else can name a login for it.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from hearthnet import ids
from hearthnet.canonical import read_json, refuse_repeated_keys
from hearthnet.errors import HearthNetError
from hearthnet.times import rfc3339
from hearthnet.trust import signed
from hearthnet.trust.keys import Identity, is_login, verify

PURPOSE: Final = "roster"
LOGIN_PURPOSE: Final = "login"
Level = Literal["member", "trusted", "anchor"]
RANK: Final[dict[str, int]] = {"unknown": 0, "invited": 1, "member": 2, "trusted": 3, "anchor": 4}


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member.

    `login` is the public nkey of its NATS login, `login_signature` the member's own over it.
    """

    node_id: str
    level: Level
    display_name: str
    login: str
    login_signature: str
    added_at: str


class Roster(signed.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed list of members; `version` rises by one with every change."""

    version: int
    community_id: str
    name: str
    created_at: str
    members: tuple[Member, ...]

    def level(self, node: str) -> str:
        """The member's level, or `unknown`."""
        return next((member.level for member in self.members if member.node_id == node), "unknown")


def member(identity: Identity, level: Level, display_name: str, now_ms: int) -> Member:
    """`identity`'s own entry, with its login bound to it."""
    login = identity.login().public
    signature = identity.sign(LOGIN_PURPOSE, login.encode("ascii"))
    return Member(identity.node_id, level, display_name, login, ids.b64(signature), rfc3339(now_ms))


def found(root: Identity, first: Member, name: str, now_ms: int) -> Roster:
    """A new community of one, signed by its root."""
    roster = Roster(
        version=1, community_id=root.node_id, name=name, created_at=rfc3339(now_ms), members=(first,)
    )
    return signed.sign(roster, root, PURPOSE)


def encode(roster: Roster) -> bytes:
    """The roster as a file holds it: JSON, indented for people."""
    return msgspec.json.format(msgspec.json.encode(roster), indent=1) + b"\n"


_DECODER: Final = msgspec.json.Decoder(Roster)


def decode(data: bytes) -> Roster:
    """The roster in `data`, proved: signed by its community's root, every login bound by its member.

    Raises `bad_request` for what is no roster and `invalid_signature` for one that was altered.
    """
    try:
        roster = read_json(data, _DECODER)
        refuse_repeated_keys(data)
    except HearthNetError as error:
        raise HearthNetError("bad_request", f"is no roster: {error}") from error
    signed.check(roster, roster.community_id, PURPOSE)
    for entry in roster.members:
        _check_login(entry)
    nodes, logins = {entry.node_id for entry in roster.members}, {entry.login for entry in roster.members}
    if not len(nodes) == len(logins) == len(roster.members):
        raise HearthNetError("bad_request", "is no roster: a node or a login stands in it twice")
    return roster


def _check_login(entry: Member) -> None:
    signature = ids.unb64(entry.login_signature)
    if not is_login(entry.login) or not verify(
        entry.node_id, LOGIN_PURPOSE, entry.login.encode("ascii"), signature
    ):
        raise HearthNetError(
            "invalid_signature", f"the login of {ids.short_id(entry.node_id)} is not its own"
        )
