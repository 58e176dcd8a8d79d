"""Requests to join: anybody who holds an invite's key can write any number, each under a name of its own."""

from __future__ import annotations

import os

import msgspec
import pytest

from hearthnet.bus.session import event_intake
from hearthnet.core import ids
from hearthnet.core.times import now_ms
from hearthnet.trust.community import commands, events
from hearthnet.trust.community.events import INVITE_PURPOSE, JOINED, CommunityEvent, Joined
from hearthnet.trust.community.roster import Roster, merge
from hearthnet.trust.keys import Identity
from tests.bus.session.test_membership import FOUNDER, HELD, MEMBER, Voice, hear, hearing, invites, size_of

KEY = Identity(bytes([77]) * 32)


def with_invite(author: Identity) -> tuple[Roster, CommunityEvent]:
    """The community with an invite of `author`'s whose key is `KEY`."""
    now = now_ms()
    made = commands.CommunityAuthor(HELD, author).invite(
        KEY, display_name="", expires_at=now + 3_600_000, now_ms=now
    )
    return merge(HELD, [made]), made


def asking(held: Roster, invite: CommunityEvent, who: Identity) -> CommunityEvent:
    """A request to join that holds by itself."""
    bare = Joined(
        invite_event_hash=invite.hash,
        invite_key=KEY.node_id,
        member=events.entry_of(who, "newcomer"),
        invite_signature="",
    )
    signature = KEY.sign(INVITE_PURPOSE, events.request(held.community_id, bare))
    content = msgspec.structs.replace(bare, invite_signature=ids.b64(signature))
    return events.write(
        who, held.community_id, JOINED, content, place=held.next(who.node_id), now_ms=now_ms()
    )


def strangers(count: int) -> list[Identity]:
    """Keys that cost nothing."""
    return [Identity(os.urandom(32)) for _ in range(count)]


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
async def test_whoever_made_an_invite_answers_for_what_is_written_under_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request is another author's first event; everybody keeps it for good."""
    held, invite = with_invite(MEMBER)
    # Newcomers may use half of what their inviter has.
    room = 2 * size_of(asking(held, invite, who) for who in strangers(5))
    monkeypatch.setattr(event_intake, "BYTES_AT_ONCE", room)
    process = hearing(held)
    for who in strangers(12):
        await hear(process, Voice(MEMBER).events(asking(held, invite, who)))
    assert process.roster.version - held.version == 5
    assert not (await process.add_fetched([asking(held, invite, who) for who in strangers(3)], (), ""))[0]
    for one in (MEMBER, FOUNDER):
        new, _ = await process.add_fetched(invites(one, 1, process.roster), (), "")
        assert new, "members write on"


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
async def test_so_does_it_for_what_its_newcomers_write_and_whom_they_invite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, invite = with_invite(MEMBER)
    (stranger,) = strangers(1)
    first = asking(held, invite, stranger)
    made_events = [first]
    now, known = now_ms(), merge(held, [first])
    for _ in range(6):
        content = events.invited(
            held.community_id, stranger.node_id, KEY, display_name="", expires_at=now + 3_600_000
        )
        made = events.write(
            stranger,
            held.community_id,
            events.INVITED,
            content,
            place=known.next(stranger.node_id),
            now_ms=now,
        )
        known = merge(known, [made])
        made_events += [made, asking(known, made, strangers(1)[0])]
    monkeypatch.setattr(event_intake, "BYTES_AT_ONCE", 2 * size_of(made_events[:4]))
    process = hearing(held)
    for event in made_events:
        await process.add_fetched([event], (), "")
    assert process.roster.version - held.version == 4
