"""A trusted member hides a post with a reason; everybody can read it, and another one takes it back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet_market import MarketService
from hearthnet_market.schemas import HIDDEN
from tests.attacks.test_log_floods import Forger, tell
from tests.helpers.mesh import Mesh, start_mesh, write_roster
from tests.helpers.waiting import wait_for
from tests.services.market.stalls import Stall, stall, until_shown
from tests.services.market.test_deleting import SECRET, _on_disk
from tests.services.market.trade import Guest, do, found, listed, post, refused
from tests.trust.town import promoted, with_events

pytestmark = pytest.mark.asyncio
WHY = "It insults a neighbour."
BACK = "It was a joke."


@pytest_asyncio.fixture
async def plain_street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and two plain members: guest and carol, each with a store."""
    mesh = await start_mesh(tmp_path, "carol")
    yield mesh
    mesh.server.stop()


@pytest.fixture
def street(plain_street: Mesh) -> Mesh:
    """As `plain_street`, but the guest is trusted."""
    trust_guest(plain_street)
    return plain_street


def trust_guest(mesh: Mesh) -> None:
    """Promote the guest."""
    held = keyring.load_roster(mesh.home.roster, mesh.identity.node_id)
    held = with_events(held, promoted(held, mesh.identity, keyring.load_identity(mesh.guest.device_key)))
    write_roster(held, mesh.home, mesh.guest, *mesh.others)


async def hidden(at: Stall) -> dict[str, list[tuple[str, str]]]:
    """By whom the hidden posts are hidden and why, by their titles."""
    posts = (await do(at.bus, "list", hidden=True))["posts"]
    return {one["title"]: [(by["by"], by["reason"]) for by in one["hidden"]] for one in posts}


async def until_hidden(at: Stall, posts: dict[str, list[tuple[str, str]]]) -> None:
    """Wait until exactly these are hidden at that home, by these members for these reasons."""

    async def are_hidden() -> bool:
        return await hidden(at) == posts

    await wait_for(are_hidden, 10, f"{posts} to be hidden")


@pytest.mark.req("MARKET-35", "MARKET-36")
async def test_a_hidden_post_is_hidden_everywhere_until_it_is_taken_back(street: Mesh) -> None:
    homes = (street.home, street.guest, *street.others)
    async with (
        stall(street, homes[0]) as founder,
        stall(street, homes[1]) as guest,
        stall(street, homes[2]) as carol,
    ):
        by = guest.bus.peer.node_id
        one = await post(carol.bus, "Ladder", tags=["tools"])
        await until_shown(guest, {"Ladder"})
        since = (await do(carol.bus, "list"))["max_lamport"]
        await do(guest.bus, "hide", event_id=one, reason=WHY)
        for at in (founder, guest, carol):
            await until_hidden(at, {"Ladder": [(by, WHY)]})
            assert (await at.shown(), await found(at.bus, "ladder")) == ({}, [])
        news = await do(carol.bus, "list", since_lamport=since)
        assert (news["posts"], news["removed"], news["ended"]) == ([], [one], [])
        [why] = news["hidden"]
        assert (why["event_id"], why["by"], why["reason"]) == (one, by, WHY)
        # It is its author's as before: to change, to take along, and to end.
        await do(carol.bus, "update", event_id=one, fields={"title": "Long ladder"})
        await until_hidden(founder, {"Long ladder": [(by, WHY)]})
        [mine] = (await do(carol.bus, "export"))["posts"]
        assert mine["hidden"] == [why]
        assert len((await do(founder.bus, "export", event_id=one))["events"]) == 3
        await do(founder.bus, "unhide", event_id=one, reason=BACK)
        for at in (founder, guest, carol):
            await until_shown(at, {"Long ladder"})
            assert await hidden(at) == {}
        news = await do(carol.bus, "list", since_lamport=since)
        assert ([again["event_id"] for again in news["posts"]], news["removed"]) == ([one], [])
        events = (await do(guest.bus, "export", event_id=one))["events"]
        assert BACK in [event["data"].get("reason") for event in events]
        await do(guest.bus, "hide", event_id=one, reason=WHY)
        for at in (founder, carol):
            await until_hidden(at, {"Long ladder": [(by, WHY)]})
        await do(carol.bus, "expire", event_id=one, reason="withdrawn")
        await until_hidden(founder, {})
        assert await found(founder.bus, "ladder") == []


