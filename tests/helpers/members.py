"""A community's members in tests: invited, joined and let in by real signed events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.bus.session.event_intake import UNKNOWN_BYTES
from hearthnet.core import ids, times
from hearthnet.trust import signed_document
from hearthnet.trust.community import commands, doors, event_validation, events, invites, quorum, roster
from hearthnet.trust.community.events import CommunityEvent, CoSigner, Level
from hearthnet.trust.community.person_statements import Statement
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity

DAY_MS = 86_400_000
NOW = 1_795_292_100_000
"""2026-11-21T20:15:00Z"""


def let_in_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on names are taken as the version before took them, unchecked."""
    for module in (commands, invites):
        monkeypatch.setattr(module, "check_name", lambda name: None)


def take_in(
    held: Roster, by: Identity, newcomer: Identity, name: str = "guest", now_ms: int | None = None
) -> Roster:
    """`held` with `newcomer` as a plain member: `by` invited it and let it in."""
    now = times.now_ms() if now_ms is None else now_ms
    key = Identity.generate()
    invited = commands.CommunityAuthor(held, by).invite(
        key, display_name=name, expires_at=now + DAY_MS, now_ms=now
    )
    held = roster.merge(held, [invited])
    asked = invites.ask(held, key, newcomer, name, now)
    return roster.merge(held, invites.admit(held, by, asked, now))


def let_in(held: Roster, by: Identity, newcomer: Identity, admits: Identity | None = None) -> Roster:
    """As `take_in`, whoever admits and however many `by` has let in today."""
    now, key = times.now_ms(), Identity.generate()
    invited = commands.CommunityAuthor(held, by).invite(
        key, display_name="x", expires_at=now + DAY_MS, now_ms=now
    )
    held = roster.merge(held, [invited])
    asked = invites.ask(held, key, newcomer, "x", now)
    held = roster.merge(held, [asked])
    return roster.merge(held, [commands.CommunityAuthor(held, admits or by).admit(asked, now)])


def raise_to(held: Roster, by: Identity, target: Identity, level: Level, now_ms: int | None = None) -> Roster:
    """`held` with `target` raised to `level` by `by`."""
    now = times.now_ms() if now_ms is None else now_ms
    client_id = f"raise {target.node_id} to {level}"
    return roster.merge(
        held,
        [commands.CommunityAuthor(held, by).promote(target.node_id, level, client_id=client_id, now_ms=now)],
    )


def act(
    held: Roster,
    author: Identity,
    event_type: str,
    content: events.Data | doors.Content | Statement,
    place: tuple[int, str, int] | None = None,
    now_ms: int = NOW,
) -> CommunityEvent:
    """An event that `author` really signed, whether it is allowed or not."""
    at = held.next(author.node_id) if place is None else place
    return events.write(author, held.community_id, event_type, content, place=at, now_ms=now_ms)


def agreeing(
    held: Roster, event_type: str, target: Identity, what: str, client_id: str, *signers: Identity
) -> tuple[CoSigner, ...]:
    """The signatures of `signers` under what is to happen to `target`."""
    agreed = quorum.cosign_payload(event_type, held.community_id, target.node_id, what, client_id)
    return tuple(CoSigner(one.node_id, ids.b64(one.sign(events.COSIGN_PURPOSE, agreed))) for one in signers)


def not_understood(held: Roster, author: Identity) -> tuple[CommunityEvent, ...]:
    """Events of `author` that this version does not understand, as large as others take in."""
    filling = {f"m{number}": "" for number in range(100)}
    deep: Any = {}
    for _ in range(event_validation.MAX_DEPTH - 2):
        deep = [deep]
    offered: list[CommunityEvent] = []
    for changes in (
        {"schema_version": 2, "data": {}},
        {"schema_version": 2**31, "event_type": "community." + "z" * 40, "data": {"deep": deep}},
        {"event_type": "community.fair.opened", "data": filling},
    ):
        kept = roster.merge(held, offered)
        left = events.Withdrawn(invite_event_hash="blake3:" + "0" * 64)
        event = act(kept, author, events.WITHDRAWN, left, now_ms=times.now_ms())
        offered.append(
            signed_document.sign(msgspec.structs.replace(event, **changes), author, events.PURPOSE)
        )
    room = UNKNOWN_BYTES - len(offered[-1].encode())
    filled = msgspec.structs.replace(offered[-1], data={**filling, "m0": "x" * room})
    return (*offered[:-1], signed_document.sign(filled, author, events.PURPOSE))
