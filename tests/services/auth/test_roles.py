"""Promoting, demoting and putting out, with as many signatures as it takes; and the rules for it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.service.effects import claims
from hearthnet.service.effects.claims import ClaimStore
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope
from hearthnet.trust.community.events import REVOKED, CoSigner
from hearthnet.trust.community.proposals import Proposal
from hearthnet.trust.community.roster import Policy
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import DEMOTE, POLICY, PROMOTE, REVOKE, House, body, living

pytestmark = pytest.mark.asyncio


def co_signature(signer: Identity, house: House, target: str, client_id: str) -> dict[str, str]:
    """What somebody adds who agrees that `target` is put out."""
    proposal = Proposal(
        event_type=REVOKED,
        community_id=house.bus.peer.community,
        target_node_id=target,
        what="inactive",
        client_id=client_id,
    )
    signed: CoSigner = proposal.sign(signer).co_signers[0]
    return {"node_id": signed.node_id, "signature": signed.signature}


def lent(house: House, capability: str, run: str) -> str:
    """The node's own run token, as its tool loop has one."""
    peer = house.bus.peer
    scope = Scope((capability,))
    return tokens.mint(
        peer.identity,
        subject=peer.node_id,
        audience=peer.community,
        scope=scope,
        now_ms=now_ms(),
        ttl_seconds=60,
        run=run,
    )


def approved(house: House, capability: str, wanted: dict[str, Any], run: str, **changes: Any) -> Approval:
    """The owner's yes to exactly this call, less what a test changes about it."""
    own, now = house.node_id, now_ms()
    fields: dict[str, Any] = {
        "id": ids.new_ulid(),
        "community": house.bus.peer.community,
        "approver": own,
        "actor": own,
        "provider": own,
        "capability": capability,
        "arguments_digest": digest(wanted),
        "idempotency_key": wanted["input"]["client_id"],
        "run": run,
        "tool_call_id": "call_1",
        "time": now,
        "expires": now + 60_000,
    }
    return sign_approval(house.identity, Approval(**{**fields, **changes}))


async def bind(mesh: Mesh, house: House, approval: Approval) -> None:
    """Writes down what a process writes that binds the approval to its effect."""
    effect = claims.key("ef", house.node_id, "key", approval.idempotency_key)
    used = {"effect": effect, "capability": approval.capability, "digest": approval.arguments_digest}
    async with await mesh.store() as store:
        key = claims.key("ap", approval.approver, approval.id)
        assert await ClaimStore(store, DiskGuard(house.home)).write(key, used, 0, 5) is not None


def was_put_out(house: House, node: str) -> bool:
    """What a second process of the house knows."""
    return house.bus.peer.roster.is_revoked(node)


async def refused(house: House, capability: str, **members: object) -> HearthNetError:
    """The error that a call ends with."""
    with pytest.raises(HearthNetError) as caught:
        await house.do(capability, **members)
    return caught.value


@pytest.mark.req("EFFECT-9")
@pytest.mark.parametrize("bound", [False, True], ids=["new", "bound"])
async def test_expired_approval_changes_no_rules(mesh: Mesh, bound: bool) -> None:
    """Also one that was bound to its effect while it lived, by a process that died before the event."""
    async with living(mesh, mesh.home) as founder:
        wanted, run = body(min_signatures_to_demote=5), ids.new_ulid()
        token = lent(founder, POLICY, run)
        late = approved(founder, POLICY, wanted, run, time=1, expires=2)
        if bound:
            await bind(mesh, founder, late)
        given: dict[str, Any] = {"token": token, "run": run, "node": founder.node_id}
        with pytest.raises(HearthNetError) as caught:
            await founder.bus.call(POLICY, wanted, approval=late, **given)
        assert caught.value.code == "expired"
        assert founder.auth._membership.roster.policy.min_signatures_to_demote != 5
        yes = approved(founder, POLICY, wanted, run)
        first = await founder.bus.call(POLICY, wanted, approval=yes, **given)
        assert first.output["policy"]["min_signatures_to_demote"] == 5


