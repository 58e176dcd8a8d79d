"""History that a home asks for: its meter, and how it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.bus.session import keyring
from hearthnet.bus.store import Store
from hearthnet.core.config import CommunityConfig
from hearthnet.core.home import Home
from hearthnet.service.effects import direct_reads, jetstream_records
from hearthnet.service.effects.event_log import EventLog, KeptText
from hearthnet.service.effects.jetstream_records import Message
from hearthnet.service.eventlog import history_meter, topic_intake, topic_log
from hearthnet.service.eventlog.chain_store import ChainRecord, ChainStore
from hearthnet.service.eventlog.history_meter import LINE_BYTES, HistoryMeter
from hearthnet.service.eventlog.topic_chains import TopicChains
from hearthnet.service.eventlog.topic_log import TopicLog
from tests.helpers import large_community
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for
from tests.services.market.stalls import stall, until_shown
from tests.services.market.trade import post

DAY = 86_400
LINE = ("anna",)


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and a member, each with a store."""
    started = await start_mesh(tmp_path)
    yield started
    started.server.stop()


@pytest.mark.req("SCALE-5")
def test_history_of_a_line_has_the_room_of_the_time_missed() -> None:
    chosen = CommunityConfig(history_mb=1_000)
    assert not HistoryMeter(chosen, 0).take(LINE, LINE_BYTES + 1)
    assert HistoryMeter(chosen, 10 * DAY).take(LINE, LINE_BYTES + 160_000_000)
    assert not HistoryMeter(chosen, 10 * DAY).take(LINE, LINE_BYTES + 170_000_000)
    assert not HistoryMeter(chosen, -DAY).take(LINE, LINE_BYTES + 1), "dated after this home's clock"


@pytest.mark.req("SCALE-5")
def test_history_costs_what_the_home_has_chosen() -> None:
    meter = HistoryMeter(CommunityConfig(history_mb=2, history_cpu=20), 0)
    assert meter.rest(1.0, 1.0) == pytest.approx(4.0)
    assert meter.rest(1.0, 3.0) == pytest.approx(2.0), "what it waited for the page and the disk counts"
    assert meter.rest(1.0, 9.0) == 0
    assert meter.take(LINE, 1_500_000)
    assert meter.take(("berta",), 600_000)
    assert meter.is_spent
    assert not meter.take(("carla",), 1)
    assert HistoryMeter(CommunityConfig(history_cpu=100), 0).rest(1.0, 1.0) == 0


