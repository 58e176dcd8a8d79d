"""A guest's posts are proved through the token in the frame; one that anybody could use is kept back."""

from __future__ import annotations

import re

import msgspec
import pytest

from hearthnet.bus.session.keyring import load_roster
from hearthnet.cli.workflows import market_proofs
from hearthnet.core import ids
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol.header import Header
from hearthnet.service.effects.event_log import MAX_FRAME_BYTES, Event, Recorded
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity
from hearthnet_market import MarketService
from hearthnet_market.export import exported
from tests.helpers.mesh import Mesh
from tests.services.market.trade import Guest, do, post

pytestmark = pytest.mark.asyncio


@pytest.mark.req("MARKET-23", "MARKET-13")
async def test_a_guests_post_is_proved_by_everybody(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.guest_bus() as member:
        anna = Guest(mesh, bus)
        made = await anna.do("post", category="offer", title="Kites", body="To fly.")
        await anna.do("update", event_id=made["event_id"], fields={"body": "To fly high."})
        mine = await post(member, "Mine")
        await do(bus, "expire", event_id=mine, reason="stale", note="No more.")
        whole = await do(member, "export", event_id=made["event_id"])
        own = await anna.do("export")
        moderated = await do(member, "export")
        await do(member, "delete", all=True)
        deleted = await do(member, "export")
    roster = load_roster(mesh.guest.roster)
    assert whole == {**own, "max_lamport": 2}
    for export in (whole, moderated):
        assert [market_proofs.problem(event, roster) for event in export["events"]] == [""] * len(
            export["events"]
        )
        assert market_proofs.differences(export) == []
    assert {event["author"] for event in whole["events"]} == {anna.principal}
    claimed = {**whole["events"][0], "author": mesh.identity.node_id}
    assert market_proofs.problem(claimed, roster) == "its frame says otherwise: author"
    assert deleted["posts"] == []
    gone = msgspec.structs.replace(roster, members=())
    assert "no member" in market_proofs.problem(whole["events"][0], gone)


def _recorded(token: str, identity: Identity, frame: str = "") -> Recorded:
    header = Header(
        kind="call",
        id=ids.new_ulid(),
        sender=identity.node_id,
        community="c",
        time=now_ms(),
        from_instance="aaaaaaaa",
        token=token,
    )
    event = Event(
        event_id=ids.new_ulid(),
        event_type="market.post.created",
        wall_clock="2026-01-31T08:00:00Z",
        community_id="c",
        author=identity.node_id,
        client_id=ids.new_ulid(),
        data={},
        arguments_digest="",
        frame=frame or ids.b64(frames.signed(header, b"{}", identity)),
        approval=None,
    )
    return Recorded(event, 1)


@pytest.mark.req("MARKET-23")
async def test_a_frame_with_a_token_for_anybody_is_not_handed_over() -> None:
    identity = Identity.generate()

    def token(subject: str) -> str:
        return mint(
            identity,
            subject=subject,
            audience=identity.node_id,
            scope=Scope(("market.post@1.0",)),
            now_ms=now_ms(),
            ttl_seconds=60,
        )

    bound, free = _recorded(token(identity.node_id), identity), _recorded(token("*"), identity)
    unread = _recorded("", identity, "!")
    found = exported([bound, free, unread])["events"]
    assert [bool(event["frame"]) for event in found] == [True, False, False]


@pytest.mark.req("MARKET-26")
async def test_a_large_frame_is_kept_as_its_hash_and_proves_nothing(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        for size in (MAX_FRAME_BYTES - 2_000, MAX_FRAME_BYTES):
            given = {"client_id": ids.new_ulid(), "category": "offer", "title": "Large", "body": "To lend."}
            await do(bus, "post", **given, unknown="x" * size)
        events = (await do(bus, "export"))["events"]
    whole, hashed = (event["frame"] for event in events)
    assert MAX_FRAME_BYTES - 2_000 < len(ids.unb64(whole)) <= MAX_FRAME_BYTES
    assert re.fullmatch("blake3:[0-9a-f]{64}", hashed)
    assert "x" * 100 not in str([event["data"] for event in events])
    roster = load_roster(mesh.guest.roster)
    assert market_proofs.problem(events[1], roster).startswith("its frame was too large to keep")
