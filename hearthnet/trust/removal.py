"""Removals that are allowed, and what those that were decided upon leave of other events (trust/fold.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hearthnet.trust.community import RANK, CommunityEvent, Demoted, Revoked
from hearthnet.trust.history import History


class Removal(NamedTuple):
    """A revocation or demotion that is allowed. Of two that exclude each other the lighter stands.

    `known` are the target's events that it leaves as they are; `relies_on` its signers and those whose
    promotions made them trusted, up to the founder.
    """

    place: int
    event: CommunityEvent
    content: Demoted | Revoked
    known: frozenset[str]
    weight: tuple[int, ...]
    relies_on: frozenset[str]


Agreement = tuple[str, str, str, str]
"""What kind of removal, of whom, to which level or why, under which client id."""


def known_of(history: History, event: CommunityEvent, content: Demoted | Revoked) -> frozenset[str]:
    """The events of the target that a removal leaves as they are."""
    # Who leaves has done what it had done: else it could take back whom it let in.
    leaving = event.author == content.target_node_id
    return history.below(content.target_node_id, (event.previous,) if leaving else content.target_heads)


def what_was_agreed(content: Demoted | Revoked) -> Agreement | None:
    """What the co-signers of a removal agreed to, None where there are none."""
    if not content.co_signers:
        return None
    what = content.reason if isinstance(content, Revoked) else content.new_level
    return type(content).__name__, content.target_node_id, what, content.client_id


def carried_out(decided: Iterable[Removal]) -> dict[Agreement | None, int]:
    """Where each agreement takes effect: once, however many events carry its signatures. Else any trusted
    member could repeat a removal alone, with what others signed long before the target came back.
    """
    found: dict[Agreement | None, int] = {}
    for removal in decided:
        agreement = what_was_agreed(removal.content)
        if agreement is not None:
            found[agreement] = min(removal.place, found.get(agreement, removal.place))
    return found


def limits(decided: Sequence[Removal]) -> dict[str, list[tuple[int, frozenset[str], int]]]:
    """For each target of a removal: up to where its events have no more than which rank behind them, other
    than those that the removal knew.
    """
    found: dict[str, list[tuple[int, frozenset[str], int]]] = {}
    first = carried_out(decided)
    for removal in decided:
        content = removal.content
        rank = RANK[content.new_level] if isinstance(content, Demoted) else 0
        until = first.get(what_was_agreed(content), removal.place)
        found.setdefault(content.target_node_id, []).append((until, removal.known, rank))
    return found
