"""The state of a community, as a pure function of its events (docs/decisions/0040).

Events are judged in their order (lamport, event id, hash), each by the levels that the earlier ones gave; an
event that is not allowed changes nothing (trust/community/replay.py). Two kinds act backwards, so that
claiming an early lamport gains nothing:

- a removal, that is a revocation or demotion, names the target's events that its author knew. All others of
  the target are judged as if they came after it, whatever lamport they claim;
- a change of policy does the same for the events of all authors.

Removals can exclude each other if neither author knew the other's. They take effect in rounds. Each round
judges all events with the removals decided so far, and decides upon those that no other removal threatens:
neither their signers nor the promoters of these are the target of another. If all that are left threaten each
other, the one is chosen that is signed by more people who do not owe their trust to one another, then the one
with signers nearer to the founder. Decisions are final.
"""

from __future__ import annotations

from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community.history import History
from hearthnet.trust.community.person_statements import DeviceRemoved
from hearthnet.trust.community.removals import Removal
from hearthnet.trust.community.replay import RosterReplay

MAX_ROUNDS: Final = 32
"""Maximum number of rounds, after which all remaining removals are decided upon at once.

Bounds the work that trusted members can cause by removing one another.
"""


def replay(history: History) -> RosterReplay:
    """Return the state after `history`.

    Raises:
        HearthNetError: `bad_request` if no event founds the community.
    """
    decided: list[Removal] = []
    state = RosterReplay(history, decided)
    rounds = 0
    while state.removals:
        rounds += 1
        decided += _next(state.removals) if rounds < MAX_ROUNDS else state.removals
        state = RosterReplay(history, decided, state.statements)
    if not state.name:
        raise HearthNetError("bad_request", "is of no community: nothing founds it")
    return state


def _next(removals: list[Removal]) -> list[Removal]:
    """Return the removals to decide upon in this round."""
    by_target: dict[str, list[Removal]] = {}
    for removal in removals:
        by_target.setdefault(removal.content.target_node_id, []).append(removal)
    safe = [removal for removal in removals if not _threatened(removal, by_target)]
    return safe or [min(removals, key=lambda one: (one.weight, one.place))]


def _threatened(removal: Removal, by_target: dict[str, list[Removal]]) -> bool:
    """Return whether another removal targets one of its signers or their sponsors.

    A removal that knew this one does not threaten it. Nor do those of one device by persons threaten each
    other: what they say comes to the same in any order, and one for each round would be most of the rounds.
    """
    return any(
        rival is not removal and removal.event.hash not in rival.known and not _is_sibling(removal, rival)
        for node in removal.relies_on
        for rival in by_target.get(node, ())
    )


def _is_sibling(removal: Removal, rival: Removal) -> bool:
    """Return whether persons remove the same device by both."""
    both = isinstance(removal.event.content, DeviceRemoved), isinstance(rival.event.content, DeviceRemoved)
    return all(both) and removal.content.target_node_id == rival.content.target_node_id
