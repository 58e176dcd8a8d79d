"""What a node missed it gets, from whoever has it, and puts on its own disk."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import gossip_frames, keyring
from hearthnet.bus.session.gossip_frames import HEADS, SetDigest, SetDigests
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.service.effects.community_log import CommunityLog
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import REVOKED, WITHDRAWN, Revoked, Withdrawn
from hearthnet_auth import service
from tests.helpers.members import act, not_understood
from tests.helpers.mesh import Mesh
from tests.helpers.service_processes import call_at, processes_of_service
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import (
    INVITE,
    ISSUE,
    POLICY,
    PROMOTE,
    REVOKE_TOKEN,
    SYNC,
    House,
    living,
)

pytestmark = pytest.mark.asyncio


def version(house: House) -> int:
    """How many events the node's `auth` process knows."""
    return house.auth._membership.roster.version


@pytest.mark.req("COMMUNITY-4", "COMMUNITY-6")
async def test_a_node_that_was_away_gets_what_happened_from_one_who_was_there(street: Mesh) -> None:
    """The guest is away while the founder acts; the founder is away when it comes back: carol tells it."""
    carol_home, _ = street.others
    async with living(street, carol_home) as carol:
        async with living(street, street.home) as founder:
            await founder.do(PROMOTE, target_node_id=carol.node_id, new_level="trusted")
            token = await founder.do(ISSUE, subject=carol.node_id, scope={"capabilities": ["community.sync"]})
            await founder.do(REVOKE_TOKEN, token_id=token["token_id"])
            await wait_for(lambda: version(carol) == version(founder), what="carol to hear of it")
            issuer = founder.node_id
        async with living(street, street.guest) as guest:
            second = guest.bus.peer.membership
            await wait_for(lambda: version(guest) == version(carol), what="the guest to make up for it")
            await wait_for(lambda: guest.level(carol.node_id) == "trusted", what="its other process, too")
            await wait_for(
                lambda: second.revocations.revoked(issuer, token["token_id"]), what="and the token"
            )
            log = CommunityLog(await guest.auth._node.store(), street.guest)

            async def on_disk() -> bool:
                remembered = await log.read()
                return len(remembered.events) == version(carol) and len(remembered.revocations) == 1

            await wait_for(on_disk, what="all of it to be on the guest's disk")


@pytest.mark.req("ATTACK-27", "COMMUNITY-4")
async def test_a_node_catches_up_over_events_that_it_does_not_understand(street: Mesh) -> None:
    async with living(street, street.home) as founder:
        mallory, held = keyring.load_identity(street.guest.device_key), founder.auth._membership.roster
        planted = not_understood(held, mallory)
        assert await founder.auth._membership.add(planted)
        assert version(founder) == held.version + len(planted)
        await founder.do(INVITE, display_name="after all of them")
        async with living(street, street.others[0]) as carol:
            await wait_for(lambda: version(carol) == version(founder), what="carol to make up for it")


