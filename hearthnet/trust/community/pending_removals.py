"""The roster without the members whom removals revoke that still wait for events they build on.

Apart from roster.py, which derives the roster of the events that are held: this one is not written anywhere.

See: docs/protocol/community.md#place.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hearthnet.trust.community.events import CommunityEvent, Demoted
from hearthnet.trust.community.history import History
from hearthnet.trust.community.reducer import replay
from hearthnet.trust.community.removals import removal_target
from hearthnet.trust.community.roster import Revocation, Roster


def without_revoked(
    roster: Roster, removals: Sequence[CommunityEvent]
) -> tuple[Roster, list[CommunityEvent]]:
    """Return the roster without the members that `removals` revoke, and those of `removals` that count.

    Their places are not there yet: they wait for events that they build on, and are judged as if these were
    held, by present levels and rules. The events of the result, and what is written to a file, are those of
    `roster`.
    """
    if not removals:
        return roster, []
    state = replay(History(roster.community_id, [*roster.events, *removals]))
    counting = [one for one in removals if one.hash not in state.flaws]
    waiting = {removal_target(one) for one in counting if not isinstance(one.content, Demoted)}
    out = {
        node: Revocation(node, one.revoked_at, one.reason)
        for node, one in state.revoked.items()
        if node in waiting and roster.member(node) is not None
    }
    if not out:
        return roster, counting
    shown = msgspec.structs.replace(
        roster,
        members=tuple(member for member in roster.members if member.node_id not in out),
        invites=tuple(invite for invite in roster.invites if invite.inviter not in out),
        revoked=(*roster.revoked, *out.values()),
    )
    shown.__dict__.update(history=roster.history, folded=roster.folded, proven=roster)
    return shown, counting
