"""Invites that several members have to agree to, made and used at real nodes (docs/decisions/0046)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339, now_ms, rfc3339
from hearthnet.trust.community.events import INVITED
from hearthnet.trust.community.proposals import Proposal
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import INVITE, POLICY, House, at_the_door, living

pytestmark = pytest.mark.asyncio
HOUR_MS = 3_600_000


def terms(invitee: str, **changed: Any) -> dict[str, Any]:
    """What an invite for an hour is made with, besides the signatures."""
    ends = rfc3339(now_ms() + HOUR_MS)
    return {
        "client_id": ids.new_ulid(),
        "invitee_node_id": invitee,
        "display_name": "Attic",
        "expires_at": ends,
    } | changed


def co_signature(signer: Identity, house: House, wanted: dict[str, Any]) -> dict[str, str]:
    """What somebody adds who agrees to an invite on these terms."""
    proposal = Proposal(
        event_type=INVITED,
        community_id=house.bus.peer.community,
        target_node_id=wanted["invitee_node_id"],
        what=wanted["display_name"],
        client_id=wanted["client_id"],
        expires_at=from_rfc3339(wanted["expires_at"]),
    )
    (signed,) = proposal.sign(signer).co_signers
    return {"node_id": signed.node_id, "signature": signed.signature}


async def refused(house: House, **members: Any) -> HearthNetError:
    """The error that making an invite ends with."""
    with pytest.raises(HearthNetError) as caught:
        await house.do(INVITE, **members)
    return caught.value


async def ruled(founder: House, guest: House, signatures: int) -> None:
    """Both know that an invite takes so many signatures."""
    await founder.do(POLICY, min_signatures_to_invite=signatures)
    for house in (founder, guest):
        await wait_for(partial(is_ruled, house, signatures), what="the rules to be known")


def is_ruled(house: House, signatures: int) -> bool:
    """Whether the house knows that rule."""
    return house.auth._membership.roster.policy.min_signatures_to_invite == signatures


@pytest.mark.req("COMMUNITY-12")
async def test_too_few_signatures_are_told_the_number_and_enough_let_the_newcomer_in(mesh: Mesh) -> None:
    newcomer, stranger = Identity.generate(), Identity.generate()
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        await ruled(founder, guest, 3)  # of which there are two who may invite
        wanted = terms(newcomer.node_id)
        alone = await refused(guest, **wanted)
        signature = co_signature(founder.identity, guest, wanted)
        nobodys = await refused(guest, **wanted, co_signers=[co_signature(stranger, guest, wanted)])
        twice = co_signature(guest.identity, guest, wanted)
        own = await refused(guest, **wanted, co_signers=[twice, twice])
        made = await guest.do(INVITE, **wanted, co_signers=[signature])
        again = await guest.do(INVITE, **wanted, co_signers=[signature])
        async with at_the_door(mesh, guest, made["invite"]) as door:
            known = await door.roster()
            with pytest.raises(HearthNetError) as other:
                await door.join(known, stranger, "stranger")
            joined = await door.join(known, newcomer, "attic")
        await wait_for(lambda: founder.level(newcomer.node_id) == "member", what="the newcomer to be known")
    for error in (alone, nobodys, own):
        assert (error.code, error.details) == ("unauthorized", {"needed": 2, "signed": 1})
    assert made == again
    assert other.value.code == "unauthorized"
    assert joined.level(newcomer.node_id) == "member"


@pytest.mark.req("COMMUNITY-12")
async def test_what_is_signed_is_exactly_what_is_made(mesh: Mesh) -> None:
    newcomer = Identity.generate().node_id
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        await ruled(founder, guest, 2)
        wanted = terms(newcomer)
        signature = co_signature(founder.identity, guest, wanted)
        forged = {"node_id": founder.node_id, "signature": ids.b64(bytes(64))}
        later = rfc3339(from_rfc3339(wanted["expires_at"]) + 1000)
        for changed in (
            {"display_name": "Barn"},
            {"invitee_node_id": Identity.generate().node_id},
            {"client_id": ids.new_ulid()},
            {"expires_at": later},
            {"co_signers": [forged]},
        ):
            error = await refused(guest, **{**wanted, "co_signers": [signature], **changed})
            assert error.code == "invalid_signature", changed


@pytest.mark.req("COMMUNITY-12")
async def test_terms_that_cannot_be_are_refused_with_their_place(mesh: Mesh) -> None:
    newcomer = Identity.generate().node_id
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        await ruled(founder, guest, 2)
        over = await refused(guest, **terms(newcomer, expires_at=rfc3339(now_ms() - 1000)))
        far = await refused(guest, **terms(newcomer, expires_at=rfc3339(now_ms() + 8 * 24 * HOUR_MS)))
        never = await refused(guest, **terms(newcomer, expires_at="2026-13-45T08:00:00Z"))
        nameless = await refused(guest)
        wanted = terms(newcomer)
        timeless = {name: value for name, value in wanted.items() if name != "expires_at"}
        endless = await refused(guest, **timeless, co_signers=[co_signature(founder.identity, guest, wanted)])
        trusted = await refused(guest, **wanted, initial_level="trusted")
    assert over.code == "expired"
    for error, path in (
        (far, "/input/expires_at"),
        (never, "/input/expires_at"),
        (nameless, "/input/invitee_node_id"),
        (endless, "/input/expires_at"),
        (trusted, "/input/initial_level"),
    ):
        assert (error.code, error.details["path"]) == ("bad_request", path)


@pytest.mark.req("COMMUNITY-12")
async def test_a_second_invite_for_a_node_on_other_terms_replaces_the_first(mesh: Mesh) -> None:
    newcomer = Identity.generate()
    async with living(mesh, mesh.home) as founder:
        first = await founder.do(INVITE, invitee_node_id=newcomer.node_id, display_name="Attic")
        second = await founder.do(INVITE, invitee_node_id=newcomer.node_id, display_name="Barn")
        known = founder.auth._membership.roster
        async with at_the_door(mesh, founder, second["invite"]) as door:
            joined = await door.join(await door.roster(), newcomer, "barn")
    assert [one.event_id for one in known.invites] == [second["event_id"]]
    assert first["event_id"] != second["event_id"]
    assert joined.level(newcomer.node_id) == "member"
