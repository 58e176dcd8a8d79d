"""The person key for a new device: handed, sealed, to the one node that was let in for it, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.core import ids, times
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import commands, invites, roster
from hearthnet.trust.community.invites import InviteText
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from hearthnet_auth import devices
from hearthnet_auth.schemas import DeviceInviteInput
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import DEVICE, INVITE, House, living
from tests.services.auth.test_persons import with_keys

pytestmark = pytest.mark.asyncio


class Owned(NamedTuple):
    """A node whose owner is a person."""

    house: House
    mesh: Mesh

    @property
    def held(self) -> Roster:
        """What its service knows."""
        return self.house.auth._membership.roster

    async def text(self, **terms: object) -> InviteText:
        """A text for a device."""
        return invites.decode_device((await self.house.do(DEVICE, **terms))["invite"])

    async def let_in(self, text: InviteText, newcomer: Identity, admits: Identity | None = None) -> None:
        """`newcomer` joins by `text`, let in by this node or, against its rules, by another one."""
        asked = invites.ask(self.held, text.key(), newcomer, "laptop", times.now_ms())
        by = admits or self.house.identity
        with_request = roster.merge(self.held, [asked])
        admitted = commands.CommunityAuthor(with_request, by).admit(asked, times.now_ms())
        await self.house.auth._membership.add((asked, admitted))

    def sealed(self, newcomer: Identity) -> str:
        """What `newcomer` gets for its question."""
        return devices.sealed_key(self.held, self.house.identity, self.mesh.home, newcomer.node_id)

    def refusal(self, newcomer: Identity) -> str:
        """The code with which it is refused."""
        with pytest.raises(HearthNetError) as refused:
            self.sealed(newcomer)
        return refused.value.code


@contextlib.asynccontextmanager
async def owned(mesh: Mesh) -> AsyncIterator[Owned]:
    """The first node, as its person's."""
    with_keys(mesh)
    async with living(mesh, mesh.home) as house:
        owner = Owned(house, mesh)
        await wait_for(lambda: owner.held.person_of(house.node_id), what="the person")
        yield owner


@pytest.mark.req("PERSON-30", "PERSON-31")
async def test_key_goes_sealed_to_who_joined_by_the_text(mesh: Mesh) -> None:
    async with owned(mesh) as owner:
        newcomer, text = Identity.generate(), await owner.text(display_name="Laptop")
        assert text.person == owner.held.person_of(owner.house.node_id)
        assert owner.refusal(newcomer) == "unauthorized"
        await owner.let_in(text, newcomer)
        sealed = owner.sealed(newcomer)
        key = keyring.load_identity(mesh.home.person_key)
        assert text.opened_key(newcomer, sealed).node_id == key.node_id
        assert ids.unb64(key.to_text().split()[1]) not in ids.unb64(sealed)


@pytest.mark.req("PERSON-31", "ATTACK-60")
async def test_members_by_other_ways_get_no_key(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an ordinary invite of this node, by a used text with a conspirator's help, or too late."""
    async with owned(mesh) as owner:
        guest = keyring.load_identity(mesh.guest.device_key)
        assert owner.refusal(guest) == "unauthorized"
        plain, ordinary = Identity.generate(), invites.decode((await owner.house.do(INVITE))["invite"])
        await owner.let_in(ordinary, plain)
        assert owner.refusal(plain) == "unauthorized"

        first, second, text = Identity.generate(), Identity.generate(), await owner.text()
        held = owner.held
        asked = invites.ask(held, text.key(), second, "thief", times.now_ms())
        await owner.let_in(text, first)
        with_request = roster.merge(owner.held, [asked])
        helped = commands.CommunityAuthor(with_request, guest).admit(asked, times.now_ms())
        await owner.house.auth._membership.add((asked, helped))
        assert owner.held.member(second.node_id) is not None
        assert owner.refusal(second) == "unauthorized"

        assert owner.sealed(first)
        monkeypatch.setattr(devices, "now_ms", lambda: text.expires_at)
        assert owner.refusal(first) == "expired"


@pytest.mark.req("PERSON-31")
async def test_texts_are_made_by_devices_with_the_present_key(mesh: Mesh) -> None:
    async with owned(mesh) as owner:
        wanted = DeviceInviteInput(ids.new_ulid(), 900)
        first = devices.invite(owner.held, owner.house.identity, wanted)
        assert first.content.expires_at <= times.now_ms() + 900_000  # type: ignore[union-attr]
        recovery = keyring.load_identity(mesh.home.recovery_key)
        author = commands.CommunityAuthor(owner.held, owner.house.identity)
        newer = author.key_person(recovery, Identity.generate(), times.now_ms(), (owner.house.node_id,))
        await owner.house.auth._membership.add((newer,))
        with pytest.raises(HearthNetError) as refused:
            await owner.text()
        assert refused.value.code == "unauthorized"
        assert "replaced" in refused.value.message
    async with living(mesh, mesh.guest) as house:
        with pytest.raises(HearthNetError) as refused:
            await house.do(DEVICE)
        assert refused.value.code == "not_found"


@pytest.mark.req("PERSON-33")
async def test_nodes_of_the_person_alone_get_a_newer_key(mesh: Mesh) -> None:
    async with owned(mesh) as owner:
        guest, key = keyring.load_identity(mesh.guest.device_key), keyring.load_identity(mesh.home.person_key)
        assert owner.refusal(guest) == "unauthorized"
        person = owner.held.person_of(owner.house.node_id)
        author = commands.CommunityAuthor(owner.held, guest)
        await owner.house.auth._membership.add((author.add_node(person, key, "laptop", times.now_ms()),))
        sealed = ids.unb64(owner.sealed(guest))
        opened = guest.open_from(owner.house.node_id, InviteText.key_purpose, sealed)
        assert opened == key.to_text().encode()
        author = commands.CommunityAuthor(owner.held, owner.house.identity)
        removal = author.remove_device(person, key, guest.node_id, "lost", times.now_ms())
        await owner.house.auth._membership.add((removal,))
        assert owner.refusal(guest) == "unauthorized"


@pytest.mark.req("PERSON-31")
async def test_no_text_where_invites_take_several_signatures(mesh: Mesh) -> None:
    async with owned(mesh) as owner:
        root = commands.CommunityAuthor(owner.held, keyring.load_identity(mesh.home.community_key))
        policy = msgspec.structs.replace(owner.held.policy, min_signatures_to_invite=2)
        await owner.house.auth._membership.add((root.set_policy(policy, times.now_ms()),))
        with pytest.raises(HearthNetError) as refused:
            await owner.text()
        assert refused.value.code == "unauthorized"
        assert "several signatures" in refused.value.message
