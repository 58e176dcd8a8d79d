"""Runs of a node's owner, as the other devices of that person reach them, and nobody else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from hearthnet.agent.devices import person_devices, pushes, run_copy
from hearthnet.agent.devices.conversation_store import ConversationStore
from hearthnet.agent.devices.copy_store import CopyStore
from hearthnet.agent.devices.other_devices import OtherDevices
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_record import Sealer
from hearthnet.agent.tools.types import Approve
from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.runs.run_list import DeviceRuns
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.authorization.token import Scope
from hearthnet.trust.community import commands
from tests.agent.keeping import Node
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import House, living, waiting_run
from tests.services.auth.test_devices import Owned, owned

pytestmark = pytest.mark.asyncio
RUNS, RUN, TAKE = "community.device.runs@1.0", "community.device.run@1.0", "community.device.take@1.0"
DECIDE, COPY = "community.device.decide@1.0", "community.device.copy@1.0"
CONVERSATIONS = "community.device.conversations@1.0"


@dataclass
class Devices:
    """The owner's node with a run that waits, and the node of a member who may be a device."""

    owner: Owned
    member: House
    runs: StoredRuns
    node: Node
    run: str

    @property
    def mesh(self) -> Mesh:
        return self.owner.mesh

    async def ask(self, capability: str, **fields: Any) -> dict[str, Any]:
        """The output of a call of the member at the owner's node."""
        request = {"params": {}, "input": fields}
        return dict((await self.member.bus.call(capability, request, node=self.owner.house.node_id)).output)

    async def refusal(self, capability: str, **fields: Any) -> str:
        """The code with which such a call is refused."""
        with pytest.raises(HearthNetError) as refused:
            await self.ask(capability, **fields)
        return refused.value.code

    async def pair(self) -> None:
        """The member's node becomes a device of the owner's person."""
        key = keyring.load_identity(self.mesh.home.person_key)
        held, own = self.owner.held, self.member.identity
        person = held.person_of(self.owner.house.node_id)
        added = commands.CommunityAuthor(held, own).add_node(person, key, "laptop", now_ms())
        for house in (self.owner.house, self.member):
            await house.auth._membership.add((*held.events, added))
            assert house.auth._membership.roster.is_device(own.node_id, person)

    @property
    def asked(self) -> dict[str, dict[str, Any]]:
        """A call of each capability, with what fits it."""
        run = {"run": self.run}
        decision = {"call": "p", "decision": {"decision": "approve"}, "shown": "blake3:" + "0" * 64}
        return {
            RUNS: {},
            RUN: run,
            TAKE: run,
            DECIDE: run | decision,
            COPY: {"kept": [], "taken": []},
            CONVERSATIONS: {"heads": []},
        }


@contextlib.asynccontextmanager
async def devices(mesh: Mesh) -> AsyncIterator[Devices]:
    """Both nodes, and a run at the owner's."""
    async with owned(mesh) as owner, living(mesh, mesh.guest) as member, await mesh.store() as store:
        runs = StoredRuns(store, owner.house.identity)
        node, run = await waiting_run(runs, mesh.home, owner.held.community_id)
        yield Devices(owner, member, runs, node, run)


@pytest.mark.req("PERSON-50", "PERSON-51", "PERSON-52")
async def test_a_device_lists_decides_and_takes_over(mesh: Mesh) -> None:
    async with devices(mesh) as at:
        await at.pair()
        (listed,) = (await at.ask(RUNS))["runs"]
        (asked,) = listed["pending"]
        assert (listed["run"], listed["state"], listed["question"]) == (at.run, "suspended", "Lend it.")
        found = run_copy.from_text((await at.ask(RUN, run=at.run))["copy"], at.owner.house.node_id)
        assert found.record.pending[0].body == asked["body"]
        fields = {"run": at.run, "call": "p", "shown": asked["arguments_digest"]}
        other = {**fields, "shown": "blake3:" + "0" * 64, "decision": {"decision": "approve"}}
        assert await at.refusal(DECIDE, **other) == "unauthorized", "something else was shown"
        assert await at.refusal(DECIDE, **fields, decision={"decision": "edit"}) == "bad_request"
        decided = await at.ask(DECIDE, **fields, decision={"decision": "approve"})
        assert (decided["word"], decided["repeated"], decided["by"]) == ("approved", False, at.member.node_id)
        second = await at.ask(DECIDE, **fields, decision={"decision": "deny", "reason": "no"})
        assert (second["word"], second["repeated"]) == ("approved", True), "the first decision wins"
        stored = await at.node.saved().decide(at.run, "p", Approve(), via="runs")
        assert (stored.repeated, stored.signed.by) == (True, at.member.node_id)

        taken = run_copy.from_text((await at.ask(TAKE, run=at.run))["copy"], at.owner.house.node_id)
        assert [one.by for one in taken.decisions] == [at.member.node_id]
        assert (await at.node.saved().load(at.run)).record.moved_to == at.member.node_id
        assert (await at.ask(RUNS))["runs"] == []
        again = run_copy.from_text((await at.ask(TAKE, run=at.run))["copy"], at.owner.house.node_id)
        assert again.record.effects == taken.record.effects, "an answer that was lost is given again"
        moved = await at.node.saved().load(at.run)
        moved.record.moved_to = at.owner.house.node_id
        sealed = Sealer(moved.record, at.owner.house.identity.runs_key()).seal(moved.record)
        await at.runs.save(at.run, sealed, moved.revision)
        assert await at.refusal(TAKE, run=at.run) == "bad_request", "a third device has it"


