"""The market of a community: each home has all of it, and answers from its own copy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hearthnet.bus.session import keyring
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid, token_form
from hearthnet.core.restore_mark import RestoreMark, write_mark
from hearthnet.core.times import now_ms
from hearthnet.service import Event
from hearthnet.service.community import heads_exchange
from hearthnet.service.eventlog import publisher, topic_intake
from hearthnet.service.eventlog.chain_store import ChainRecord, ChainStore
from hearthnet.supervisor.nats import streams
from hearthnet.trust.eventlog import chains
from hearthnet.trust.eventlog.chains import Chains
from hearthnet.trust.eventlog.entries import LogEntry, write_entry
from hearthnet.trust.keys import Identity
from hearthnet_market import service
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for
from tests.services.market.stalls import stall, until_shown
from tests.services.market.trade import do, found, listed, post

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test waits for comes of what happened, never of the next round."""
    monkeypatch.setattr(heads_exchange, "ANNOUNCE_SECONDS", 1_000.0)


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and two members: guest and carol, each with a store."""
    started = await start_mesh(tmp_path, "carol")
    yield started
    started.server.stop()


@pytest.mark.req("COMMLOG-1", "MARKET-30")
async def test_a_post_is_listed_and_found_at_every_home(street: Mesh) -> None:
    async with stall(street, street.home) as here, stall(street, street.guest) as there:
        made = await post(here.bus, "Water filter")
        await until_shown(there, {"Water filter"}, 1)
        other = await post(there.bus, "Long ladder")
        await until_shown(here, {"Water filter", "Long ladder"}, 1)
        assert await found(there.bus, "filters") == ["Water filter"]
        [mine] = (await do(here.bus, "export"))["events"]
        [theirs] = (await do(there.bus, "export", event_id=made))["events"]
        assert theirs == {**mine, "lamport": theirs["lamport"]}
        async with await street.bus() as alone:
            assert (await listed(alone)).keys() == {made, other}


@pytest.mark.req("COMMLOG-2", "MARKET-31")
async def test_posts_made_apart_are_everywhere_in_the_end(street: Mesh) -> None:
    """Also at a home that was away, from one that did not make them."""
    async with stall(street, street.home) as founder:
        for number in range(3):
            await post(founder.bus, f"founder {number}")
    async with stall(street, street.guest) as guest:
        await post(guest.bus, "guest")
        async with stall(street, street.home) as founder:
            await until_shown(guest, {"founder 0", "founder 1", "founder 2", "guest"})
            await until_shown(founder, {"founder 0", "founder 1", "founder 2", "guest"})
        async with stall(street, street.others[0]) as carol:
            await until_shown(carol, {"founder 0", "founder 1", "founder 2", "guest"})
            assert guest.market._topic._held.digest() == carol.market._topic._held.digest()


async def without(mesh: Mesh, home: Home, *names: str) -> None:
    """Take these streams from the store of `home`, and make them anew."""
    async with await mesh.store(home) as store:
        for name in names:
            await store.js.delete_stream(name)
        await streams.ensure(store.js, home.jetstream)


@pytest.mark.req("MARKET-31")
async def test_posts_of_an_earlier_version_become_the_communitys(street: Mesh) -> None:
    """Such a home has a log of its own and no chains."""
    async with stall(street, street.home) as founder:
        kept, gone = await post(founder.bus, "Kept"), await post(founder.bus, "Gone")
        await do(founder.bus, "update", event_id=kept, fields={"title": "Changed"})
        await do(founder.bus, "delete", event_id=gone)
    await without(street, street.home, "CHAINS")
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        await until_shown(founder, {"Changed"})
        await until_shown(guest, {"Changed"})


@pytest.mark.req("COMMLOG-7")
async def test_a_restored_home_writes_into_no_place_that_it_had_filled(street: Mesh) -> None:
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        await post(founder.bus, "after the backup")
        await until_shown(guest, {"after the backup"})
    await without(street, street.home, "CHAINS", "MARKET")
    long_ago = now_ms() - 86_400_000
    write_mark(street.home, RestoreMark(backup="b", time=long_ago, restored_at=long_ago))
    async with stall(street, street.home) as founder:
        await post(founder.bus, "after the restore")
        await until_shown(founder, {"after the restore"})
        assert founder.market._topic.state.entries == 0, "it waits for somebody"
        async with stall(street, street.guest) as guest:
            await until_shown(founder, {"after the backup", "after the restore"})
            await until_shown(guest, {"after the backup", "after the restore"})
            assert guest.market._topic.state.forks == ()


@pytest.mark.req("COMMLOG-10", "COMMLOG-5")
async def test_a_home_that_has_used_up_its_day_goes_on_the_next_one(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "MAX_DAY_BYTES", 9_000)
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        for number in range(4):
            await post(founder.bus, f"post {number}", body="x" * 500)
        await wait_for(lambda: "tomorrow" in str(founder.market.note), what="the founder to be told")
        assert len(await founder.shown()) == 4
        assert 0 < len(await guest.shown()) < 4
        tomorrow = now_ms() + 86_400_000
        monkeypatch.setattr(publisher, "now_ms", lambda: tomorrow)
        monkeypatch.setattr(topic_intake, "now_ms", lambda: tomorrow)
        await until_shown(guest, {f"post {number}" for number in range(4)}, 20)
        await wait_for(lambda: founder.market.note is None, what="the note to go")


@pytest.mark.req("COMMLOG-2")
async def test_entries_stored_before_those_that_they_follow_are_held(street: Mesh) -> None:
    """A home that died between two writes, others that read while another process writes, a damaged disk."""
    async with stall(street, street.home) as here:
        community = here.bus.peer.community
    author, written, entries = Identity.generate(), Chains(), list[LogEntry]()
    for _ in range(4):
        place = written.next(author.node_id)
        one = write_entry(
            author,
            community,
            "market",
            "{}",
            place=place,
            event_id=new_ulid(now_ms()),
            event_type="market.post.created",
            person="p",
            time=now_ms(),
        )
        written.add(one)
        entries.append(one)
    async with await street.store(street.home) as store:
        kept = ChainStore(store, street.home, "market", community)
        for number in (0, 2, 3):
            await kept.keep(ChainRecord(entries[number]))
        await store.js.publish(
            f"ch.market.{token_form(community)}.{token_form(author.node_id)}.2", b"damaged"
        )
        async with stall(street, street.home) as here:
            assert here.market._topic.state.entries == 1
            await kept.keep(ChainRecord(entries[1]))
            await wait_for(lambda: here.market._topic.state.entries == 4, 10, "all four entries")
            assert not here.market._topic.state.forks


@pytest.mark.req("COMMLOG-2")
async def test_an_event_that_others_refuse_keeps_nothing_back_that_follows_it(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stall(street, street.home) as here, stall(street, street.guest) as there:
        monkeypatch.setattr(publisher, "MAX_BODY_BYTES", 4_000)
        await post(here.bus, "Large", body="b" * 3_000)
        await post(here.bus, "Small")
        await until_shown(there, {"Small"})
        assert set((await here.shown()).values()) == {"Large", "Small"}


@pytest.mark.req("COMMLOG-13")
async def test_a_body_of_a_later_version_is_taken_in_once_it_can_be_read(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(home: str, event: Event) -> None:
        if event.data.get("title") == "Of tomorrow":
            raise HearthNetError("bad_request", "a title of a later version")

    async with stall(street, street.home) as here:
        with monkeypatch.context() as version:
            version.setattr(service, "check_incoming", older)
            async with stall(street, street.guest) as there:
                await post(here.bus, "Of tomorrow")
                await post(here.bus, "Ladder")
                await until_shown(there, {"Ladder"})
                assert there.market._topic.state.entries == 2
                assert not there.market._topic._held.bare, "it would be asked for again and again"
        async with stall(street, street.guest) as there:
            here.market._topic._heads.announce()  # as every 20 s
            await until_shown(there, {"Ladder", "Of tomorrow"})


@pytest.mark.req("COMMLOG-2")
async def test_a_home_that_was_alone_in_another_community_begins_a_chain(street: Mesh) -> None:
    """It had written entries there, which nobody here takes in, nor what would follow them."""
    own, left = keyring.load_identity(street.home.device_key), Identity.generate().node_id
    given = {"event_id": new_ulid(now_ms()), "event_type": "market.post.created", "person": own.node_id}
    entry = write_entry(own, left, "market", "{}", place=(1, "", 0), time=now_ms(), **given)
    async with await street.store(street.home) as store:
        await ChainStore(store, street.home, "market", left).keep(ChainRecord(entry, place=900))
    async with stall(street, street.home) as here, stall(street, street.guest) as there:
        await post(here.bus, "Water filter")
        await until_shown(there, {"Water filter"})
        assert there.market._topic.state.entries == 1
