"""Reserve, promise, hand over, give back: each step by the person concerned, the same at every home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.bus.session import keyring
from hearthnet.cli.workflows.market_proofs import problem
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from hearthnet_market.incoming import check_incoming, may_change
from hearthnet_market.lending import BORROWER, LENDER, RESERVED, LendInput, lending_of
from hearthnet_market.loan_states import Loan
from hearthnet_market.schemas import PostState
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.residents import resident
from tests.helpers.waiting import wait_for
from tests.services.market.stalls import Stall, stall, until_shown
from tests.services.market.test_any_order import event
from tests.services.market.test_hiding import trust_guest
from tests.services.market.trade import do, listed, post, refused

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder, guest and carol, each with a store; the guest is trusted."""
    mesh = await start_mesh(tmp_path, "carol")
    trust_guest(mesh)
    yield mesh
    mesh.server.stop()


async def loans(at: Stall, event_id: str) -> dict[str, str]:
    """The states of the reservations of a post, by the nodes that made them."""
    found = (await do(at.bus, "export", event_id=event_id))["posts"]
    return {one["by"]: one["state"] for one in found[0].get("loans", [])}


async def until_lent(at: Stall, event_id: str, states: dict[str, str]) -> None:
    """Wait until the reservations of a post are in exactly these states at that home."""

    async def are_so() -> bool:
        return await loans(at, event_id) == states

    await wait_for(are_so, 10, f"{states} of {event_id}")


async def is_closed(at: Stall, event_id: str) -> bool:
    """Whether nothing of the ended post concerns that home any more."""
    try:
        await do(at.bus, "export", event_id=event_id)
    except HearthNetError as error:
        return error.code == "not_found"
    return False


@pytest.mark.req("MARKET-41", "MARKET-42")
async def test_a_thing_is_reserved_promised_lent_and_given_back(street: Mesh) -> None:
    async with (
        stall(street, street.home) as owner,
        stall(street, street.guest) as guest,
        stall(street, street.others[0]) as carol,
    ):
        one = await post(owner.bus, "Ladder")
        first, second = guest.bus.peer.node_id, carol.bus.peer.node_id
        for at in (guest, carol):
            await until_shown(at, {"Ladder"})
        mine = (await do(guest.bus, "reserve", event_id=one, note="On Saturday."))["event_id"]
        await do(carol.bus, "reserve", event_id=one)
        for at in (owner, guest, carol):
            await until_lent(at, one, {first: "asked", second: "asked"})
        [shown, _] = (await listed(carol.bus))[one]["loans"]
        assert (shown["event_id"], shown["note"]) == (mine, "On Saturday.")
        since = (await do(carol.bus, "list"))["max_lamport"]
        await do(owner.bus, "lend", event_id=one, reservation=mine, step="promise")
        for at in (owner, guest, carol):
            await until_lent(at, one, {first: "promised", second: "asked"})
        [news] = (await do(carol.bus, "list", since_lamport=since))["posts"]
        [theirs] = [loan["event_id"] for loan in news["loans"] if loan["by"] == second]
        busy = await refused(owner.bus, "lend", event_id=one, reservation=theirs, step="hand_over")
        assert busy.rule == "promised"
        await do(owner.bus, "lend", event_id=one, reservation=mine, step="hand_over")
        await until_lent(guest, one, {first: "lent", second: "asked"})
        # It can come back after its post has ended, which does not take away what was agreed.
        await do(owner.bus, "expire", event_id=one, reason="withdrawn")
        await until_shown(guest, set())
        await do(guest.bus, "reserve", event_id=one, step="give_back")
        await until_lent(owner, one, {first: "returning", second: "asked"})
        await do(owner.bus, "lend", event_id=one, reservation=mine, step="take_back")
        await do(carol.bus, "reserve", event_id=one, step="withdraw")
        await until_lent(owner, one, {first: "returned", second: "withdrawn"})
        events = (await do(owner.bus, "export", event_id=one))["events"]
        assert len(events) == 9
        assert [problem(told, owner.bus.peer.roster) for told in events] == [""] * 9
        for at in (guest, carol):
            await wait_for(partial(is_closed, at, one), 10, "the end of the loan")


