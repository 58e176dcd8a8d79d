"""Members, invites and revoked nodes while events are replayed (trust/community/replay.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hearthnet.trust.community.events import RANK, CommunityEvent, EventEntry, Invited

FAR: Final = 2**31
"""The depth of a member whom nobody promoted."""


class MemberState(msgspec.Struct):
    """A member; `sponsor` made it trusted or more, `depth` promotions away from the founder."""

    entry: EventEntry
    rank: int
    added_at: str
    sponsor: str = ""
    depth: int = FAR


class OpenInvite(msgspec.Struct):
    """An invite at its `place` in the order, with the highest rank and all signers behind it.

    `signers` include its author; `able` nodes other than the invitee could have signed; `by_trusted` tells
    whether its author was trusted there.
    """

    event: CommunityEvent
    content: Invited
    place: int
    rank: int
    signers: set[str]
    able: int
    by_trusted: bool
    open: bool = True

    def recalls_revocation(self, node: str, revoked: RevokedMember) -> bool:
        """Return whether the invite readmits `node` after it was `revoked`.

        Co-signers name the revocation; otherwise their signatures would undo every later one, too.
        """
        content = self.content
        agreed = not content.co_signers or content.recalls == revoked.event_hash
        is_named = content.invitee_node_id == node
        return agreed and is_named and self.rank >= RANK["trusted"] and self.place > revoked.place


class RevokedMember(msgspec.Struct, frozen=True):
    """A revoked node: by which event, at which place, when by its author's clock, and why.

    `by_itself` says that no other member than the node itself, or its person, has put it out.
    """

    place: int
    event_hash: str
    revoked_at: str
    reason: str
    by_itself: bool = False


def depth_of(node: str, members: Mapping[str, MemberState], root: str) -> int:
    """Return how many promotions `node` is away from the founder; -1 for the root."""
    standing = members.get(node)
    return -1 if node == root else FAR if standing is None else standing.depth


def weigh(
    signers: set[str], members: Mapping[str, MemberState], root: str, founder: str
) -> tuple[tuple[int, ...], frozenset[str]]:
    """Return the weight of a removal with these signers, and the nodes that it relies on.

    The lightest wins: the root's, then one with more lines of promotion, then one nearer to the founder.
    """
    lines = [_sponsors(signer, members, (root, founder)) for signer in signers]
    if root in signers:
        return (-FAR,), frozenset()
    heads = {line[-1] for line in lines}
    depths = sorted(depth_of(signer, members, root) for signer in signers)
    return (-len(heads), *depths, FAR), frozenset().union(*lines)


def _sponsors(node: str, members: Mapping[str, MemberState], ends: tuple[str, str]) -> list[str]:
    """List `node` and its sponsors up to the one chosen by one of `ends`, the founder and the root."""
    line = [node]
    while True:
        standing = members.get(line[-1])
        sponsor = "" if standing is None else standing.sponsor
        if not sponsor or sponsor in ends or sponsor in line:
            return line
        line.append(sponsor)
