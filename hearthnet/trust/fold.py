"""What the events of a community come to: one pure function of the set (docs/decisions/0040).

Events are judged in their order (lamport, event id, hash), each by the levels that those before it gave; one
that is not allowed changes nothing (trust/judge.py). Two things reach back, so that nobody gains by claiming
an early lamport:

- a removal, that is a revocation or demotion, names the target's events that its author knew. All others of
  the target are judged as if they came after it, whatever lamport they claim;
- a change of policy does the same for the events of everyone.

Removals can exclude each other, where neither author knew the other's. So they take effect in rounds. Each
round judges all events with the removals decided so far, and decides upon those that no other removal
threatens: that neither their signers nor those who promoted them are the target of another. Where all that
are left threaten each other, the one stands that more people signed who do not owe their trust to one
another, then the one with signers nearer to the founder. What is decided stays so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hearthnet.errors import HearthNetError
from hearthnet.trust.community import Policy
from hearthnet.trust.history import History
from hearthnet.trust.judge import Gone, Judge, OpenInvite, Standing
from hearthnet.trust.removal import Removal

MAX_ROUNDS: Final = 32
"""After so many rounds all removals that are left are decided upon at once: a bound to the work that the
trusted can make by removing one another.
"""


class Folded(NamedTuple):
    """The outcome. `reached` is the highest lamport; `flaws` says of each event that does not count why."""

    name: str
    created_at: str
    policy: Policy
    members: dict[str, Standing]
    revoked: dict[str, Gone]
    invites: tuple[OpenInvite, ...]
    reached: int
    flaws: dict[str, str]


def fold(history: History) -> Folded:
    """The state that `history` comes to; `bad_request` where no event founds the community."""
    decided: list[Removal] = []
    judge = Judge(history, decided)
    rounds = 0
    while judge.removals:
        rounds += 1
        decided += _next(judge.removals) if rounds < MAX_ROUNDS else judge.removals
        judge = Judge(history, decided)
    if judge.name is None:
        raise HearthNetError("bad_request", "is of no community: nothing founds it")
    return Folded(
        name=judge.name,
        created_at=judge.created_at,
        policy=judge.policy,
        members=judge.members,
        revoked=judge.revoked,
        invites=judge.open_invites(),
        reached=judge.reached,
        flaws=judge.flaws,
    )


def _next(removals: list[Removal]) -> list[Removal]:
    """Those to be decided upon now."""
    by_target: dict[str, list[Removal]] = {}
    for removal in removals:
        by_target.setdefault(removal.content.target_node_id, []).append(removal)
    safe = [removal for removal in removals if not _threatened(removal, by_target)]
    return safe or [min(removals, key=lambda one: (one.weight, one.place))]


def _threatened(removal: Removal, by_target: dict[str, list[Removal]]) -> bool:
    """Whether another removal has one of its signers, or one of their sponsors, for its target, and did not
    know of it.
    """
    return any(
        rival is not removal and removal.event.hash not in rival.known
        for node in removal.relies_on
        for rival in by_target.get(node, ())
    )