@pytest.mark.req("MARKET-42")
async def test_steps_that_are_not_for_the_caller_or_do_not_fit_are_refused(street: Mesh) -> None:
    async with stall(street, street.home) as owner, stall(street, street.guest) as guest:
        one = await post(owner.bus, "Ladder")
        await until_shown(guest, {"Ladder"})
        assert (await refused(owner.bus, "reserve", event_id=one)).code == "unauthorized"
        assert (await refused(guest.bus, "reserve", event_id=one, step="withdraw")).code == "not_found"
        mine = (await do(guest.bus, "reserve", event_id=one))["event_id"]
        assert (await refused(guest.bus, "reserve", event_id=one)).rule == "already"
        assert (await refused(guest.bus, "reserve", event_id=one, step="give_back")).rule == "state"
        for word in ("promise", "hand_over", "refuse", "take_back"):
            error = await refused(guest.bus, "lend", event_id=one, reservation=mine, step=word)
            assert error.code == "unauthorized"
        await until_lent(owner, one, {guest.bus.peer.node_id: "asked"})
        named = {"event_id": one, "reservation": mine}
        assert (await refused(owner.bus, "lend", **named, step="take_back")).rule == "state"
        assert (await refused(owner.bus, "reserve", **named, step="withdraw")).code == "unauthorized"
        await do(owner.bus, "lend", **named, step="refuse")
        assert (await refused(owner.bus, "lend", **named, step="promise")).rule == "state"
        nobody = {"event_id": one, "reservation": one}
        assert (await refused(owner.bus, "lend", **nobody, step="promise")).code == "not_found"
        wanted = await post(owner.bus, "Drill", category="request")
        await until_shown(guest, {"Ladder", "Drill"})
        assert (await refused(guest.bus, "reserve", event_id=wanted)).rule == "category"


@pytest.mark.req("MARKET-41", "MARKET-43")
async def test_two_who_ask_apart_are_both_asked_until_the_owner_decides(street: Mesh) -> None:
    homes = (street.home, street.guest, street.others[0])
    async with stall(street, homes[0]) as owner:
        one = await post(owner.bus, "Ladder")
        nodes = []
        for home in homes[1:]:
            async with stall(street, home) as at:
                await until_shown(at, {"Ladder"})
                nodes.append(at.bus.peer.node_id)
    # Each of the two asks while its home runs alone.
    for home, node in zip(homes[1:], nodes, strict=True):
        async with stall(street, home) as at:
            await do(at.bus, "reserve", event_id=one)
            assert await loans(at, one) == {node: "asked"}
    async with (
        stall(street, homes[0]) as owner,
        stall(street, homes[1]) as guest,
        stall(street, homes[2]) as carol,
    ):
        for at in (owner, guest, carol):
            await until_lent(at, one, dict.fromkeys(nodes, "asked"))
        [first, _] = (await listed(owner.bus))[one]["loans"]
        await do(owner.bus, "lend", event_id=one, reservation=first["event_id"], step="promise")
        for at in (guest, carol):
            await until_lent(at, one, {**dict.fromkeys(nodes, "asked"), first["by"]: "promised"})


@pytest.mark.req("MARKET-44")
async def test_a_member_withdraws_the_reservation_of_its_guest(street: Mesh) -> None:
    async with stall(street, street.home) as home, stall(street, street.others[0]) as carol:
        one = await post(carol.bus, "Ladder")
        await until_shown(home, {"Ladder"})
        anna = resident(street.identity, home.bus, "anna")
        given = {"client_id": new_ulid(), "event_id": one}
        made = (await anna.call("market.reserve@1.0", {}, **given))["event_id"]
        await until_lent(carol, one, {home.bus.peer.node_id: "asked"})
        [shown] = (await listed(carol.bus))[one]["loans"]
        assert shown["guest"] == "anna"
        withdrawn = {"event_id": one, "reservation": made, "step": "withdraw"}
        assert (await refused(carol.bus, "reserve", **withdrawn)).code == "unauthorized"
        await do(home.bus, "reserve", **withdrawn)
        await until_lent(carol, one, {home.bus.peer.node_id: "withdrawn"})


