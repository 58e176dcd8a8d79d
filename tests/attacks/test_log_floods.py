"""A member that writes to the community's event log what nobody should: against a market on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames, keyring
from hearthnet.bus.session.gossip_frames import SetDigest
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.service.effects.event_log import Event
from hearthnet.service.eventlog import topic_chains, topic_intake, topic_log
from hearthnet.service.eventlog.chain_store import ChainRecord, ChainStore
from hearthnet.trust.eventlog import chains as chain_rules
from hearthnet.trust.eventlog.chains import Chains
from hearthnet.trust.eventlog.entries import MAX_FUTURE_MS, LogEvent, write_entry
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for
from tests.services.market.stalls import Stall, stall, until_shown
from tests.services.market.trade import post

pytestmark = [pytest.mark.asyncio, pytest.mark.req("ATTACK-100")]
NEWS = "community.topic.market"


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and two members: guest, and carol, who attacks."""
    started = await start_mesh(tmp_path, "carol")
    yield started
    started.server.stop()


class Forger:
    """Writes events of the market with the key of `home`, as it likes."""

    def __init__(self, home: Home, community: str) -> None:
        self.identity = keyring.load_identity(home.device_key)
        self.community = community
        self.chains = Chains()

    def text(self, title: str, author: str = "", **given: Any) -> str:
        """The text of a post."""
        data = {"category": "offer", "title": title, "body": "To lend.", "ttl_seconds": 9_999}
        event = Event(
            event_id=ids.new_ulid(),
            event_type="market.post.created",
            wall_clock=rfc3339(now_ms()),
            community_id=self.community,
            author=author or self.identity.node_id,
            client_id=ids.new_ulid(),
            data=data,
            arguments_digest="d",
            frame="f",
            approval=None,
        )
        return msgspec.json.encode(msgspec.structs.replace(event, **given)).decode()

    def event(self, text: str, *, by: Identity | None = None, time: int = 0, **place: Any) -> LogEvent:
        """The event of the log with that text, in the next place, which is taken by it."""
        said = msgspec.json.decode(text)
        signer = by or self.identity
        entry = write_entry(
            signer,
            self.community,
            "market",
            text,
            place=place.get("at") or self.chains.next(signer.node_id),
            event_id=said["event_id"],
            event_type=said["event_type"],
            person=signer.node_id,
            time=time or now_ms(),
        )
        self.chains.add(entry)
        return LogEvent(entry, text)


async def tell(bus: Bus, events: Iterable[LogEvent]) -> None:
    """Announce `events` in the name of the node of `bus`."""
    for body in gossip_frames.batches(events, ()):
        await gossip_frames.publish(bus.peer.sender, NEWS, body)


async def refused(at: Stall, why: str) -> None:
    """Wait until `at` has dropped an event for that reason."""

    def is_dropped() -> bool:
        return why in str(at.market._topic.dropped[1])

    await wait_for(is_dropped, 10, why)


async def test_what_does_not_prove_itself_is_not_taken_in(street: Mesh) -> None:
    carol = street.others[0]
    async with stall(street, street.home) as here, await street.bus(at=carol) as bus:
        forger = Forger(carol, here.bus.peer.community)
        guest = keyring.load_identity(street.guest.device_key).node_id

        def fresh() -> Forger:
            return Forger(carol, here.bus.peer.community)

        good = forger.event(forger.text("Good"))
        borrowed = msgspec.structs.replace(good.entry, author=guest)
        outsider = Identity.generate()
        deep = f'{fresh().text("Deep")[:-1]},"unknown":{"[" * 900 + "]" * 900}}}'
        for event, why in (
            (LogEvent(good.entry, forger.text("Other")), "another than the entry says"),
            (LogEvent(borrowed, good.body), "not signed by"),
            (fresh().event(fresh().text("Later", wall_clock="2099-01-01T00:00:00Z")), "dated after it"),
            (fresh().event(fresh().text("Elsewhere", community_id=guest)), "about another event"),
            (fresh().event(deep), "nested too deep"),
            (fresh().event(fresh().text("Ahead"), time=now_ms() + MAX_FUTURE_MS + 60_000), "in the future"),
            (fresh().event(fresh().text("Lost"), at=(7, "blake3:" + "0" * 64, 0)), "is not here"),
        ):
            before = here.market._topic.dropped[0]
            await tell(bus, [event])
            await wait_for(lambda: here.market._topic.dropped[0] > before, 10, why)  # noqa: B023
            assert why in here.market._topic.dropped[1][-1]
        await tell(bus, [fresh().event(fresh().text("Nobody's"), by=outsider)])
        await tell(bus, [good])
        await until_shown(here, {"Good"})
        assert here.market._topic.state.entries == 1