@pytest.mark.asyncio
@pytest.mark.req("SCALE-5")
async def test_history_that_was_asked_for_is_apart_from_announced_events(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The founder's room for announced events is used up; a home that was away still gets all posts."""
    async with stall(street, street.guest) as guest:
        titles = {f"post {number}" for number in range(8)}
        for title in titles:
            await post(guest.bus, title, body="x" * 500)
        monkeypatch.setattr(topic_intake, "LINE_BYTES", 3_000)
        async with stall(street, street.home) as founder:
            await until_shown(founder, titles)
    monkeypatch.setattr(history_meter, "LINE_BYTES", 3_000)
    monkeypatch.setattr(history_meter, "LINE_BYTES_PER_SECOND", 0.0)
    async with stall(street, street.guest) as guest, stall(street, street.home) as founder:
        more = {f"more {number}" for number in range(8)}
        for title in more:
            await post(guest.bus, title, body="x" * 500)

        def is_refused() -> bool:
            return "more history" in str(founder.market._topic.dropped[1])

        await wait_for(is_refused, 20, "history beyond its own room to be refused")
        assert not more <= set((await founder.shown()).values())


@pytest.mark.asyncio
@pytest.mark.req("SCALE-4")
async def test_a_page_is_one_append_for_each_stream(street: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a place is taken, a few more, whose number grows with the logarithm of the page."""
    community = keyring.load_roster(street.home.roster, street.identity.node_id).community_id
    written = list(large_community.posts(community, large_community.members(7), 200))
    kept = [KeptText(one.entry.author, one.entry.sequence, one.entry.hash, one.body) for one in written]
    appends = _counted(monkeypatch)
    async with await street.store() as store:
        texts = EventLog(store, "MARKET", "mk.post", community, home=street.home)
        chains = ChainStore(store, street.home, "market", community)
        await texts.keep(kept)
        numbers = await chains.keep_all([ChainRecord(one.entry) for one in written])
        assert appends == [200, 200]
        assert numbers == {one.entry.hash: number for number, one in enumerate(written, 1)}
        wanted = [(0, one.home, one.sequence, one.hash) for one in kept]
        assert await texts.texts(wanted) == [one.text for one in kept]

        other = ChainStore(store, Home.resolve(street.home.path), "other", community)
        await other.keep(ChainRecord(written[77].entry))
        appends.clear()
        assert len(await other.keep_all([ChainRecord(one.entry) for one in written])) == 199
        assert len(appends) < 20
        stored = [record async for batch in other.read(0) for _, record in batch]
        assert sorted(one.entry.hash for one in stored) == sorted(one.entry.hash for one in written)


@pytest.mark.asyncio
@pytest.mark.req("COMMLOG-14")
async def test_what_the_heads_count_is_in_the_pages(street: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked in the second in between had an empty page, and asked again after 30 s."""

    async def reads_nothing(chains: TopicChains) -> None:
        return None

    async with stall(street, street.home) as owner:
        monkeypatch.setattr(TopicChains, "catch_up", reads_nothing)
        await post(owner.bus, "Ladder")
        held = owner.market._topic._held
        await wait_for(lambda: len(held.chains) == 1, what="the entry")
        found, left = await held.page({}, 100)
    assert ([one.entry.event_type for one in found], left) == (["market.post.created"], 0)


@pytest.mark.asyncio
@pytest.mark.req("COMMLOG-14")
async def test_a_home_that_is_still_writing_is_asked_again_soon(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, page = list[int](), TopicChains.page

    async def late(chains: TopicChains, heads: dict[str, list[str]], limit: int, after: str) -> Any:
        asked.append(limit)
        return ([], 1) if len(asked) == 1 else await page(chains, heads, limit, after)

    async with stall(street, street.home) as owner:
        await post(owner.bus, "Ladder")
        monkeypatch.setattr(TopicChains, "page", late)
        async with stall(street, street.guest) as guest:
            await until_shown(guest, {"Ladder"})
    assert len(asked) > 1


@pytest.mark.asyncio
@pytest.mark.req("COMMLOG-15")
async def test_a_home_does_not_read_again_what_it_has_taken_in(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, newcomer, get = list[Message](), list[Store](), direct_reads._get

    async def counting(store: Store, stream: str, *given: Any) -> list[Message]:
        found = await get(store, stream, *given)
        read.extend(found if store in newcomer and stream in ("MARKET", "CHAINS") else ())
        return found

    monkeypatch.setattr(direct_reads, "_get", counting)
    async with await street.store() as store, stall(street, street.guest) as guest:
        newcomer.append(guest.market._events._store)
        community, author = guest.bus.peer.community, keyring.load_identity(street.home.device_key)
        await large_community.fill(store, community, large_community.posts(community, [author], 60))
        async with stall(street, street.home):

            async def are_listed() -> bool:
                listed = await guest.bus.call("market.list@1.0", {"params": {}, "input": {"limit": 50}})
                return len(listed.output["posts"]) == 50 and listed.output["max_lamport"] == 60

            await wait_for(are_listed, 20, "the posts")
        await guest.market._topic._publisher._publish_some()
    assert read == []


@pytest.mark.asyncio
@pytest.mark.req("COMMLOG-16")
@pytest.mark.parametrize("earlier", ["provider", "caller"])
async def test_homes_of_an_earlier_version_exchange_pages(
    street: Mesh, monkeypatch: pytest.MonkeyPatch, earlier: str
) -> None:
    """One knows neither places nor compact pages; page after page comes by heads."""
    titles = {f"post {number}" for number in range(9)}
    monkeypatch.setattr(topic_log, "_PAGE", 2)
    page, forms = TopicLog.page, list[set[str]]()

    async def as_before(
        topic: TopicLog, caller: str, heads: Any, limit: int, bodies: Any, packs: bool, *later: Any
    ) -> dict[str, Any]:
        given = () if earlier == "provider" else (False, "")
        output = await page(topic, caller, heads, limit, bodies, packs, *given)
        output.pop("next")
        forms.append({name for name in ("packed", "compact") if output.get(name)})
        return output

    monkeypatch.setattr(TopicLog, "page", as_before)
    async with stall(street, street.home) as owner:
        for title in titles:
            await post(owner.bus, title)
        async with stall(street, street.guest) as guest:
            await until_shown(guest, titles)
    assert len(forms) >= 5
    assert all(form == {"packed"} for form in forms)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the appends from now on."""
    sizes: list[int] = []
    write = jetstream_records.write

    async def counting(*given: Any, ahead: Sequence[tuple[str, bytes]] = (), **named: Any) -> Any:
        sizes.append(len(ahead) + 1)
        return await write(*given, ahead=ahead, **named)

    monkeypatch.setattr(jetstream_records, "write", counting)
    return sizes
