"""Approvals and grants by other devices of the person, and attacks on that, at a real provider."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from hearthnet.bus.bus import Bus, find_contract
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.service.hosting.host import Host
from hearthnet.trust import signed_document
from hearthnet.trust.authorization import approval as approvals
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.authorization.grant import Grant, sign_grant
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, ProbeService, post

pytestmark = pytest.mark.asyncio
RUN = ids.new_ulid()
PAPER, KEY, NEW_KEY, PHONE, PAGE = (Identity(bytes([number]) * 32) for number in range(200, 205))
OTHER_PAPER, OTHER_KEY, OTHERS_PHONE = (Identity(bytes([number]) * 32) for number in range(210, 213))
Make = Callable[[Roster], CommunityEvent]


@dataclass
class Street:
    """A provider at the founder's node, and the founder's person: its node, a phone and a page.

    The phone of another person is there as well.
    """

    host: Host
    bus: Bus
    service: ProbeService

    async def write(self, *events: Make) -> None:
        """Has the provider's process know of what the founder's node writes."""
        for make in events:
            membership = self.host.peer.membership
            await membership.add((make(membership.roster),), ())

    def author(self, held: Roster) -> CommunityAuthor:
        """The founder's acts."""
        return CommunityAuthor(held, self.bus.peer.identity)

    def added(self, device: Identity, paper: Identity = PAPER, key: Identity = KEY) -> Make:
        """`device` as a phone."""

        def make(held: Roster) -> CommunityEvent:
            community = held.community_id
            offered = statements.offered_device(
                community, paper.node_id, key, device.node_id, "phone", "phone"
            )
            return self.author(held).add_device(statements.consented(community, offered, device), now_ms())

        return make

    def keyed(self, paper: Identity, key: Identity, *stay: Identity) -> Make:
        """A new person key."""
        return lambda held: self.author(held).key_person(
            paper, key, now_ms(), tuple(one.node_id for one in stay)
        )

    def removed(self, device: Identity, signer: Identity = KEY) -> Make:
        """`device` is removed by the founder's person."""
        return lambda held: self.author(held).remove_device(
            PAPER.node_id, signer, device.node_id, "lost", now_ms()
        )

    async def call(self, consent: Consent, token: str = "", **more: Any) -> Any:
        """A model's post, with what `consent` makes of it."""
        body = post(ids.new_ulid())
        lent = token or self.token()
        return await self.bus.call(POST, body, token=lent, run=RUN, approval=consent(self.bus, body), **more)

    def token(self, **more: Any) -> str:
        """The node's own run token, or a session."""
        peer = self.bus.peer
        return mint(
            peer.identity,
            subject=peer.node_id,
            audience=peer.community,
            scope=Scope(capabilities=(POST,)),
            now_ms=now_ms(),
            ttl_seconds=60,
            **(more or {"run": RUN}),
        )

    async def refused(self, consent: Consent, token: str = "") -> tuple[str, str]:
        """Code and rule by which the provider refuses; nothing was done."""
        before = len(self.service.calls)
        with pytest.raises(HearthNetError) as caught:
            await self.call(consent, token)
        assert len(self.service.calls) == before
        return caught.value.code, caught.value.rule


Consent = Callable[[Bus, dict[str, Any]], Approval]
REFUSED = ("unauthorized", "approver")


def by(signer: Identity, person: str | None = PAPER.node_id, **changes: Any) -> Consent:
    """An approval of exactly the call by `signer`, which names `person`."""

    def make(bus: Bus, body: dict[str, Any]) -> Approval:
        peer, now = bus.peer, now_ms()
        fields: dict[str, Any] = {
            "id": ids.new_ulid(),
            "community": peer.community,
            "approver": signer.node_id,
            "actor": peer.node_id,
            "provider": peer.node_id,
            "capability": POST,
            "arguments_digest": digest(body),
            "idempotency_key": body["input"]["client_id"],
            "run": RUN,
            "tool_call_id": "call_1",
            "time": now,
            "expires": now + 60_000,
            "person": msgspec.UNSET if person is None else person,
        }
        unsigned = Approval(**{**fields, **changes})
        return signed_document.sign(unsigned, signer, approvals.PURPOSE)

    return make


@contextlib.asynccontextmanager
async def living(mesh: Mesh) -> AsyncIterator[Street]:
    """The street with its two persons."""
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        street = Street(host, bus, service)
        await street.write(
            street.keyed(PAPER, KEY),
            lambda held: street.author(held).add_node(PAPER.node_id, KEY, "node", now_ms()),
            street.added(PHONE),
            street.added(PAGE),
            street.keyed(OTHER_PAPER, OTHER_KEY),
            street.added(OTHERS_PHONE, OTHER_PAPER, OTHER_KEY),
        )
        yield street


@pytest.mark.req("PERSON-9")
async def test_another_device_of_the_person_approves(mesh: Mesh) -> None:
    async with living(mesh) as street:
        for device in (PHONE, PAGE):
            reply = await street.call(by(device))
            assert reply.output
        assert (await street.call(by(street.bus.peer.identity, None))).output
        guest = street.token(principal="owner", cnf=PAGE.node_id)
        for consent in (by(PAGE, None), by(PHONE), by(street.bus.peer.identity)):
            assert (await street.call(consent, guest)).output