@pytest.mark.req("MARKET-44")
async def test_a_hidden_post_is_not_reserved_and_a_deletion_takes_reservations_along(street: Mesh) -> None:
    async with stall(street, street.home) as owner, stall(street, street.others[0]) as carol:
        one, two = await post(owner.bus, "Ladder"), await post(owner.bus, "Saw")
        await until_shown(carol, {"Ladder", "Saw"})
        mine = (await do(carol.bus, "reserve", event_id=two, note="A secret of Carol"))["event_id"]
        await until_lent(owner, two, {carol.bus.peer.node_id: "asked"})
        await do(owner.bus, "hide", event_id=one, reason="It is broken.")
        await do(owner.bus, "hide", event_id=two, reason="It is broken, too.")
        await until_shown(carol, set())
        assert (await refused(carol.bus, "reserve", event_id=one)).code == "not_found"
        # What was agreed before goes on.
        await do(owner.bus, "lend", event_id=two, reservation=mine, step="promise")
        await until_lent(carol, two, {carol.bus.peer.node_id: "promised"})
        await do(owner.bus, "delete", event_id=two)

        async def erased() -> bool:
            return not (await do(carol.bus, "export"))["events"]

        await wait_for(erased, 10, "the reservation to be erased")
        gone = await refused(carol.bus, "reserve", event_id=two, step="withdraw")
        assert gone.code == "not_found"


@pytest.mark.req("ATTACK-135")
async def test_of_two_reservations_with_one_id_the_lender_names_one() -> None:
    key = f"{2:026d}"
    mine, copied = Loan(key, "carol", "", 1, "asked"), Loan(key, "guest/anna", "", 0, "asked")
    offered = PostState("owner", 1, 0, current=True, category="offer", loans=(copied, mine))
    given: dict[str, Any] = {"client_id": new_ulid(), "event_id": f"{1:026d}", "reservation": key}
    with pytest.raises(HearthNetError) as error:
        lending_of(LendInput(**given, step="promise"), offered, {"owner"})
    assert (error.value.rule, error.value.alt) == ("ambiguous", ["guest/anna", "carol"])
    for named, by in (("carol", "carol"), ("guest", "guest/anna"), ("guest/anna", "guest/anna")):
        meant = LendInput(**given, step="promise", borrower=named)
        assert lending_of(meant, offered, {"owner"})["borrower"] == by
    both = offered._replace(loans=(copied, mine._replace(by="guest")))
    for by in ("guest", "guest/anna"):
        meant = LendInput(**given, step="refuse", borrower=by)
        assert lending_of(meant, both, {"owner"})["borrower"] == by, "a home with the id of its own guest"
    with pytest.raises(HearthNetError) as error:
        lending_of(LendInput(**given, step="promise", borrower="stranger"), offered, {"owner"})
    assert error.value.code == "not_found"


@pytest.mark.req("MARKET-43", "ATTACK-135")
async def test_other_homes_judge_who_takes_a_step(street: Mesh) -> None:
    roster = keyring.load_roster(street.home.roster)
    owner, guest, carol = (
        keyring.load_identity(home.device_key).node_id
        for home in (street.home, street.guest, street.others[0])
    )
    data: dict[str, Any] = {"target_event_id": f"{1:026d}", "reservation": f"{2:026d}", "borrower": carol}
    promise = {**data, "step": "promise"}
    assert may_change(event(3, LENDER, promise, owner), owner, roster)
    # A moderator lends nothing of others, and a borrower promises itself nothing.
    assert not may_change(event(3, LENDER, promise, guest), owner, roster)
    assert not may_change(event(3, LENDER, promise, carol), owner, roster)
    assert not may_change(event(3, LENDER, promise, owner), f"{owner}/anna", roster)
    withdraw = {**data, "step": "withdraw"}
    assert may_change(event(3, BORROWER, withdraw, carol), carol, roster)
    assert may_change(event(3, BORROWER, withdraw, carol), f"{carol}/anna", roster)
    assert not may_change(event(3, BORROWER, withdraw, guest), carol, roster)
    check_incoming(owner, event(3, LENDER, promise, owner))
    check_incoming(carol, event(2, RESERVED, {"target_event_id": f"{1:026d}", "step": "ask"}, carol))
    without = [
        {**promise, name: wrong} for name in ("reservation", "borrower") for wrong in (None, 7, "x" * 999)
    ]
    for malformed in (*without, {**promise, "step": "sell"}, {"target_event_id": f"{1:026d}"}):
        with pytest.raises(HearthNetError):
            check_incoming(owner, event(3, LENDER, malformed, owner))