async def test_a_body_that_the_market_refuses_is_not_kept_and_keeps_nothing_back(street: Mesh) -> None:
    carol = street.others[0]
    async with stall(street, street.home) as here, await street.bus(at=carol) as bus:
        forger = Forger(carol, here.bus.peer.community)
        guest = keyring.load_identity(street.guest.device_key).node_id
        for text, why in (
            (forger.text("In Guest's name", author=guest), "somebody else"),
            (forger.text("Long", data={"title": "x" * 200}), ""),
            (forger.text("Odd", event_type="chat.said"), "unknown kind"),
        ):
            before = here.market._topic.dropped[0]
            await tell(bus, [forger.event(text)])
            await wait_for(lambda: here.market._topic.dropped[0] > before, 10, why)  # noqa: B023
            assert why in here.market._topic.dropped[1][-1]
        await tell(bus, [forger.event(forger.text("Good"))])
        await until_shown(here, {"Good"})
        state = here.market._topic.state
        assert (state.entries, state.forks) == (4, ())


async def test_a_fork_is_named_and_a_chain_has_few_ends(
    street: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    carol = street.others[0]
    async with stall(street, street.home) as here, await street.bus(at=carol) as bus:
        forger = Forger(carol, here.bus.peer.community)
        first = forger.event(forger.text("first"))
        forks = [
            forger.event(forger.text(f"fork {number}"), at=(2, first.entry.hash, 0)) for number in range(6)
        ]
        for one in (first, *forks):
            await tell(bus, [one])
        await refused(here, "too many ends")
        await until_shown(here, {"first", "fork 0", "fork 1", "fork 2", "fork 3"})
        assert here.market._topic.state.forks == (forger.identity.node_id,)
        await wait_for(lambda: "forks at its event 2" in caplog.text, 10, "the fork to be named")


async def test_one_author_fills_its_own_day_and_nobody_elses(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_rules, "MAX_DAY_BYTES", 3_000)
    carol = street.others[0]
    async with (
        stall(street, street.home) as here,
        stall(street, street.guest) as guest,
        await street.bus(at=carol) as bus,
    ):
        forger = Forger(carol, here.bus.peer.community)
        await tell(bus, [forger.event(forger.text(f"flood {number}")) for number in range(40)])
        await refused(here, "all that is kept of one day")
        await post(guest.bus, "from the guest")
        shown = await wait_for(lambda: _with(here, "from the guest"), 10, "the guest's post")
        assert 3 <= len(shown) <= 8


async def test_what_is_refused_of_two_branches_keeps_nothing_else_back(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two homes hold different branches of one chain, whose day is used up at both."""
    carol = street.others[0]
    async with stall(street, street.home) as here, await street.bus(at=carol) as bus:
        forger = Forger(carol, here.bus.peer.community)
        data = {"category": "offer", "body": "b" * 1_500, "ttl_seconds": 9_999}
        texts = [forger.text("", data={**data, "title": f"title {number}"}) for number in range(4)]
        monkeypatch.setattr(chain_rules, "MAX_DAY_BYTES", 3 * len(texts[0]))
        monkeypatch.setattr(topic_log, "_PAGE", 1)
        then = now_ms() - 60_000  # so that all of it comes before the guest's post
        root, common = forger.event(texts[0], time=then), forger.event(texts[1], time=then)
        place = (2, root.entry.hash, then)
        branches = [forger.event(texts[number], at=place, time=then) for number in (2, 3)]
        await tell(bus, [root, common, branches[0]])
        await until_shown(here, {"title 0", "title 1", "title 2"})
    async with stall(street, street.guest) as guest:
        async with await street.bus(at=carol) as bus:
            await tell(bus, [root, common, branches[1]])
            await until_shown(guest, {"title 0", "title 1", "title 3"})
        await post(guest.bus, "from the guest")
        async with stall(street, street.home) as here:
            await until_shown(here, {"title 0", "title 1", "title 2", "from the guest"})


async def _with(at: Stall, title: str) -> set[str]:
    titles = set((await at.shown()).values())
    return titles if title in titles else set()


async def test_a_line_of_invitation_shares_the_room_of_a_home(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_intake, "LINE_BYTES", 5_000)
    carol = street.others[0]
    async with stall(street, street.home) as here, await street.bus(at=carol) as bus:
        forger = Forger(carol, here.bus.peer.community)
        await tell(bus, [forger.event(forger.text(f"flood {number}")) for number in range(10)])
        await refused(here, "has used its room")
        await until_shown(here, {"flood 0", "flood 1", "flood 2"})


async def left_alone(
    street: Mesh, monkeypatch: pytest.MonkeyPatch, lies: Callable[[Forger], list[LogEvent]], pages: int
) -> None:
    """A home claims more than it has, and its pages never end: it is left after `pages`, and others go on."""
    carol = street.others[0]
    async with stall(street, street.home) as here, stall(street, carol) as liar:
        forger = Forger(carol, here.bus.peer.community)
        asked = list[int]()

        async def page(*given: Any) -> dict[str, Any]:
            asked.append(len(given))
            return {"events": lies(forger), "left": 1_000, "bodies": []}

        monkeypatch.setattr(liar.market._topic, "page", page)
        claimed = msgspec.json.encode(SetDigest(9_999, "blake3:" + "f" * 64))
        await gossip_frames.publish(liar.bus.peer.sender, "community.heads.market", claimed)
        await wait_for(lambda: len(asked) >= pages, 10, "the liar to be asked")
        await wait_for(lambda: here.market._topic.state.left == 0, 10, "the fetch to end")
        async with stall(street, street.guest) as guest:
            await post(guest.bus, "true")
            await until_shown(here, {"true"})
        assert len(asked) <= pages + 2


async def test_who_announces_more_and_answers_with_forgeries_is_left(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgeries(forger: Forger) -> list[LogEvent]:
        events = [forger.event(forger.text("x")) for _ in range(60)]
        return [LogEvent(one.entry, one.body + " ") for one in events]

    await left_alone(street, monkeypatch, forgeries, 2)


async def test_a_flood_of_announcements_is_dropped_unread(street: Mesh) -> None:
    carol = street.others[0]
    async with (
        stall(street, street.home) as here,
        stall(street, street.guest) as guest,
        await street.bus(at=carol) as bus,
    ):
        forger = Forger(carol, here.bus.peer.community)
        bad = LogEvent(forger.event(forger.text("x")).entry, forger.text("y"))
        for _ in range(60):
            await tell(bus, [bad] * 100)
        assert here.market._topic._intake.invalid <= 2_000
        await post(guest.bus, "from the guest")
        await until_shown(here, {"from the guest"})


async def test_bodies_that_were_kept_back_are_given_a_page_at_a_time(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they would exceed what a reply may have, and the home that lacks them would get nothing."""
    carol = street.others[0]
    async with stall(street, street.home) as here, await street.bus(at=carol) as bus:
        forger = Forger(carol, here.bus.peer.community)
        told = [forger.event(forger.text(f"title {number}")) for number in range(5)]
        await tell(bus, told)
        await wait_for(lambda: len(here.market._topic._held._numbers) == 5, 10, "five entries on the disk")
        monkeypatch.setattr(topic_chains, "PAGE_BYTES", 4 * told[0].entry.size)
        hashes = [one.entry.hash for one in told]
        page = await here.market._topic.page(bus.peer.node_id, {}, 1, hashes)
        assert page["bodies"] == told[:2]


async def test_a_home_whose_pages_never_end_is_left_after_a_time(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold what strangers have signed, which is read by nobody and counted for nobody."""
    monkeypatch.setattr(topic_log, "_LONGEST_SECONDS", 0.0)

    def of_a_stranger(forger: Forger) -> list[LogEvent]:
        return [forger.event(forger.text("x"), by=Identity.generate())]

    await left_alone(street, monkeypatch, of_a_stranger, 1)


@pytest.mark.req("ATTACK-156")
async def test_chains_of_others_do_not_hold_up_the_start(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A market answers before they are read, however many they are, and tells its posts then."""
    read, may_read = ChainStore.read, asyncio.Event()

    async def late(chains: ChainStore, after: int) -> AsyncIterator[list[tuple[int, ChainRecord]]]:
        await may_read.wait()
        async for batch in read(chains, after):
            yield batch

    monkeypatch.setattr(ChainStore, "read", late)
    async with asyncio.timeout(30), stall(street, street.home) as here, stall(street, street.guest) as guest:
        await post(here.bus, "early")
        await until_shown(here, {"early"})
        assert not await guest.shown()
        asked = asyncio.ensure_future(here.market._topic.page(guest.bus.peer.node_id, {}, 10))
        may_read.set()
        await until_shown(guest, {"early"})
        # A home that asked meanwhile was not told that there is nothing.
        await asked
