"""Several persons of a home in real browsers: whose page it is, what waits, and a device that is removed."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from hearthnet.core import ids
from hearthnet.gateway.auth.home_persons import HomePersons, Limits
from hearthnet.trust.community.persons import Device
from hearthnet_auth import AuthService
from tests.gateway.page.street import Street, Visit, open_street, visit
from tests.helpers.persons import add_person, announce_recovery, auth_with_owner
from tests.helpers.scripted_model import Say
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
REMOVED = "This device was removed. Open a new link."


class Family(NamedTuple):
    """A home with its gateway, its auth service and a browser."""

    street: Street
    auth: AuthService

    def devices(self, person: str) -> tuple[Device, ...]:
        """What the gateway knows of the devices of a person."""
        assert self.street.gateway is not None
        return self.street.gateway.bus.peer.roster.devices(person)

    async def add(self, name: str, limits: Limits | None = None) -> str:
        """A person of the home; returns the id."""
        return (await add_person(self.auth, self.street, name, limits)).person  # type: ignore[arg-type]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def family() -> AsyncIterator[Family]:
    with tempfile.TemporaryDirectory(prefix="hn-family-") as folder:
        async with open_street(Path(folder)) as street, auth_with_owner(street.mesh) as auth:
            yield Family(street, auth)


async def key_of(there: Visit) -> str:
    """The key of the browser, as the page shows it."""
    await there.page.click("#nav-settings")
    found: str = await there.page.evaluate(
        "fetch('/v1/me').then((answer) => answer.json()).then((me) => me.key)"
    )
    return found


@pytest.mark.req("PERSON-70")
async def test_a_browser_is_a_device_of_whom_it_shows(family: Family) -> None:
    anna = await family.add("anna")
    async with visit(family.street, principal="anna") as there:
        page = there.page
        await page.locator("#person").get_by_text("anna").wait_for()
        (device,) = family.devices(anna)
        assert (device.kind, device.key) == ("browser", await key_of(there))
        await page.locator("#devices li").get_by_text("this one").wait_for()
        assert await page.locator("#no-device").count() == 0
        await page.click("#administrator summary")
        await page.get_by_text("remove you, your devices, your posts").wait_for()
        await page.reload()
        await page.wait_for_selector("#person >> text=anna")
        assert len(family.devices(anna)) == 1
        await page.click("#sign-out")
        await page.wait_for_selector("#link")
    await wait_for(lambda: not family.devices(anna))


@pytest.mark.req("PERSON-70")
async def test_a_page_works_where_the_roster_takes_no_device(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    await family.add("carl")
    monkeypatch.setattr("hearthnet.trust.community.person_statements.MAX_DEVICES", 0)
    async with visit(family.street, principal="carl") as there:
        there.allowed.append("503")
        await there.page.click("#nav-settings")
        await there.page.locator("#no-device").get_by_text("is no device of yours").wait_for()
        monkeypatch.undo()
        await there.page.reload()
        await there.page.locator("#devices li").get_by_text("this one").wait_for()


@pytest.mark.req("PERSON-72")
async def test_what_waits_is_decided_at_any_browser_of_its_person(family: Family) -> None:
    await family.add("berta")
    await family.add("dora")
    street, question = family.street, "May I lend the ladder?"
    post: dict[str, Any] = {"category": "offer", "title": "Berta's ladder", "body": "4 m."}
    street.model.turns[question] = [Say("I write.", (("market_post", post),)), Say("Done.")]
    async with (
        visit(street, principal="berta") as laptop,
        visit(street, principal="berta") as phone,
        visit(street, principal="dora") as dora,
    ):
        await laptop.ask(question, "market_post")
        await laptop.page.wait_for_selector("dialog [data-choice]")
        await phone.page.wait_for_selector("#nav-waiting .badge")
        await phone.page.click("#nav-waiting")
        await phone.page.get_by_text(question).first.wait_for()
        assert await dora.page.locator("#nav-waiting .badge").count() == 0
        await dora.page.click("#nav-waiting")
        assert await dora.page.get_by_text(question).count() == 0
        await laptop.choose("approve")
        await laptop.answered("Done.")
    assert "Berta's ladder" in [one["title"] for one in await street.effects()]


@pytest.mark.req("PERSON-71", "ATTACK-70")
async def test_a_removed_browser_makes_another_key(family: Family) -> None:
    emil = await family.add("emil")
    street = family.street
    async with visit(street, principal="emil") as there:
        there.allowed += ["403", "401", "WebSocket"]
        key = await key_of(there)
        await remove(street, key)
        await wait_for(lambda: not family.devices(emil), 2)
        await there.page.reload()
        await there.page.get_by_text(REMOVED).wait_for()
        await there.page.goto(street.link("emil"))
        await there.page.wait_for_selector("#person >> text=emil")
        assert await key_of(there) != key
        await wait_for(lambda: len(family.devices(emil)) == 1)


@pytest.mark.req("PERSON-72")
async def test_one_browser_has_a_key_for_each_person_who_signs_in(family: Family) -> None:
    gina, hans = await family.add("gina"), await family.add("hans")
    async with visit(family.street, principal="gina") as there:
        there.allowed.append("401")
        first = await key_of(there)
        await there.page.goto(family.street.link("hans"))
        await there.page.wait_for_selector("#person >> text=hans")
        await wait_for(lambda: len(family.devices(hans)) == 1)
        assert await key_of(there) != first
    assert [one.key for one in family.devices(gina)] == [first]


@pytest.mark.req("PERSON-74")
async def test_a_child_reads_when_it_may_ask(family: Family) -> None:
    # No minute lies within these hours, whatever the clock says.
    await family.add("finn", Limits(hours=(420, 420)))
    async with visit(family.street, signed_in=False) as there:
        await there.page.goto(family.street.link("finn"))
        await there.page.locator("#closed").get_by_text("open from 07:00 to 07:00").wait_for()
        assert await there.page.locator("#question").count() == 0


@pytest.mark.req("PERSON-85")
async def test_a_recovery_is_seen_and_stopped_at_the_page(family: Family) -> None:
    ida, street = await family.add("ida"), family.street
    await family.add("karl")
    paper = HomePersons(street.mesh.home).recovery_key("ida")

    def objected() -> tuple[str, ...]:
        assert street.gateway is not None
        found = street.gateway.bus.peer.roster.person(ida)
        assert found is not None
        return found.recoveries[0].objected

    async with visit(street, principal="ida") as there, visit(street, principal="karl") as karl:
        page, notice = there.page, there.page.locator("#notices .recovery")
        await wait_for(lambda: family.devices(ida))
        assert await notice.count() == 0
        await announce_recovery(family.auth, street, paper)  # type: ignore[arg-type]
        # The page asks again each minute, and when somebody comes back to it.
        for one in (page, karl.page):
            await one.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await notice.get_by_text("begun to replace your keys").wait_for()
        await page.click("#nav-market")
        await notice.get_by_role("button", name="Object").click()
        await page.click("dialog [data-choice=back]")
        assert objected() == ()
        await notice.get_by_role("button", name="Object").click()
        await page.click("dialog [data-choice=object]")
        await notice.locator(".stopped").wait_for()
        assert await notice.get_by_role("button").count() == 0
        (device,) = family.devices(ida)
        assert objected() == (device.key,)
        await page.reload()
        await notice.locator(".stopped").wait_for()
        await karl.page.reload()
        await karl.page.wait_for_selector("#question")
        assert await karl.page.locator("#notices .recovery").count() == 0


async def remove(street: Street, key: str) -> None:
    """`hearthnet device remove`, as far as the node is concerned."""
    body = {"params": {}, "input": {"client_id": ids.new_ulid(), "device": key}}
    async with await street.mesh.bus("removing") as bus:
        await bus.call("community.device.remove@1.0", body, node=bus.peer.node_id)