@pytest.mark.req("EFFECT-9", "ADMIT-3")
async def test_outcome_of_a_role_outlives_its_approval(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder:
        other = load_identity(mesh.guest.device_key).node_id
        wanted, run = body(target_node_id=other, new_level="trusted"), ids.new_ulid()
        given: dict[str, Any] = {"token": lent(founder, PROMOTE, run), "run": run, "node": founder.node_id}
        yes, late = (
            approved(founder, PROMOTE, wanted, run, **one) for one in ({}, {"time": 1, "expires": 2})
        )
        first = await founder.bus.call(PROMOTE, wanted, approval=yes, **given)
        again = await founder.bus.call(PROMOTE, wanted, approval=late, **given)
    assert again.output == first.output
    assert again.meta["repeated"] is True


@pytest.mark.req("COMMUNITY-9", "COMMUNITY-1")
async def test_too_few_signatures_are_told_the_number_and_enough_put_a_member_out(street: Mesh) -> None:
    carol_home, dora_home = street.others
    async with (
        living(street, street.home) as founder,
        living(street, carol_home) as carol,
        living(street, dora_home) as dora,
    ):
        for house in (carol, dora):
            await founder.do(PROMOTE, target_node_id=house.node_id, new_level="trusted")
        guest = (await street.guest_bus()).peer
        await guest.link.close()
        await wait_for(lambda: dora.level(dora.node_id) == "trusted", what="the promotions to be known")
        client_id, target = ids.new_ulid(), guest.node_id
        wanted = {"client_id": client_id, "target_node_id": target, "reason": "inactive"}
        alone = await refused(dora, REVOKE, **wanted)
        signatures = [co_signature(one.identity, dora, target, client_id) for one in (founder, carol)]
        few = await refused(dora, REVOKE, **wanted, co_signers=signatures[:1])
        other = co_signature(carol.identity, dora, dora.node_id, client_id)
        forged = await refused(dora, REVOKE, **wanted, co_signers=[signatures[0], other])
        done = await dora.do(REVOKE, **wanted, co_signers=signatures)
        again = await dora.do(REVOKE, **wanted, co_signers=signatures)
        reused = await refused(dora, REVOKE, **{**wanted, "reason": "other"}, co_signers=signatures)
        for house in (founder, carol):
            await wait_for(partial(was_put_out, house, target), what="it to be known")
    assert (alone.code, alone.details) == ("unauthorized", {"needed": 3, "signed": 1})
    assert (few.code, few.details) == ("unauthorized", {"needed": 3, "signed": 2})
    assert forged.code == "invalid_signature"
    assert done == again
    assert reused.code == "bad_request"


@pytest.mark.req("COMMUNITY-9")
async def test_members_rise_and_fall_at_the_word_of_those_above_them(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        presumptuous = await refused(guest, PROMOTE, target_node_id=guest.node_id, new_level="anchor")
        unknown = await refused(
            founder, PROMOTE, target_node_id=Identity.generate().node_id, new_level="anchor"
        )
        client_id = ids.new_ulid()
        raised = [
            await founder.do(PROMOTE, client_id=client_id, target_node_id=guest.node_id, new_level="trusted")
            for _ in range(2)
        ]
        await wait_for(lambda: guest.level(guest.node_id) == "trusted", what="the rise to be known")
        await founder.do(DEMOTE, target_node_id=guest.node_id, new_level="member")
        await wait_for(lambda: guest.level(guest.node_id) == "member", what="the fall to be known")
        nothing = await refused(founder, DEMOTE, target_node_id=guest.node_id, new_level="member")
    assert presumptuous.code == "unauthorized"
    assert unknown.code == "not_found"
    assert raised[0] == raised[1]
    assert nothing.code == "bad_request"


@pytest.mark.req("COMMUNITY-6", "COMMUNITY-9")
async def test_one_client_id_has_one_effect_however_often_it_is_sent_at_once(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder:
        client_id, target = ids.new_ulid(), (await mesh.guest_bus()).peer
        await target.link.close()
        wanted = {"client_id": client_id, "target_node_id": target.node_id, "new_level": "trusted"}
        outputs = await asyncio.gather(*(founder.do(PROMOTE, **wanted) for _ in range(4)))
        promotions = [
            event
            for event in founder.auth._membership.roster.events
            if event.event_type == "community.member.promoted"
        ]
    assert len({str(one) for one in outputs}) == len(promotions) == 1


@pytest.mark.req("COMMUNITY-10")
async def test_the_rules_change_where_the_root_key_lies_and_nowhere_else(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        denied = await refused(guest, POLICY, min_signatures_to_revoke=1)
        done = await founder.do(POLICY, min_signatures_to_revoke=1, capability_token_ttl_seconds=600)
        same = await founder.do(POLICY, min_signatures_to_revoke=1)
        wanted = Policy(min_signatures_to_revoke=1, capability_token_ttl_seconds=600)
        await wait_for(lambda: guest.bus.peer.roster.policy == wanted, what="the rules to be known")
    assert denied.code == "unauthorized"
    assert "where the community's root key lies" in denied.message
    assert done["policy"]["min_signatures_to_revoke"] == 1
    assert done["event_id"] == same["event_id"]
