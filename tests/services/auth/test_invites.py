"""Invites: made at any node, used once."""

from __future__ import annotations

import asyncio

import pytest

from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.service.effects import journal
from hearthnet.service.effects.day_quota import BLOCK_BYTES
from hearthnet.trust.community import invites
from hearthnet.trust.community.roster import Policy
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import Attacker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import INVITE, JOIN, POLICY, WITHDRAW, at_the_door, body, living

pytestmark = pytest.mark.asyncio
EVENT = contracts().find(JOIN).examples[0]["request"]["input"]["event"]
"""A request to join, of another community."""


@pytest.mark.req("COMMUNITY-8", "COMMUNITY-6")
async def test_an_invite_is_made_once_for_each_client_id(mesh: Mesh) -> None:
    key = ids.new_ulid()
    async with living(mesh, mesh.home) as founder:
        first = await founder.do(INVITE, client_id=key, display_name="Kitchen")
        again = await founder.do(INVITE, client_id=key, display_name="Kitchen")
        with pytest.raises(HearthNetError) as caught:
            await founder.do(INVITE, client_id=key, display_name="Attic")
        others = await asyncio.gather(*(founder.do(INVITE) for _ in range(10)))
        roster = founder.auth._membership.roster
    assert first == again
    assert (caught.value.code, caught.value.details["rule"]) == ("bad_request", "reused")
    said = invites.decode(first["invite"])
    assert (said.address, said.inviter) == ("127.0.0.1:7422", founder.node_id)
    assert roster.level(said.key().node_id, said.expires_at - 1) == "invited"
    assert len({one["event_id"] for one in (first, *others)}) == 11
    own = [event.sequence for event in roster.events if event.author == founder.node_id]
    assert own == list(range(1, len(own) + 1)), "one after the other, none in the place of another"


@pytest.mark.req("COMMUNITY-8", "COMMUNITY-1")
async def test_a_member_lets_somebody_in_and_the_others_know(mesh: Mesh) -> None:
    """The guest's node does it alone; the founder's hears of it."""
    newcomer = Identity.generate()
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        made = await guest.do(INVITE, display_name="Attic")
        async with at_the_door(mesh, guest, made["invite"]) as door:
            roster = await door.roster()
            joined = await door.join(roster, newcomer, "attic")
        assert joined.level(newcomer.node_id) == "member"
        await wait_for(lambda: guest.level(newcomer.node_id) == "member", what="the newcomer to be known")
        await wait_for(lambda: founder.level(newcomer.node_id) == "member", what="the newcomer to be known")


@pytest.mark.req("COMMUNITY-8")
async def test_an_invite_lets_in_one_node_however_many_ask_at_once(mesh: Mesh) -> None:
    crowd = [Identity.generate() for _ in range(4)]
    async with living(mesh, mesh.home) as founder:
        made = await founder.do(INVITE)
        async with at_the_door(mesh, founder, made["invite"]) as door:
            roster = await door.roster()
            outcomes = await asyncio.gather(
                *(door.join(roster, one, "crowd") for one in crowd), return_exceptions=True
            )
            with pytest.raises(HearthNetError) as late:
                await door.join(roster, Identity.generate(), "late")
            known = founder.auth._membership.roster
    codes = [one.code for one in outcomes if isinstance(one, HearthNetError)]
    assert codes == ["unauthorized"] * 3
    assert late.value.code == "unauthorized"
    assert sum(known.level(one.node_id) == "member" for one in crowd) == 1


@pytest.mark.req("COMMUNITY-8")
async def test_an_invite_for_one_node_lets_no_other_in(mesh: Mesh) -> None:
    wanted, other = Identity.generate(), Identity.generate()
    async with living(mesh, mesh.home) as founder:
        made = await founder.do(INVITE, invitee_node_id=wanted.node_id)
        async with at_the_door(mesh, founder, made["invite"]) as door:
            roster = await door.roster()
            with pytest.raises(HearthNetError) as caught:
                await door.join(roster, other, "other")
            assert (await door.join(roster, wanted, "wanted")).level(wanted.node_id) == "member"
        assert founder.auth._membership.roster.level(other.node_id) == "unknown"
    assert caught.value.code == "unauthorized"


