"""Allowed removals, and the effect of those decided upon on other events (trust/community/reducer.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community.events import RANK, CommunityEvent, Demoted, Revoked
from hearthnet.trust.community.history import History
from hearthnet.trust.community.person_statements import DeviceRemoved


class Removal(NamedTuple):
    """An allowed revocation or demotion; of two that exclude each other the lighter one wins.

    `known` are the target's events that it leaves as they are; `relies_on` its signers and their sponsors, up
    to the founder.
    """

    place: int
    event: CommunityEvent
    content: Demoted | Revoked
    known: frozenset[str]
    weight: tuple[int, ...]
    relies_on: frozenset[str]


def removal_target(event: CommunityEvent) -> str:
    """Return whom `event` would revoke or demote; empty if it is no removal, or malformed."""
    try:
        content = removal_of(event)
    except HearthNetError:
        return ""
    return "" if content is None else content.target_node_id


def removal_of(event: CommunityEvent) -> Demoted | Revoked | None:
    """Return what `event` removes, that of a person as a revocation of the device; None if it is no removal.

    Raises:
        HearthNetError: `bad_request` if it is malformed.
    """
    match event.content:
        case Demoted() | Revoked() as content:
            return content
        case DeviceRemoved(device=device, person=person, reason=reason, target_heads=heads):
            return Revoked(target_node_id=device, reason=reason, client_id=person, target_heads=heads)
        case _:
            return None


def is_own(event: CommunityEvent) -> bool:
    """Return whether a node is removed by itself alone, or by its person."""
    return isinstance(event.content, DeviceRemoved) or event.author == removal_target(event)


Agreement = tuple[str, str, str, str]
"""Kind of removal, target, new level or reason, and client id; of a person, kind, target, and the person."""


def known_of(history: History, event: CommunityEvent, content: Demoted | Revoked) -> frozenset[str]:
    """Return the events of the target that a removal leaves as they are."""
    # All earlier events of a member that leaves stay valid: else it could undo its admissions by leaving.
    leaving = event.author == content.target_node_id and not isinstance(event.content, DeviceRemoved)
    return history.below(content.target_node_id, (event.previous,) if leaving else content.target_heads)


def agreement_of(event: CommunityEvent) -> Agreement | None:
    """Return the agreement of the co-signers of a removal, or of a person; None if there is none."""
    content = event.content
    if isinstance(content, DeviceRemoved):
        return type(content).__name__, content.device, content.person, ""
    if not isinstance(content, Demoted | Revoked) or not content.co_signers:
        return None
    what = content.reason if isinstance(content, Revoked) else content.new_level
    return type(content).__name__, content.target_node_id, what, content.client_id


def executed(decided: Iterable[Removal]) -> dict[Agreement | None, int]:
    """Return the place in the order at which each agreement takes effect.

    It does once, however many events carry its signatures. Otherwise any trusted member could repeat a
    removal alone after the target came back, with the old signatures of others.
    """
    found: dict[Agreement | None, int] = {}
    for removal in decided:
        agreement = agreement_of(removal.event)
        if agreement is not None:
            found[agreement] = min(removal.place, found.get(agreement, removal.place))
    return found


def rank_limits(decided: Sequence[Removal]) -> dict[str, list[tuple[int, frozenset[str], int]]]:
    """Return for each target of a removal the limits on the rank behind its events.

    A limit is (place, known, rank): events before `place` have at most `rank`, except the `known` ones.
    """
    found: dict[str, list[tuple[int, frozenset[str], int]]] = {}
    first = executed(decided)
    for removal in decided:
        content = removal.content
        rank = RANK[content.new_level] if isinstance(content, Demoted) else 0
        until = first.get(agreement_of(removal.event), removal.place)
        found.setdefault(content.target_node_id, []).append((until, removal.known, rank))
    return found
