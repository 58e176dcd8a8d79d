"""A community for tests of its rules: a founder, four trusted members and two plain ones, at a fixed time."""

from __future__ import annotations

import functools
from typing import Literal

from hearthnet.trust.community import commands, events, invites, roster
from hearthnet.trust.community.events import Admitted, CommunityEvent, Demoted, Level, Promoted, Revoked
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, act, agreeing, raise_to, take_in

ROOT, FOUNDER, TILDA, QUINN, SAM, UMA, MAX, NORA, EVE, MALLORY = (
    Identity(bytes([number]) * 32) for number in range(11, 21)
)
NAMES = {
    one.node_id: name
    for one, name in (
        (ROOT, "root"),
        (FOUNDER, "founder"),
        (TILDA, "tilda"),
        (QUINN, "quinn"),
        (SAM, "sam"),
        (UMA, "uma"),
        (MAX, "max"),
        (NORA, "nora"),
        (EVE, "eve"),
        (MALLORY, "mallory"),
    )
}
KEY = Identity(bytes([99]) * 32)
"""Of an invite."""
TRUSTED = (TILDA, QUINN, SAM, UMA)


def founded() -> Roster:
    """The community of its founder alone."""
    return roster.create(ROOT, roster.member(FOUNDER, "anchor", "founder", NOW), "Ahornweg", NOW)


@functools.cache
def town() -> Roster:
    """The founder, four whom it promoted to trusted, and Max and Nora."""
    held = founded()
    for one in (*TRUSTED, MAX, NORA):
        held = take_in(held, FOUNDER, one, NAMES[one.node_id], NOW)
    for one in TRUSTED:
        held = raise_to(held, FOUNDER, one, "trusted", NOW)
    return held


def levels(held: Roster) -> dict[str, str]:
    """Everybody by name."""
    return {NAMES.get(one.node_id, "somebody"): one.level for one in held.members}


def with_events(held: Roster, *events: CommunityEvent) -> Roster:
    """`held` with `events`, each of which has its place and is kept."""
    larger = roster.merge(held, events)
    assert all(larger.history.get(event.hash) is not None for event in events)
    return larger


def removal(
    held: Roster,
    by: Identity,
    target: Identity,
    *co_signers: Identity,
    known: tuple[str, ...] | None = None,
    level: Level | None = None,
    place: tuple[int, str, int] | None = None,
) -> CommunityEvent:
    """`by` revokes `target`, or demotes it to `level`; `known` instead of all of its events."""
    client_id = f"{by.node_id} {target.node_id}"
    ends = held.history.tips.get(target.node_id, ())
    heads = tuple(tip.hash for tip in ends) if known is None else known
    if level is None:
        signatures = agreeing(held, events.REVOKED, target, "other", client_id, *co_signers)
        content: events.Data = Revoked(
            target_node_id=target.node_id,
            reason="other",
            client_id=client_id,
            co_signers=signatures,
            target_heads=heads,
        )
        return act(held, by, events.REVOKED, content, place)
    signatures = agreeing(held, events.DEMOTED, target, level, client_id, *co_signers)
    content = Demoted(
        target_node_id=target.node_id,
        new_level="trusted" if level == "trusted" else "member",
        client_id=client_id,
        co_signers=signatures,
        target_heads=heads,
    )
    return act(held, by, events.DEMOTED, content, place)


def early(held: Roster, author: Identity, after: int = 0) -> tuple[int, str, int]:
    """A place after `author`'s last event, with the lowest lamport at which all have their levels.

    With `after`, right after its event of this sequence: a second event in one place.
    """
    ends = held.history.tips.get(author.node_id, ())
    if not ends:
        return 1, "", town().head_lamport
    last = ends[-1]
    while after and last.sequence > after:
        before = held.history.get(last.previous)
        assert before is not None
        last = before
    return last.sequence + 1, last.hash, max(last.lamport + 1, town().head_lamport)


def promoted(held: Roster, by: Identity, target: Identity, level: Level = "trusted") -> CommunityEvent:
    """A promotion that is allowed."""
    return commands.CommunityAuthor(held, by).promote(target.node_id, level, client_id="p", now_ms=NOW)


def raising(target: Identity, level: Literal["trusted", "anchor"] = "trusted") -> Promoted:
    """What a promotion says."""
    return Promoted(target_node_id=target.node_id, new_level=level, client_id="x")


def invited(
    held: Roster,
    by: Identity,
    key: Identity = KEY,
    place: tuple[int, str, int] | None = None,
    expires_at: int = NOW + DAY_MS,
    invitee: str = "",
) -> CommunityEvent:
    """An invite, whether allowed or not."""
    content = events.invited(
        held.community_id, by.node_id, key, display_name="", expires_at=expires_at, invitee=invitee
    )
    return act(held, by, events.INVITED, content, place)


def admitted(
    held: Roster, by: Identity, joined: CommunityEvent, place: tuple[int, str, int] | None = None
) -> CommunityEvent:
    """A newcomer let in, whether allowed or not."""
    content = Admitted(joined_event_hash=joined.hash, node_id=joined.author)
    return act(held, by, events.ADMITTED, content, place)


def asked(held: Roster, who: Identity, key: Identity = KEY, now_ms: int = NOW) -> CommunityEvent:
    """A request to join under an open invite."""
    return invites.ask(held, key, who, "newcomer", now_ms)


def flaw(held: Roster, event: CommunityEvent) -> str:
    """Why `event` does not count once it is kept; members and rules are as before."""
    larger = with_events(held, event)
    reason = larger.flaw(event)
    if reason:
        assert (larger.members, larger.policy, larger.revoked) == (held.members, held.policy, held.revoked)
    return reason