@pytest.mark.req("PERSON-9")
async def test_approval_has_one_form_for_each_approver(mesh: Mesh) -> None:
    async with living(mesh) as street:
        own = street.bus.peer.identity
        assert await street.refused(by(own)) == REFUSED
        assert await street.refused(by(PHONE, None)) == REFUSED
        assert await street.refused(by(PHONE, "")) == REFUSED

        def altered(bus: Bus, body: dict[str, Any]) -> Approval:
            return msgspec.structs.replace(by(PHONE)(bus, body), person=OTHER_PAPER.node_id)

        assert await street.refused(altered) == ("invalid_signature", "")


@pytest.mark.req("PERSON-9", "ATTACK-48")
async def test_removed_device_approves_nothing(mesh: Mesh) -> None:
    async with living(mesh) as street:
        assert (await street.call(by(PHONE))).output
        await street.write(street.removed(PHONE))
        assert await street.refused(by(PHONE)) == REFUSED
        await street.write(street.removed(PAGE, PAPER))
        assert await street.refused(by(PAGE)) == REFUSED
        guest = street.token(principal="owner", cnf=PAGE.node_id)
        assert await street.refused(by(street.bus.peer.identity), guest) == ("revoked", "")


@pytest.mark.req("PERSON-9", "ATTACK-48")
async def test_device_of_another_person_approves_nothing(mesh: Mesh) -> None:
    async with living(mesh) as street:
        for paper in (PAPER, OTHER_PAPER):
            assert await street.refused(by(OTHERS_PHONE, paper.node_id)) == REFUSED
        assert await street.refused(by(OTHERS_PHONE, None)) == REFUSED
        stranger = Identity.generate()
        for person in (PAPER.node_id, stranger.node_id, OTHER_PAPER.node_id):
            assert await street.refused(by(stranger, person)) == REFUSED
        assert await street.refused(by(PHONE, OTHER_PAPER.node_id)) == REFUSED
        others = street.token(principal="eva", cnf=OTHERS_PHONE.node_id)
        assert await street.refused(by(PHONE), others) == REFUSED
        assert await street.refused(by(PHONE, OTHER_PAPER.node_id), others) == REFUSED


@pytest.mark.req("PERSON-9", "ATTACK-48")
async def test_recovery_key_and_person_key_approve_nothing(mesh: Mesh) -> None:
    async with living(mesh) as street:
        for key in (PAPER, KEY):
            assert await street.refused(by(key)) == REFUSED


@pytest.mark.req("PERSON-9", "ATTACK-48")
async def test_device_of_a_replaced_person_key_approves_nothing(mesh: Mesh) -> None:
    """Who had the person key has added a device; the recovery key names a new one, and what stays."""
    async with living(mesh) as street:
        thief = Identity.generate()
        await street.write(street.added(thief))
        assert (await street.call(by(thief))).output
        own = street.bus.peer.identity
        await street.write(street.keyed(PAPER, NEW_KEY, own, PHONE))
        assert await street.refused(by(thief)) == REFUSED
        assert await street.refused(by(PAGE)) == REFUSED
        assert (await street.call(by(PHONE))).output
        late = Identity.generate()
        await street.write(street.added(late))
        assert await street.refused(by(late)) == REFUSED


@pytest.mark.req("PERSON-9", "ATTACK-48")
async def test_gateway_without_the_guests_key_has_no_other_device(mesh: Mesh) -> None:
    async with living(mesh) as street:
        guest = street.token(principal="eva")
        for changes in ({}, {"via": "gateway"}):
            assert await street.refused(by(PHONE, **changes), guest) == REFUSED
        assert (await street.call(by(street.bus.peer.identity, None, via="gateway"), guest)).output


@pytest.mark.req("PERSON-9")
async def test_standing_grant_of_another_device_counts_until_it_is_removed(mesh: Mesh) -> None:
    async with living(mesh) as street:

        def grant(signer: Identity) -> Grant:
            peer, now = street.bus.peer, now_ms()
            unsigned = Grant(
                id=ids.new_ulid(),
                community=peer.community,
                approver=signer.node_id,
                actor=peer.node_id,
                provider=peer.node_id,
                capability=POST,
                params_constraints={},
                tool_hash=find_contract(POST).schema_hash,
                max_uses=2,
                time=now,
                expires=now + 60_000,
                person=PAPER.node_id,
            )
            return sign_grant(signer, unsigned)

        async def use(one: Grant, number: int) -> Any:
            body = post(ids.new_ulid())
            token = street.token()
            return await street.bus.call(POST, body, token=token, run=RUN, grant=one, use=number)

        mine = grant(PHONE)
        assert (await use(mine, 1)).output
        await street.write(street.removed(PHONE))
        for one in (grant(OTHERS_PHONE), mine):
            with pytest.raises(HearthNetError) as caught:
                await use(one, 2)
            assert (caught.value.code, caught.value.rule) == REFUSED
