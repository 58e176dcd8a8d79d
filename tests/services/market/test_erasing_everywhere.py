"""What an author takes back is erased at every home; only authors change what they wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.trust.eventlog.entries import LogEvent
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.waiting import wait_for
from tests.services.market.stalls import stall, until_shown
from tests.services.market.test_deleting import SECRET, _on_disk
from tests.services.market.trade import do, post, refused

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and two members: guest and carol, each with a store."""
    started = await start_mesh(tmp_path, "carol")
    yield started
    started.server.stop()


async def until_erased(mesh: Mesh) -> None:
    """Wait until no file of any home has the words; the stores of all are on the founder's server."""
    homes = (mesh.home, mesh.guest, *mesh.others)
    left = list[str]()

    def is_gone() -> bool:
        left[:] = [file for home in homes for file in _on_disk(home.path, SECRET)]
        return not left

    try:
        await wait_for(is_gone, 20, "all homes to erase it")
    except TimeoutError:
        raise AssertionError(f"it is still in {left}") from None


@pytest.mark.req("MARKET-33")
async def test_what_is_deleted_is_erased_at_all_homes(street: Mesh) -> None:
    """And at one that was away, when it comes back."""
    carol_home = street.others[0]
    async with stall(street, street.home) as here, stall(street, street.guest) as there:
        async with stall(street, carol_home) as carol:
            made = await post(here.bus, f"My {SECRET}", tags=[SECRET])
            await post(here.bus, "Firewood")
            await until_shown(carol, {f"My {SECRET}", "Firewood"})
        await do(here.bus, "update", event_id=made, fields={"body": f"The {SECRET} is old."})
        await do(here.bus, "delete", event_id=made)
        await until_shown(there, {"Firewood"})
        async with stall(street, carol_home) as carol:
            await until_shown(carol, {"Firewood"})
            await until_erased(street)
            assert carol.market._topic._held.digest() == here.market._topic._held.digest()


@pytest.mark.req("MARKET-34", "MARKET-32")
async def test_only_its_author_and_moderators_change_a_post_of_another_home(street: Mesh) -> None:
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        made = await post(guest.bus, "Ladder")
        await until_shown(founder, {"Ladder"})
        async with stall(street, street.others[0]) as carol:
            await until_shown(carol, {"Ladder"})
            for verb, given in (
                ("update", {"fields": {"title": "Mine"}}),
                ("expire", {"reason": "withdrawn"}),
            ):
                assert (await refused(carol.bus, verb, event_id=made, **given)).code == "unauthorized"
            # Moderated at one home, it is gone at all of them, and its author reads why.
            since = (await do(guest.bus, "list"))["max_lamport"]
            await do(founder.bus, "expire", event_id=made, reason="withdrawn", note="a fake")
            for one in (founder, guest, carol):
                await until_shown(one, set())
            [end] = (await do(guest.bus, "list", since_lamport=since))["ended"]
            assert (end["note"], end["moderated"], end["by"]) == ("a fake", True, founder.bus.peer.node_id)


@pytest.mark.req("MARKET-34")
async def test_the_owner_of_a_home_erases_there_alone(street: Mesh) -> None:
    async with stall(street, street.home) as founder, stall(street, street.guest) as guest:
        made = await post(guest.bus, "Ladder")
        await until_shown(founder, {"Ladder"})
        await do(founder.bus, "delete", event_id=made)
        await until_shown(founder, set())
        await post(founder.bus, "after it")
        await until_shown(guest, {"Ladder", "after it"})


@pytest.mark.req("COMMLOG-8")
async def test_a_body_that_was_kept_back_comes_from_another_home(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stall(street, street.home) as founder:
        await post(founder.bus, "Ladder")
        async with stall(street, street.guest) as guest:
            await until_shown(guest, {"Ladder"})
    async with stall(street, street.guest) as guest, stall(street, street.others[0]) as carol:
        page = guest.market._topic.page

        async def without_bodies(*given: Any) -> dict[str, Any]:
            events = [LogEvent(one.entry) for one in (await page(*given[:4]))["events"]]
            return {"events": events, "left": 0, "bodies": []}

        monkeypatch.setattr(guest.market._topic, "page", without_bodies)
        await wait_for(lambda: carol.market._topic._held.bare, 10, "carol to take in the entry")
        assert await carol.shown() == {}
        async with stall(street, street.home):
            await until_shown(carol, {"Ladder"}, 20)
