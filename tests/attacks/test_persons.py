"""Consent by keys that are no devices of the person, or no more, at the processes of a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import LOG
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.times import now_ms
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.approval import PURPOSE, Approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import POST, Attacker, post_body
from tests.attacks.conftest import Victim
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
RUN = ids.new_ulid()


class Carol:
    """The member carol as a person: a recovery key, a person key, a node, and devices without a node."""

    def __init__(self, node: Attacker, victim: Victim, actor: str) -> None:
        self.recovery, self.key = Identity.generate(), Identity.generate()
        self.person = self.recovery.node_id
        self.node, self.own = node, node.peer.identity
        self._victim, self._actor = victim, actor
        self.token = mint(
            self.own,
            subject=actor,
            audience=victim.community,
            scope=Scope(capabilities=(POST,)),
            now_ms=now_ms(),
            ttl_seconds=300,
            run=RUN,
        )

    @property
    def held(self) -> Roster:
        """What carol's process knows."""
        return self.node.peer.membership.roster

    async def write(self, event: CommunityEvent) -> None:
        """Announces an event of carol's node to all."""
        await self.node.peer.membership.add((event,), ())
        for body in gossip_frames.batches([event], ()):
            await gossip_frames.publish(self.node.peer.sender, LOG, body)

    async def begin(self) -> None:
        """The person, with carol's node."""
        await self.write(CommunityAuthor(self.held, self.own).key_person(self.recovery, self.key, now_ms()))
        author = CommunityAuthor(self.held, self.own)
        await self.write(author.add_node(self.person, self.key, "carol", now_ms()))

    async def add(self, device: Identity, key: Identity | None = None) -> None:
        """A phone of carol's, added by `key` in place of the person key."""
        held = self.held
        offered = statements.offered_device(
            held.community_id, self.person, key or self.key, device.node_id, "phone", "phone"
        )
        signed = statements.consented(held.community_id, offered, device)
        await self.write(CommunityAuthor(held, self.own).add_device(signed, now_ms()))

    def yes(self, body: dict[str, Any], signer: Identity, person: str) -> dict[str, Any]:
        """An approval of exactly this call by `signer`, which names `person`."""
        now = now_ms()
        approval = Approval(
            id=ids.new_ulid(),
            community=self._victim.community,
            approver=signer.node_id,
            actor=self._actor,
            provider=self._victim.node,
            capability=POST,
            arguments_digest=digest(body),
            idempotency_key=body["input"]["client_id"],
            run=RUN,
            tool_call_id="call_1",
            time=now,
            expires=now + 60_000,
            person=person,
        )
        made: dict[str, Any] = msgspec.to_builtins(signed_document.sign(approval, signer, PURPOSE))
        return made


@pytest_asyncio.fixture
async def carol(victim: Victim, mallory: Attacker) -> AsyncIterator[Carol]:
    """Carol, whose run mallory carries out."""
    node = await victim.attacker("carol")
    yield Carol(node, victim, mallory.peer.node_id)
    await node.bus.close()


@pytest.mark.req("ATTACK-48")
async def test_only_present_devices_of_a_person_approve(
    victim: Victim, mallory: Attacker, market: OfferView, carol: Carol
) -> None:
    phone, thief, others = Identity.generate(), Identity.generate(), Identity.generate()

    async def code(signer: Identity, person: str = carol.person) -> str:
        body = post_body("By a device")
        approval = carol.yes(body, signer, person)
        return await mallory.call(market, POST, body, token=carol.token, run=RUN, approval=approval)

    async def becomes(expected: str, signer: Identity) -> None:
        async def seen() -> bool:
            return await code(signer) == expected

        await wait_for(seen, what=f"{expected} for a device")

    await carol.begin()
    await carol.add(phone)
    await carol.add(thief)
    await becomes("ok", phone)
    await becomes("ok", thief)

    # Another person, mallory, names her own device with carol's person, and carol's with her own.
    mallorys = Carol(mallory, victim, mallory.peer.node_id)
    await mallorys.begin()
    await mallorys.add(others)
    for signer, person in (
        (others, carol.person),
        (others, mallorys.person),
        (phone, mallorys.person),
        (mallory.peer.identity, carol.person),
        (carol.recovery, carol.person),
        (carol.key, carol.person),
        (carol.own, carol.person),
    ):
        assert await code(signer, person) == "unauthorized"

    # A device that was removed, then all that a replaced person key had added and the new one does not keep.
    author = CommunityAuthor(carol.held, carol.own)
    await carol.write(author.remove_device(carol.person, carol.key, phone.node_id, "lost", now_ms()))
    await becomes("unauthorized", phone)
    assert await code(thief) == "ok"
    new = Identity.generate()
    author = CommunityAuthor(carol.held, carol.own)
    await carol.write(author.key_person(carol.recovery, new, now_ms(), (carol.own.node_id,)))
    await becomes("unauthorized", thief)
    late, bought = Identity.generate(), Identity.generate()
    await carol.add(late)
    await carol.add(bought, new)
    await becomes("ok", bought)
    assert await code(late) == "unauthorized"
    assert await mallory.posted("By a device") >= 3
