"""A community's members in tests: invited, joined and let in by real signed events."""

from __future__ import annotations

from hearthnet import times
from hearthnet.trust import acts, invite, roster
from hearthnet.trust.community import Level
from hearthnet.trust.keys import Identity
from hearthnet.trust.roster import Roster

DAY_MS = 86_400_000


def take_in(
    held: Roster, by: Identity, newcomer: Identity, name: str = "guest", now_ms: int | None = None
) -> Roster:
    """`held` with `newcomer` as a plain member: `by` invited it and let it in."""
    now = times.now_ms() if now_ms is None else now_ms
    key = Identity.generate()
    invited = acts.invite(held, by, key, display_name=name, expires_at=now + DAY_MS, now_ms=now)
    held = roster.merge(held, [invited])
    asked = invite.ask(held, key, newcomer, name, now)
    return roster.merge(held, invite.admit(held, by, asked, now))


def raise_to(held: Roster, by: Identity, target: Identity, level: Level, now_ms: int | None = None) -> Roster:
    """`held` with `target` raised to `level` by `by`."""
    now = times.now_ms() if now_ms is None else now_ms
    client_id = f"raise {target.node_id} to {level}"
    return roster.merge(
        held, [acts.promote(held, by, target.node_id, level, client_id=client_id, now_ms=now)]
    )