@pytest.mark.req("PERSON-54", "ATTACK-90")
async def test_who_is_no_device_any_more_or_never_was_is_refused(mesh: Mesh) -> None:
    async with devices(mesh) as at:
        for capability, fields in at.asked.items():
            assert await at.refusal(capability, **fields) == "unauthorized", capability
        await at.pair()
        assert await at.ask(RUNS)
        key, held = keyring.load_identity(mesh.home.person_key), at.owner.held
        person, device = held.person_of(at.owner.house.node_id), at.member.node_id
        author = commands.CommunityAuthor(held, at.owner.house.identity)
        removal = author.remove_device(person, key, device, "stolen", now_ms())
        await at.owner.house.auth._membership.add((removal,))
        for capability, fields in at.asked.items():
            assert await at.refusal(capability, **fields) in ("revoked", "unauthorized"), capability
        assert (await at.node.saved().load(at.run)).record.moved_to == ""
        assert await at.node.saved().decisions((await at.node.saved().load(at.run)).record) == {}


@pytest.mark.req("PERSON-54", "ATTACK-90")
async def test_a_token_of_a_device_and_its_guests_reach_nothing(mesh: Mesh) -> None:
    """What a model or a client of a gateway asks goes out under a token, which covers none of these."""
    async with devices(mesh) as at:
        await at.pair()
        own = at.member.identity
        names = tuple(name.partition("@")[0] for name in at.asked)
        for principal in ("", "owner"):
            token = tokens.mint(
                own,
                subject=own.node_id,
                audience=at.owner.held.community_id,
                scope=Scope(capabilities=names),
                now_ms=now_ms(),
                ttl_seconds=300,
                principal=principal,
            )
            for capability, fields in at.asked.items():
                with pytest.raises(HearthNetError) as refused:
                    await at.member.bus.call(
                        capability,
                        {"params": {}, "input": fields},
                        node=at.owner.house.node_id,
                        token=token,
                    )
                assert refused.value.code == "unauthorized", capability


@pytest.mark.req("PERSON-54", "ATTACK-90")
async def test_runs_of_others_at_the_gateway_stay_there(mesh: Mesh) -> None:
    async with devices(mesh) as at:
        await at.pair()
        stored = await at.node.saved().load(at.run)
        guest = f"{at.owner.house.node_id}/ada"
        stored.record.principal, stored.record.by_owner = guest, False
        sealed = Sealer(stored.record, at.owner.house.identity.runs_key()).seal(stored.record)
        await at.runs.save(at.run, sealed, stored.revision)
        assert (await at.ask(RUNS))["runs"] == []
        for capability in (RUN, TAKE, DECIDE):
            assert await at.refusal(capability, **at.asked[capability]) == "not_found"
        # Nor is one left to a device that says it has taken it over, from which the owner takes it back.
        await at.ask(COPY, kept=[], taken=[{"run": at.run, "moves": 9}])
        saved = at.node.saved()
        left = await saved.load(at.run)
        assert left.record.moved_to == ""
        left.record.moved_to = ids.PREFIX + ids.b64(bytes(32))
        sealed = Sealer(left.record, at.owner.house.identity.runs_key()).seal(left.record)
        await at.runs.save(at.run, sealed, left.revision)
        others = OtherDevices(mesh.home, at.owner.house.bus)
        with pytest.raises(HearthNetError) as refused:
            await others.bring_here(saved, at.run)
        assert refused.value.code == "not_found"
        assert (await saved.load(at.run)).record.principal == guest