@pytest.mark.req("MARKET-35", "MARKET-36")
async def test_the_page_of_a_trusted_homes_owner_hides_at_every_home(street: Mesh) -> None:
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        page, by = Guest(street, founder.bus, "owner"), founder.bus.peer.node_id
        one = await post(guest.bus, "Ladder")
        await until_shown(founder, {"Ladder"})
        await page.do("hide", event_id=one, reason=WHY)
        for at in (founder, guest):
            await until_hidden(at, {"Ladder": [(by, WHY)]})
        await page.do("unhide", event_id=one, reason=BACK)
        for at in (founder, guest):
            await until_shown(at, {"Ladder"})


@pytest.mark.req("MARKET-36")
async def test_who_may_not_hide_or_take_back_is_refused(street: Mesh) -> None:
    async with (
        stall(street, street.guest) as guest,
        stall(street, street.others[0]) as carol,
        stall(street, street.home) as founder,
    ):
        visitor = Guest(street, founder.bus)
        theirs, own = await post(carol.bus, "Theirs"), await post(founder.bus, "Own")
        await until_shown(founder, {"Theirs", "Own"})
        await until_shown(carol, {"Theirs", "Own"})
        for event_id in (theirs, own):
            assert (await refused(carol.bus, "hide", event_id=event_id, reason=WHY)).code == "unauthorized"
            with pytest.raises(HearthNetError, match="trusted"):
                await visitor.do("hide", event_id=event_id, reason=WHY)
        assert (await refused(founder.bus, "unhide", event_id=own, reason=BACK)).code == "not_found"
        blank = await refused(founder.bus, "hide", event_id=own, reason="  ")
        assert blank.details == {"path": "/input/reason", "rule": "blank"}
        await until_shown(guest, {"Theirs", "Own"})
        await do(guest.bus, "hide", event_id=own, reason=WHY)
        await do(guest.bus, "hide", event_id=theirs, reason=WHY)
        await until_shown(founder, set())
        await until_shown(carol, set())
        # Its author is an anchor, and nevertheless leaves the judgement to another one.
        for at, event_id in ((founder, own), (carol, theirs), (carol, own)):
            again = await refused(at.bus, "unhide", event_id=event_id, reason=BACK)
            assert (again.code, "other than its author" in again.message) == ("unauthorized", True)
        with pytest.raises(HearthNetError, match="other than its author"):
            await visitor.do("unhide", event_id=theirs, reason=BACK)
        assert (await refused(founder.bus, "hide", event_id=theirs, reason=WHY)).rule == "already"
        await do(founder.bus, "unhide", event_id=theirs, reason=BACK)
        await until_shown(guest, {"Theirs"})


@pytest.mark.req("MARKET-36")
async def test_who_hid_a_post_takes_it_back_though_no_longer_trusted(plain_street: Mesh) -> None:
    street = plain_street
    untrusted = keyring.load_roster(street.home.roster, street.identity.node_id)
    trust_guest(street)
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        one = await post(founder.bus, "Ladder")
        await until_shown(guest, {"Ladder"})
        await do(guest.bus, "hide", event_id=one, reason=WHY)
        await until_shown(founder, set())
    write_roster(untrusted, street.home, street.guest)
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        assert (await refused(guest.bus, "hide", event_id=one, reason=WHY)).code == "unauthorized"
        await do(guest.bus, "unhide", event_id=one, reason=BACK)
        await until_shown(founder, {"Ladder"})


