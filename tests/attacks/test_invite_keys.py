"""A plain member that makes as many invites as it may, and calls with the key of each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import LOG
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.header import Header
from hearthnet.trust.community import commands
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import Attacker
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

SYNC = "community.sync@1.0"
BODY: dict[str, Any] = {"params": {}, "input": {"heads": {}, "limit": 1}}
KEYS = 40
FRAMES = 100
AT_ONCE = 1_000
"""Calls that are read of one sender at once; each is answered, if only with a refusal."""


async def invite(mallory: Bus) -> list[Identity]:
    """The keys of open invites of the member, of which every home learns."""
    held, keys = mallory.peer.roster, [Identity.generate() for _ in range(KEYS)]
    made: list[CommunityEvent] = []
    for key in keys:
        author = commands.CommunityAuthor(held, mallory.peer.identity)
        made.append(author.invite(key, display_name="x", expires_at=now_ms() + 3_600_000, now_ms=now_ms()))
        held = rosters.merge(held, made[-1:])
    for body in gossip_frames.batches(made, ()):
        await gossip_frames.publish(mallory.peer.sender, LOG, body)
    return keys


async def log_in(url: str, key: Identity) -> NatsClient:
    """A connection with the key of an invite, once the server knows it."""

    async def joined() -> NatsClient | None:
        try:
            return await NatsClient.connect(url, key.login(), "invited")
        except HearthNetError:
            return None

    return await wait_for(joined, what="the server to know an invite")


def call(key: Identity, community: str, view: OfferView, instance: str) -> tuple[str, bytes]:
    """Subject and frame of one call with the key."""
    offer = view.offer
    header = Header(
        kind="call",
        id=ids.new_ulid(),
        sender=key.node_id,
        from_instance=instance,
        to=view.node,
        to_instance=offer.instance,
        community=community,
        time=now_ms(),
        capability=SYNC,
        deadline=10_000,
    )
    body = b'{"params":{},"input":{"heads":{},"limit":1}}'
    subject = subjects.call(key.node_id, view.node, offer.instance, parse_capability(SYNC))
    return subject, frames.sealed(header, body, key.box_keys(view.node)[0])


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-40", "ATTACK-42", "RATE-3")
async def test_keys_of_invites_share_the_limits_of_one_sender(tmp_path: Path) -> None:
    neighbourhood = settle_in(tmp_path, "mallory", services=("auth",))
    answered: list[bytes] = []
    with Shell(neighbourhood.founder.path).node() as state:
        url, node = str(state["server"]["url"]), str(state["node_id"])
        async with (
            await Bus.join(neighbourhood.home("mallory"), url, "mallory") as mallory,
            await Bus.join(neighbourhood.founder, url, "owner") as owner,
        ):
            view = await Attacker(mallory).target(SYNC, node)
            links = [(key, await log_in(url, key)) for key in await invite(mallory)]

            async def flood(key: Identity, link: NatsClient) -> None:
                instance = ids.new_instance()
                pattern = subjects.replies_to(key.node_id, instance)
                await link.subscribe(pattern, lambda subject, data, absent: answered.append(data))
                await link.flush_subscriptions()
                for _ in range(FRAMES):
                    link.send(*call(key, mallory.peer.community, view, instance))
                await link.drain()

            floods = asyncio.gather(*(flood(*one) for one in links))
            while not floods.done():
                # Refused with capacity_exceeded where each key has places of its own.
                assert (await owner.call(SYNC, BODY)).output is not None
            await floods
            # What the process was sent before this it has read by then.
            assert await Attacker(mallory).call(view, SYNC, BODY) == "ok"
            for _, link in links:
                await link.flush_subscriptions()
                await link.close()
    assert 0 < len(answered) < 2 * AT_ONCE, "those that are read at once, of all keys together"