@pytest.mark.req("COMMUNITY-4")
async def test_one_who_writes_too_much_keeps_nobody_elses_events_back(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet.bus.session.event_intake.BYTES_AT_ONCE", 5_000)
    monkeypatch.setattr("hearthnet.bus.session.event_intake.BYTES_PER_SECOND", 1e-9)
    monkeypatch.setattr("hearthnet.service.community.anti_entropy._PAGE", 2)
    async with living(street, street.others[0]) as carol:
        mallory, held = keyring.load_identity(street.guest.device_key), carol.auth._membership.roster
        for _ in range(3):
            held = rosters.merge(held, not_understood(held, mallory))
        assert await carol.auth._membership.add(held.events)
        made = (await carol.do(INVITE))["event_id"]
        async with living(street, street.home) as founder:

            def knows() -> bool:
                return made in {one.event_id for one in founder.auth._membership.roster.events}

            await wait_for(knows, what="the founder to hear of it")
            assert version(founder) < version(carol), "of the one who floods only so much"
            # What the founder makes now reaches carol, too, who holds more than the founder.
            made = (await founder.do(INVITE))["event_id"]
            await wait_for(lambda: made in str(carol.auth._membership.roster.events), what="carol to hear")


@pytest.mark.req("ATTACK-37")
async def test_a_revocation_that_waits_for_its_place_acts_after_a_restart_too(street: Mesh) -> None:
    """And so in every process that starts meanwhile."""
    carol_home, _ = street.others
    async with living(street, carol_home) as carol:
        held, guest = carol.auth._membership.roster, keyring.load_identity(street.guest.device_key)
        founder = keyring.load_identity(street.home.device_key)
        nowhere = act(held, guest, WITHDRAWN, Withdrawn(invite_event_hash="blake3:" + "0" * 64))
        content = Revoked(
            target_node_id=guest.node_id, reason="other", client_id="x", target_heads=(nowhere.hash,)
        )
        removal = act(held, founder, REVOKED, content)
        await carol.auth._membership.add_fetched([removal], (), founder.node_id)
        assert not carol.auth._membership.is_member(guest.node_id)
        log = CommunityLog(await carol.auth._node.store(), carol_home)

        async def on_disk() -> bool:
            return removal.hash in {one.hash for one in (await log.read()).events}

        await wait_for(on_disk, what="the revocation to be on the disk")
    async with living(street, carol_home) as carol:
        assert not carol.auth._membership.is_member(guest.node_id)


@pytest.mark.req("COMMUNITY-4")
async def test_nodes_that_were_apart_have_all_of_both_sides_in_the_end(street: Mesh) -> None:
    async with living(street, street.home) as founder:
        for _ in range(3):
            await founder.do(INVITE)
    async with living(street, street.guest) as guest:
        for _ in range(2):
            await guest.do(INVITE)
        alone = version(guest)
        async with living(street, street.home) as founder, living(street, street.others[0]) as carol:
            houses = (founder, guest, carol)
            await wait_for(lambda: {version(house) for house in houses} == {alone + 3}, what="all to agree")
            assert len({house.auth._membership.heads() for house in houses}) == 1


@pytest.mark.req("COMMUNITY-11")
async def test_who_is_behind_gets_it_in_pages_and_revocations_with_the_last(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(mesh, mesh.home) as founder, await mesh.guest_bus() as guest:
        token = await founder.do(ISSUE, subject=founder.node_id, scope={"capabilities": ["community.sync"]})
        await founder.do(REVOKE_TOKEN, token_id=token["token_id"])
        known = founder.auth._membership.roster

        async def ask(**members: Any) -> dict[str, Any]:
            reply = await guest.call(SYNC, {"params": {}, "input": members}, node=founder.node_id)
            return dict(reply.output)

        everything, nothing = await ask(heads={}), await ask(heads=known.heads())
        first = await ask(heads={}, limit=2)
        monkeypatch.setattr(service, "MOST_BYTES", 10)
        smallest = await ask(heads={})
        with pytest.raises(HearthNetError) as malformed:
            await ask(heads={founder.node_id: ["7:blake3:" + "z" * 64]})
    assert (len(everything["events"]), everything["more"]) == (known.version, False)
    assert [one["token_id"] for one in everything["revocations"]] == [token["token_id"]]
    assert (nothing["events"], nothing["more"], len(nothing["revocations"])) == ([], False, 1)
    assert (len(first["events"]), first["more"], first["revocations"]) == (2, True, [])
    assert (len(smallest["events"]), smallest["more"]) == (1, True)
    assert malformed.value.code == "bad_request"


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.parametrize("answers", [True, False])
async def test_who_claims_to_know_more_and_does_not_is_asked_once(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """It has nothing new to give, or does not answer at all; each time for longer than this test takes."""
    monkeypatch.setattr("hearthnet.service.community.heads_exchange._JITTER_SECONDS", 0)
    monkeypatch.setattr("hearthnet.service.community.peer_heads._AGAIN_SECONDS", 3_600.0)
    monkeypatch.setattr("hearthnet.service.community.peer_heads.FRUITLESS_SECONDS", 3_600.0)
    async with contextlib.AsyncExitStack() as stack:
        founder = await stack.enter_async_context(living(mesh, mesh.home))
        if answers:
            await stack.enter_async_context(living(mesh, mesh.guest))
        liar = await stack.enter_async_context(await mesh.guest_bus())
        asked, looks = list[str](), list[str | None]()
        exchange = founder.auth._exchange
        call, due = exchange._bus.call, exchange._heads._neighbours.due

        async def called(capability: str, *given: Any, **named: Any) -> Any:
            asked.append(named["node"])
            return await call(capability, *given, **named)

        def looked(*given: Any) -> str | None:
            looks.append(due(*given))
            return looks[-1]

        monkeypatch.setattr(exchange._bus, "call", called)
        monkeypatch.setattr(exchange._heads._neighbours, "due", looked)
        for count in range(10):
            claimed = SetDigests(SetDigest(1_000 + count, "blake3:" + "f" * 64), SetDigest(0, ""))
            await gossip_frames.publish(liar.peer.sender, HEADS, msgspec.json.encode(claimed))
            await wait_for(lambda: len(looks) > count, 30, "the founder to look whom to ask")  # noqa: B023
        assert asked == [liar.peer.node_id]
        assert (await founder.do(INVITE))["event_id"], "it goes on doing what it is asked"


@pytest.mark.req("COMMUNITY-6", "COMMUNITY-7")
async def test_an_event_whose_answer_was_lost_is_found_and_not_made_twice(mesh: Mesh) -> None:
    """The store has it, the caller was told that it does not answer; the same client id finds it."""
    async with living(mesh, mesh.home) as founder:
        log, guest = founder.auth._log, await mesh.guest_bus()
        await guest.close()
        claim = log.claim

        async def lost(event: Any) -> Any:
            await claim(event)
            raise HearthNetError("partition", "the answer was lost")

        wanted = {"client_id": "01JZZZZZZZZZZZZZZZZZZZZZ50", "target_node_id": guest.peer.node_id}
        log.claim = lost  # type: ignore[method-assign]
        with pytest.raises(HearthNetError) as unsure:
            await founder.bus.call(
                PROMOTE,
                {"params": {}, "input": {**wanted, "new_level": "trusted"}},
                timeout_seconds=2,
            )
        # The deadline ends the attempts, or an attempt ends just before it.
        assert unsure.value.code in ("timeout", "partition")
        assert founder.level(guest.peer.node_id) == "member"
        log.claim = claim  # type: ignore[method-assign]
        await founder.do(PROMOTE, **wanted, new_level="trusted")
        promotions = [
            event for event in (await log.read()).events if event.event_type == "community.member.promoted"
        ]
        assert len(promotions) == 1
        await wait_for(lambda: founder.level(guest.peer.node_id) == "trusted", what="it to be told")


@pytest.mark.req("COMMUNITY-7")
async def test_what_the_last_run_wrote_down_and_could_not_tell_is_told_at_the_start(mesh: Mesh) -> None:
    """As after a kill between the two: the log has an event that no roster on the disk has."""
    async with living(mesh, mesh.home) as founder:
        chain = founder.auth._chain
        chain._publish = _silence  # type: ignore[method-assign]
        made = await founder.do(INVITE)
    async with await mesh.bus() as listener, living(mesh, mesh.home):

        def known() -> bool:
            return made["event_id"] in {one.event_id for one in listener.peer.roster.events}

        await wait_for(known, what="the event to be told")


async def _silence(events: Any) -> None:
    """Tells nobody."""


@pytest.mark.req("COMMUNITY-6")
async def test_two_processes_of_a_node_never_take_the_same_place(mesh: Mesh) -> None:
    command = ("-m", "hearthnet.service.hosting.main", "auth", "--home", str(mesh.home.path))
    with mesh.published():
        async with (
            await mesh.bus() as bus,
            await mesh.store() as store,
            processes_of_service(bus, mesh.home, INVITE, 2, command) as auth,
        ):
            log, node = CommunityLog(store, mesh.home), bus.peer.node_id

            async def places() -> list[int]:
                events = (await log.read()).events
                return sorted(event.sequence for event in events if event.author == node)

            before = len(await places())
            made = await asyncio.gather(
                *(
                    call_at(
                        bus,
                        view,
                        INVITE,
                        {"params": {}, "input": {"client_id": ids.new_ulid(), "display_name": "x"}},
                        timeout_seconds=60,
                    )
                    for view in auth.views * 5
                )
            )
            assert len({reply.output["event_id"] for reply in made}) == 10
            assert await places() == list(range(1, before + 11)), "one chain"


@pytest.mark.req("COMMUNITY-4")
async def test_who_is_behind_is_told_so_without_waiting_for_the_next_round(mesh: Mesh) -> None:
    heard: list[SetDigests] = []
    async with living(mesh, mesh.home) as founder:
        founder.bus.peer.membership.on_local_heads(heard.append)
        await founder.do(INVITE)
        await wait_for(lambda: founder.auth._membership.heads() in heard, what="the round after the change")
        async with living(mesh, mesh.guest) as guest:
            await wait_for(lambda: version(guest) == version(founder), what="the guest to be told")


@pytest.mark.req("COMMUNITY-6", "COMMUNITY-3")
async def test_a_revocation_that_is_not_on_the_disk_is_told_to_nobody(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder, await mesh.guest_bus() as guest:
        token = await founder.do(ISSUE, subject=founder.node_id, scope={"capabilities": ["community.sync"]})

        async def away(document: Any) -> None:
            raise HearthNetError("capacity_exceeded", "the disk is full")

        founder.auth._log.keep_revocation = away  # type: ignore[method-assign,assignment]
        with pytest.raises(HearthNetError) as caught:
            await founder.do(REVOKE_TOKEN, token_id=token["token_id"])
        await founder.bus.peer.link.flush_subscriptions()
        await guest.peer.link.flush_subscriptions()
        known = (founder.auth._membership, founder.bus.peer.membership, guest.peer.membership)
        assert not any(one.revocations.revoked(founder.node_id, token["token_id"]) for one in known)
    assert caught.value.code == "capacity_exceeded"


@pytest.mark.req("COMMUNITY-10")
async def test_rules_that_are_so_already_are_no_new_event(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder:
        first = await founder.do(POLICY, min_signatures_to_revoke=2)
        before = version(founder)
        again = await founder.do(POLICY, min_signatures_to_revoke=2)
        assert (first["event_id"], version(founder)) == (again["event_id"], before)