@pytest.mark.req("PERSON-52", "ATTACK-91")
async def test_open_runs_are_copied_until_they_have_ended(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person_devices, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(pushes, "AGAIN_SECONDS", 0.1)
    async with devices(mesh) as at:
        copies = CopyStore(mesh.guest, at.member.identity)
        home = at.owner.house.node_id
        await at.pair()
        await wait_for(lambda: copies.find(at.run, [home]), what="the copy")
        await at.node.saved().decide(at.run, "p", Approve(), via="runs")
        await wait_for(lambda: copies.of(home)[0].decisions, what="the decision in the copy")
        await at.node.saved().cancel(at.run)
        await wait_for(lambda: copies.count(home) == 0, what="the end of the copy")


@pytest.mark.req("PERSON-53")
async def test_a_run_taken_over_while_parted_is_left_to_who_has_it(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person_devices, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(pushes, "AGAIN_SECONDS", 0.1)
    async with devices(mesh) as at, await mesh.store(mesh.guest) as store:
        saved = at.node.saved()
        copy = await run_copy.copy_of(saved, (await saved.load(at.run)).record)
        own = Node(StoredRuns(store, at.member.identity))
        own.peer.identity, own.peer.community = at.member.identity, at.node.peer.community
        await run_copy.adopt(own.saved(), copy, at.member.identity, None, is_away=True)
        await at.pair()

        async def left() -> bool:
            return (await saved.load(at.run)).record.moved_to == at.member.node_id

        await wait_for(left, what="the news")
        assert (await own.saved().load(at.run)).record.moved_to == ""
        await wait_for(lambda: CopyStore(mesh.home, at.owner.house.identity).count(at.member.node_id) == 1)


@pytest.mark.req("CONV-7")
async def test_conversations_go_to_the_other_nodes(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the owner's pages, in both directions; those of a guest stay."""
    monkeypatch.setattr(person_devices, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(pushes, "AGAIN_SECONDS", 0.1)
    async with devices(mesh) as at:
        desk, laptop = (
            ConversationStore(home, house.identity, f"{house.node_id}/owner")
            for home, house in ((mesh.home, at.owner.house), (mesh.guest, at.member))
        )
        ada = ConversationStore(mesh.home, at.owner.house.identity, f"{at.owner.house.node_id}/ada")
        first, second, private = ids.new_ulid(), ids.new_ulid(), ids.new_ulid()
        begun = desk.change(first, "", "Water?", {"answers": [1]}, 1)
        laptop.change(second, "", "Bread?", {"answers": [2]}, 2)
        ada.change(private, "", "Mine", {}, 3)
        await at.pair()
        await wait_for(lambda: desk.all() == laptop.all() != [], what="both at both")
        assert [one.id for one in desk.all()] == [second, first]
        laptop.change(first, begun.revision, "Water? Boil it.", {"answers": [1, 2]}, 1)
        await wait_for(lambda: [one.title for one in desk.all()][1] == "Water? Boil it.", what="the change")
        desk.delete(second)
        await wait_for(lambda: [one.deleted for one in laptop.all()] == [True, False], what="the deletion")


def client(principal: str, *, is_owner: bool) -> Client:
    """A page at a gateway."""
    return Client("p", "page", principal, "", Scope(("llm.chat",)), now_ms() + 60_000, is_owner=is_owner)


@pytest.mark.req("PERSON-50", "PERSON-51", "PERSON-52", "PERSON-55")
async def test_a_run_of_a_device_is_found_there_or_as_its_copy(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person_devices, "ROUND_SECONDS", 1_000.0)  # what is copied is put there by hand
    async with devices(mesh) as at, await mesh.store(mesh.guest) as store:
        own = Node(StoredRuns(store, at.member.identity))
        own.peer.identity, own.peer.community = at.member.identity, at.node.peer.community
        others = OtherDevices(mesh.guest, at.member.auth._node.bus)
        assert await others.listing() == []
        with pytest.raises(HearthNetError) as refused:
            await others.bring_here(own.saved(), at.run)
        assert refused.value.code == "not_found"

        await at.pair()
        ((name, row),) = await others.listing()
        assert (name, row["run"]) == (others.names[at.owner.house.node_id], at.run)
        found = await others.find(at.run)
        (asked,) = found.waiting
        assert (found.is_there, found.details.record.run) == (True, at.run)
        assert (await others.decide(found, asked, Approve()))["word"] == "approved"
        assert await others.bring_here(own.saved(), at.run) == name
        assert await others.bring_here(own.saved(), at.run) == "", "it is here already"

        # What its device does not have any more is there as a copy alone.
        lost = ids.new_ulid()
        record = msgspec.structs.replace(found.record, run=lost)
        copies, pages = CopyStore(mesh.guest, at.member.identity), DeviceRuns(others)
        copies.put(run_copy.RunCopy(record=record))
        found = await others.find(lost)
        assert not found.is_there
        with pytest.raises(HearthNetError) as refused:
            await others.decide(found, asked, Approve())
        assert (refused.value.code, lost in refused.value.message) == ("partition", True)
        owner = client(f"{at.member.node_id}/owner", is_owner=True)
        listed = await pages.listing(owner, set())
        assert [(one["run"], one["device"]) for one in listed] == [(lost, name)]
        assert await pages.listing(owner, {lost}) == []
        guest = client(f"{at.member.node_id}/ada", is_owner=False)
        assert await pages.listing(guest, set()) == []
        with pytest.raises(HearthNetError) as refused:
            await pages.take(guest, own.saved(), lost)
        assert refused.value.code == "not_found"
        await pages.take(owner, own.saved(), lost)
        assert (await own.saved().load(lost)).record.owner == at.member.node_id
        with pytest.raises(HearthNetError) as refused:
            await others.find(ids.new_ulid())
        assert refused.value.code == "not_found"
