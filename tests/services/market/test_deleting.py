"""What a member wrote is its own: it takes it along, and it takes it back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.effects.event_log import EventLog
from hearthnet.trust import audit_chain
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.market.trade import Guest, body, do, found, listed, post, refused

pytestmark = pytest.mark.asyncio
SECRET = "kaleidoscope"


def _on_disk(folder: Path, words: str) -> list[str]:
    """The files under `folder` in which `words` can be read."""
    return [
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and words.encode() in file.read_bytes()
    ]


@pytest.mark.req("MARKET-17")
async def test_what_is_deleted_is_forgotten_at_once_and_nowhere_on_the_disk(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        async with mesh.hosting(MarketService()):
            one = await post(bus, f"My {SECRET}", body=f"A {SECRET} of brass.", tags=[SECRET])
            await do(bus, "update", event_id=one, fields={"body": f"The {SECRET} is old."})
            await do(bus, "expire", event_id=one, reason="fulfilled", note=f"{SECRET} is gone")
            kept = await post(bus, "Firewood")
            assert _on_disk(mesh.home.path, SECRET)
            reply = await bus.call("market.delete@1.0", body(client_id=ids.new_ulid(), event_id=one))
            assert reply.output["deleted"] == 1
            assert reply.meta["erased"] is True
            assert await found(bus, SECRET) == []
            assert (await do(bus, "export"))["posts"][0]["event_id"] == kept
            since = await do(bus, "list", since_lamport=4)
            assert (since["removed"], since["ended"][0]["reason"]) == ([one], "deleted")
        assert _on_disk(mesh.home.path, SECRET) == []
        # Derived anew from the log that is left, the market is the same.
        for file in mesh.home.service("market").glob("view.*"):
            file.unlink()
        async with mesh.hosting(MarketService()):
            assert list(await listed(bus)) == [kept]
            assert (await do(bus, "list", since_lamport=4))["removed"] == [one]
            assert (await refused(bus, "delete", event_id=one)).code == "not_found"


@pytest.mark.req("MARKET-17", "ATTACK-32")
async def test_a_request_to_delete_keeps_no_words_itself(mesh: Mesh) -> None:
    """Nobody can erase a deletion, so its author must not write into it."""
    async with mesh.hosting(MarketService()), await mesh.guest_bus() as member, await mesh.store() as store:
        one, me = await post(member), member.peer
        asked = body(client_id=ids.new_ulid(), event_id=one, unknown=SECRET)
        key = asked["input"]["client_id"]
        consent = Approval(
            id=SECRET,
            community=me.community,
            approver=me.node_id,
            actor=me.node_id,
            provider=mesh.identity.node_id,
            capability="market.delete@1.0",
            time=now_ms(),
            expires=now_ms() + 60_000,
            arguments_digest=digest(asked),
            idempotency_key=key,
            run="",
            tool_call_id=SECRET * 5,
        )
        given = sign_approval(me.identity, consent)
        await member.call("market.delete@1.0", asked, approval=given, idempotency_key=key)
        deletion = msgspec.json.decode((await store.js.get_msg("MARKET", 2, direct=True)).data or b"")
        began = audit_chain.read(await AuditLog(store, mesh.identity).line(3) or b"")
    assert deletion["event_type"] == "market.post.deleted"
    assert deletion["approval"] is None
    assert began.capability == "market.delete@1.0"
    for frame in (deletion["frame"], began.frame):
        assert frame.startswith("blake3:")


@pytest.mark.req("MARKET-17", "MARKET-12")
async def test_a_post_that_was_deleted_does_not_come_back_with_a_repetition(mesh: Mesh) -> None:
    market = MarketService()
    async with mesh.hosting(market), await mesh.bus() as bus:
        given = {"client_id": ids.new_ulid(), "category": "offer", "title": "Saw", "body": "To lend."}
        first = await do(bus, "post", **given)
        taken = {"client_id": ids.new_ulid(), "event_id": first["event_id"]}
        gone = await do(bus, "delete", **taken)
        assert await do(bus, "post", **given) == first
        assert await listed(bus) == {}
        assert await do(bus, "delete", **taken) == gone
        other = await refused(bus, "post", **{**given, "body": "To sell."})
        assert (other.code, other.details["rule"]) == ("bad_request", "reused")
        erased = market._view.erased([bus.peer.node_id], given["client_id"])
        assert erased is not None
        digest = erased.digest
        assert await market.outcome(bus.peer.node_id, given["client_id"], digest) == first
        assert await market.outcome(bus.peer.node_id, given["client_id"], "another") is None


@pytest.mark.req("MARKET-17", "MARKET-12")
async def test_a_repetition_at_a_process_that_has_not_heard_of_the_deletion_brings_nothing_back(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        given = {"client_id": ids.new_ulid(), "category": "offer", "title": SECRET, "body": "To lend."}
        first = await do(bus, "post", **given)
        await do(bus, "delete", event_id=first["event_id"])
        heard = MarketService._erased
        asked: list[str] = []

        async def late(market: MarketService, call: object) -> object:
            asked.append("")
            return None if len(asked) == 1 else await heard(market, call)  # type: ignore[arg-type]

        monkeypatch.setattr(MarketService, "_erased", late)
        assert await do(bus, "post", **given) == first
        assert await listed(bus) == {}
        monkeypatch.setattr(MarketService, "sweep_seconds", 0.05)
    async with mesh.hosting(MarketService()):
        await wait_for(lambda: not _on_disk(mesh.home.jetstream, SECRET), 20, "the erasing")


@pytest.mark.req("MARKET-17")
async def test_all_of_ones_own_goes_in_steps_and_nothing_of_others(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet_market.read_model.MOST_POSTS", 2)
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.guest_bus() as member:
        theirs = await post(member, "Theirs")
        anna = Guest(mesh, bus)
        hers = await anna.do("post", category="offer", title="Kites", body="To fly.")
        for number in range(3):
            await post(bus, f"post {number}")
        assert (await refused(member, "delete", event_id=hers["event_id"])).code == "unauthorized"
        first = await do(bus, "delete", all=True)
        assert (first["deleted"], first["remaining"]) == (2, 1)
        last = await do(bus, "delete", all=True)
        assert (last["deleted"], last["remaining"]) == (1, 0)
        assert (await refused(bus, "delete", all=True)).code == "not_found"
        assert set(await listed(bus)) == {theirs, hers["event_id"]}
        # The member who answers for a guest may take back what that wrote; so may the guest.
        assert (await anna.do("delete", all=True))["deleted"] == 1
        assert set(await listed(bus)) == {theirs}


@pytest.mark.req("MARKET-17")
async def test_what_a_dead_process_left_of_a_deletion_is_erased_by_the_next(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await mesh.bus() as bus:
        with monkeypatch.context() as patch:

            async def unreached(log: EventLog, lamport: int) -> bool:
                raise HearthNetError("partition", "the event log does not answer")

            patch.setattr(EventLog, "erase", unreached)
            async with mesh.hosting(MarketService()):
                one = await post(bus, SECRET)
                reply = await bus.call("market.delete@1.0", body(client_id=ids.new_ulid(), event_id=one))
                assert reply.meta["erased"] is False
                assert await found(bus, SECRET) == []
        assert _on_disk(mesh.home.jetstream, SECRET)
        async with mesh.hosting(MarketService()):
            await wait_for(lambda: not _on_disk(mesh.home.jetstream, SECRET), 20, "the erasing")


@pytest.mark.req("MARKET-18")
async def test_a_member_takes_along_all_it_wrote_and_nobody_else_does(mesh: Mesh) -> None:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus, await mesh.guest_bus() as member:
        ended, own = await post(member, "Ended"), await post(member, "Own")
        await do(member, "expire", event_id=ended, reason="fulfilled")
        await post(bus, "Theirs")
        whole = await do(member, "export")
        assert [event["event_type"] for event in whole["events"]] == [
            "market.post.created",
            "market.post.created",
            "market.post.expired",
        ]
        assert [one["title"] for one in whole["posts"]] == ["Ended", "Own"]
        assert (whole["more"], whole["max_lamport"]) == (False, 3)
        first = await do(member, "export", limit=2)
        rest = await do(member, "export", limit=2, since_lamport=first["max_lamport"])
        assert (first["more"], rest["more"]) == (True, False)
        assert first["events"] + rest["events"] == whole["events"]
        # One current post is for everybody; one that ended is for its author alone.
        assert (await do(bus, "export", event_id=own))["events"] == whole["events"][1:2]
        assert (await refused(bus, "export", event_id=ended)).code == "not_found"
        assert len((await do(member, "export", event_id=ended))["events"]) == 2


@pytest.mark.req("MARKET-25")
async def test_the_homes_owner_erases_anybodys_post_and_it_stays_away(mesh: Mesh) -> None:
    given = {"client_id": ids.new_ulid(), "category": "offer", "title": SECRET, "body": f"A {SECRET}."}
    async with await mesh.bus() as bus, await mesh.guest_bus() as member:
        async with mesh.hosting(MarketService()):
            theirs = await do(member, "post", **given)
            kept = await post(member, "Kept")
            ended = await post(member, "Ended")
            await do(member, "expire", event_id=ended, reason="fulfilled", note=SECRET)
            anna = Guest(mesh, bus)
            with pytest.raises(HearthNetError, match="only its author"):
                await anna.do("delete", event_id=kept)
            with pytest.raises(HearthNetError, match="only its author"):
                await Guest(mesh, bus, "").do("delete", event_id=kept)
            for event_id in (theirs["event_id"], ended):
                reply = await bus.call("market.delete@1.0", body(client_id=ids.new_ulid(), event_id=event_id))
                assert (reply.output["deleted"], reply.meta["erased"]) == (1, True)
            assert await do(member, "post", **given) == theirs, "a repetition brings nothing back"
            assert list(await listed(bus)) == [kept]
            gone = (await do(member, "list", since_lamport=1))["ended"]
            assert {one["by"] for one in gone} == {mesh.identity.node_id}
        assert _on_disk(mesh.home.path, SECRET) == []
        for file in mesh.home.service("market").glob("view.*"):
            file.unlink()
        async with mesh.hosting(MarketService()):
            assert list(await listed(bus)) == [kept]
            assert await do(member, "post", **given) == theirs
            assert await found(bus, SECRET) == []


@pytest.mark.req("MARKET-26")
async def test_members_of_a_location_that_nobody_knows_are_not_kept(mesh: Mesh) -> None:
    place = {"lat": 52, "lng": 8.5, "label": "Mill Lane"}
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        one = await post(bus, location={**place, "junk": SECRET})
        assert (await listed(bus))[one]["location"] == place
        await do(bus, "update", event_id=one, fields={"location": {**place, "lat": 53, "junk": SECRET}})
        assert (await listed(bus))[one]["location"] == {**place, "lat": 53}
        assert "junk" not in str([event["data"] for event in (await do(bus, "export"))["events"]])