@pytest.mark.req("MARKET-36")
async def test_a_repetition_hides_once(street: Mesh) -> None:
    async with stall(street, street.home) as founder:
        one = await post(founder.bus, "Ladder")
        for verb in ("hide", "unhide"):
            given = {"client_id": ids.new_ulid(), "event_id": one, "reason": WHY}
            first = await do(founder.bus, verb, **given)
            assert await do(founder.bus, verb, **given) == first
            assert (await refused(founder.bus, verb, **{**given, "reason": BACK})).rule == "reused"
        assert list(await listed(founder.bus)) == [one]


@pytest.mark.req("MARKET-38", "MARKET-33")
async def test_a_view_derived_anew_hides_the_same_and_a_deletion_erases_the_reasons(street: Mesh) -> None:
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        kept, gone = await post(founder.bus, "Ladder"), await post(founder.bus, "Saw")
        await until_shown(guest, {"Ladder", "Saw"})
        await do(founder.bus, "hide", event_id=kept, reason=WHY)
        await do(founder.bus, "unhide", event_id=kept, reason=BACK)
        await until_shown(guest, {"Ladder", "Saw"})
        for event_id in (kept, gone):
            await do(guest.bus, "hide", event_id=event_id, reason=f"the {SECRET}")
        await until_shown(founder, set())
        before = [(await do(at.bus, "list", hidden=True))["posts"] for at in (founder, guest)]
    assert _on_disk(street.home.path, SECRET)
    for home in (street.home, street.guest):
        for file in home.service("market").glob("view.*"):
            file.unlink()
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        assert [(await do(at.bus, "list", hidden=True))["posts"] for at in (founder, guest)] == before
        await do(founder.bus, "delete", all=True)
        await until_hidden(guest, {})
        for home in (street.home, street.guest):
            await wait_for(lambda: not _on_disk(home.path, SECRET), 20, "the reasons to be erased")  # noqa: B023


@pytest.mark.req("MARKET-37", "ATTACK-118")
async def test_a_forged_hiding_of_a_plain_member_has_no_effect(street: Mesh) -> None:
    """Nor a taking back by the author at its own home, which does not check itself."""
    carol = street.others[0]
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        forger = Forger(carol, founder.bus.peer.community)
        made = forger.text("Ladder")
        other = await post(founder.bus, "Saw")

        def forged(kind: str, target: str, author: str = "", **data: Any) -> str:
            data = {"target_event_id": target, "reason": "Mine.", **data}
            return forger.text("", author, event_type=kind, data=data)

        ladder = forger.event(made)
        async with await street.bus(at=carol) as bus:
            await tell(bus, [ladder, forger.event(forged(HIDDEN, other))])
            await tell(bus, [forger.event(forged(HIDDEN, other, f"{forger.identity.node_id}/anna"))])
            for at in (founder, guest):
                await until_shown(at, {"Ladder", "Saw"})
            await do(guest.bus, "hide", event_id=ladder.entry.event_id, reason=WHY)
            [hiding] = (await do(guest.bus, "export"))["events"]
            back = forged("market.post.unhidden", ladder.entry.event_id, hidings=[hiding["event_id"]])
            await tell(bus, [forger.event(back), forger.event(forger.text("After all"))])
            for at in (founder, guest):
                await until_shown(at, {"After all", "Saw"})
                assert list(await hidden(at)) == ["Ladder"]
            events = (await do(founder.bus, "export", event_id=other))["events"]
            assert [event["event_type"] for event in events] == ["market.post.created"]


@pytest.mark.req("MARKET-35")
async def test_a_hidden_post_is_not_found_by_meaning(street: Mesh) -> None:
    market = MarketService()
    async with street.hosting(market), await street.bus() as bus:
        one, other = await post(bus, "Ladder"), await post(bus, "Saw")
        await do(bus, "hide", event_id=one, reason=WHY)
        assert [recent[0] for recent in market._view.recent(10, 0)] == [other]
        assert list(market._view.chosen([one, other], 0)) == [other]