@pytest.mark.req("COMMUNITY-8")
async def test_an_invite_that_was_taken_back_lets_nobody_in(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder:
        made = await founder.do(INVITE)
        async with at_the_door(mesh, founder, made["invite"]) as door:
            roster, newcomer = await door.roster(), Identity.generate()
            assert roster.member(founder.node_id)
            first = await founder.do(WITHDRAW, invite_event_id=made["event_id"])
            again = await founder.do(WITHDRAW, invite_event_id=made["event_id"])
            with pytest.raises(HearthNetError) as caught:
                await door.roster()
            with pytest.raises(HearthNetError) as late:
                await door.join(roster, newcomer, "late")
        assert founder.auth._membership.roster.level(newcomer.node_id) == "unknown"
        with pytest.raises(HearthNetError) as unknown:
            await founder.do(WITHDRAW, invite_event_id=ids.new_ulid())
    assert first == again
    assert caught.value.code == "unauthorized"
    assert late.value.code == "partition", "whom the node does not know it does not even tell what it offers"
    assert unknown.value.code == "not_found"


@pytest.mark.req("COMMUNITY-8")
async def test_who_may_not_invite_is_told_so(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        policy = Policy(default_member_can_invite=False)
        await founder.do(POLICY, default_member_can_invite=False)
        await wait_for(lambda: guest.auth._membership.roster.policy == policy, what="the rules to be known")
        with pytest.raises(HearthNetError) as caught:
            await guest.do(INVITE)
        with pytest.raises(HearthNetError) as elsewhere:
            await guest.bus.call(INVITE, body(), node=founder.node_id)
        assert guest.auth._membership.roster.invites == ()
    assert caught.value.code == "unauthorized"
    assert elsewhere.value.code == "not_found", "what signs with a node's key is told to nobody else"


@pytest.mark.req("COMMUNITY-8")
async def test_an_invite_opens_nothing_but_the_door(mesh: Mesh) -> None:
    """Its key may ask for the roster and to be let in; of what else is offered it does not even hear."""
    async with living(mesh, mesh.home) as founder, mesh.hosting(ProbeService()) as host:
        made = await founder.do(INVITE)
        async with at_the_door(mesh, founder, made["invite"]) as door:
            assert (await door.roster()).member(founder.node_id)
            with pytest.raises(HearthNetError) as hidden:
                await door._bus.call(INVITE, body())
            with pytest.raises(HearthNetError) as elsewhere:
                await door._bus.call(QUERY, query())
            # The server stops this; should it not, nobody answers.
            peer, announcer = door._bus.peer, host._announcer
            header = peer.sender.header("find", ids.new_ulid(), capability=subjects.EVERYTHING)
            place = subjects.find(peer.node_id, subjects.EVERYTHING)
            assert announcer._answer(place, frames.signed(header, b"", peer.identity)) is None
    assert hidden.value.code == elsewhere.value.code == "not_found"


@pytest.mark.req("EFFECT-10", "ATTACK-32")
async def test_the_keys_of_an_inviters_invites_share_one_quota(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a member would fill the audit log with the keys of a hundred invites, which cost nothing."""
    monkeypatch.setattr(journal, "_MB", BLOCK_BYTES)
    mesh.home.config_file.write_text("[audit]\nmember_mb_per_day = 1\n")
    codes: list[str] = []
    async with living(mesh, mesh.home) as founder:
        for _ in range(2):
            made = await founder.do(INVITE)
            async with at_the_door(mesh, founder, made["invite"]) as door:
                attacker = Attacker(door._bus)
                view = await attacker.target(JOIN, founder.node_id)
                event = {**EVENT, "community_id": founder.bus.peer.community}
                asked = {"params": {}, "input": {"event": event, "unknown": "x" * 5_500}}
                codes.append(await attacker.call(view, JOIN, asked, signed=True))
                while codes[-1] != "rate_limited":
                    codes.append(await attacker.call(view, JOIN, asked, signed=True))
    assert codes[0] != "rate_limited"
    assert codes[-2:] == ["rate_limited"] * 2
