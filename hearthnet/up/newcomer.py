"""What a newcomer asks of the inviter's node: the community's events, then to be let in (decisions/0045).

It trusts nobody but the two ids in the invite: frames are boxed to the inviter's key, and what comes back is
proved from the community id upward.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet import ids
from hearthnet.bus import Bus
from hearthnet.bus.link import Link
from hearthnet.bus.peer import Peer
from hearthnet.errors import HearthNetError
from hearthnet.home import Home
from hearthnet.times import now_ms
from hearthnet.trust import invite as invites
from hearthnet.trust import roster as rosters
from hearthnet.trust import signed
from hearthnet.trust.community import CommunityEvent
from hearthnet.trust.invite import InviteText
from hearthnet.trust.keys import Identity
from hearthnet.trust.roster import Member, Policy, Roster

_MOST_PAGES: Final = 1000
_NOT_THERE: Final = frozenset({"not_found", "partition", "timeout"})
"""It does not run, or it does not answer this invite any more; the server behind it tells which (join.py)."""


class Newcomer:
    """A place on the inviter's bus, under the invite's key or, for one who was let in before, the own.

    Use it as a context manager around `connect`.
    """

    def __init__(self, invite: InviteText, bus: Bus) -> None:
        self._invite = invite
        self._bus = bus

    @classmethod
    async def connect(cls, home: Home, url: str, who: Identity, invite: InviteText) -> Newcomer:
        """Joins the bus behind `url` as `who`. Errors as of `Link.connect`."""
        link = await Link.connect(url, who.login(), "join")
        peer = Peer(who, _only(invite), link, home)
        await peer.listen()
        return cls(invite, Bus(peer))

    async def close(self) -> None:
        """Leaves the bus."""
        await self._bus.close()

    async def roster(self, held: Roster | None = None) -> Roster:
        """The community's roster, proved from its id; with all that `held` knows of it.

        `not_found` where the inviter's node is not there, `unauthorized` where it was put out meanwhile, and
        `bad_request` where its events are not that community's.
        """
        events = list(held.events) if held is not None else []
        for _ in range(_MOST_PAGES):
            heads = rosters.derive(self._invite.community_id, events).heads() if events else {}
            output = await self._call("community.sync@1.0", {"heads": heads})
            events += signed.readable(output["events"], CommunityEvent)
            if not (output["more"] and output["events"]):
                break
        roster = rosters.derive(self._invite.community_id, events)
        if roster.member(self._invite.inviter) is None:
            raise HearthNetError(
                "unauthorized",
                f"who made this invite does not belong to {roster.name} any more; ask another member",
            )
        return roster

    async def join(self, roster: Roster, newcomer: Identity, display_name: str) -> Roster:
        """Asks to be let in as `newcomer`; the roster with it among the members.

        Raises what `trust.invite.ask` and the inviter's node say against it: `expired`, `unauthorized` for an
        invite that was used, withdrawn or is for another node, `revoked` for a node that was put out.
        """
        asked = invites.ask(roster, self._invite.key(), newcomer, display_name, now_ms())
        given = {"event": msgspec.to_builtins(asked), "heads": roster.heads()}
        output = await self._call("community.join@1.0", given)
        joined = rosters.merge(roster, [asked, *signed.readable(output["events"], CommunityEvent)])
        if joined.member(newcomer.node_id) is None:
            why = joined.flaw(asked) or "none of them says so"
            raise HearthNetError(
                "unauthorized", f"the inviter's node let this one in, but its events do not: {why}"
            )
        return joined

    async def _call(self, capability: str, given: dict[str, Any]) -> dict[str, Any]:
        try:
            reply = await self._bus.call(
                capability, {"params": {}, "input": given}, node=self._invite.inviter
            )
        except HearthNetError as error:
            if error.code not in _NOT_THERE:
                raise
            raise HearthNetError(
                "partition",
                f"the node that made the invite ({ids.short_id(self._invite.inviter)}) does not answer; it "
                f"has to run while the invite is redeemed ({error.message})",
            ) from error
        return dict(reply.output)


def _only(invite: InviteText) -> Roster:
    """What is known before anything was heard: the inviter belongs to the community."""
    inviter = Member(invite.inviter, "member", "", "", "", "", "")
    return Roster(
        version=0,
        community_id=invite.community_id,
        name=invite.name,
        created_at="",
        policy=Policy(),
        members=(inviter,),
        revoked=(),
        invites=(),
        head_lamport=0,
        events=(),
    )
