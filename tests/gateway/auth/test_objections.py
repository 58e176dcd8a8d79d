"""A recovery by helpers that nobody wanted: seen at the page of its person, and stopped there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.home_persons import HomePersons, Limits
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.recoveries import Recovery
from hearthnet.trust.community.recovery_statements import OBJECTED, objected
from hearthnet.trust.keys import Identity
from hearthnet_auth import AuthService
from tests.helpers.envelopes import opening
from tests.helpers.gateway import House, open_house
from tests.helpers.persons import WAIT_SECONDS, PersonPage, add_person, announce_recovery, auth_with_owner
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Family(NamedTuple):
    """A home with its gateway and its auth service; Ben is a child whose hours never come."""

    house: House
    auth: AuthService

    async def announce(self, name: str) -> str:
        """Helpers of that person announce another person key."""
        home = self.house.mesh.home
        paper = home.recovery_key if name == "owner" else HomePersons(home).recovery_key(name)
        return await announce_recovery(self.auth, self.house, paper)

    def recovery(self, recovery: str) -> Recovery:
        """The recovery, as the gateway has it."""
        return found(self.house, recovery)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def family() -> AsyncIterator[Family]:
    with tempfile.TemporaryDirectory(prefix="hn-objections-") as folder:
        async with open_house(Path(folder)) as house, auth_with_owner(house.mesh) as auth:
            await add_person(auth, house, "anna")
            await add_person(auth, house, "berta")
            await add_person(auth, house, "ben", Limits(hours=(420, 420)))
            yield Family(house, auth)


def found(house: House, recovery: str) -> Recovery:
    """The recovery, as the gateway has it."""
    persons = house.bus.peer.roster.persons
    (one,) = [one for person in persons for one in person.recoveries if one.recovery == recovery]
    return one


def objection(house: House, recovery: str, person: str, key: Identity) -> dict[str, str]:
    """What a page with `key` sends to object."""
    signed = objected(house.bus.peer.community, person, recovery, key)
    return {"recovery": recovery, "signature": signed.signature}


def of(page: PersonPage, recovery: str) -> dict[str, str]:
    """What `page` sends to object, as the person that it is."""
    return objection(page.house, recovery, page.me["person"]["id"], page.identity)


def witness(house: House, recovery: str) -> str:
    """The code with which this node, a witness, may not sign for the recovery; empty if it may."""
    try:
        CommunityAuthor(house.bus.peer.roster, house.mesh.identity).witness(recovery, now_ms())
    except HearthNetError as error:
        return error.code
    return ""


async def shown(page: PersonPage) -> list[dict[str, Any]]:
    """The recoveries that the page is shown."""
    recoveries: list[dict[str, Any]] = (await page.ask("GET", "/v1/me")).json()["person"]["recoveries"]
    return recoveries


@pytest.mark.req("PERSON-85")
@pytest.mark.parametrize("name", ["owner", "anna", "ben"])
async def test_a_person_sees_a_recovery_at_a_page_and_stops_it(family: Family, name: str) -> None:
    house = family.house
    page, other = [await PersonPage.open(house, name) for _ in range(2)]
    assert await shown(page) == []
    began, recovery = now_ms(), await family.announce(name)
    (one,) = await shown(page)
    assert (one["recovery"], one["witnessed"], one["objected"]) == (recovery, 0, [])
    assert one["begun_by"] == house.bus.peer.node_id
    assert 0 <= one["not_before"] - began // 1000 * 1000 - WAIT_SECONDS * 1000 <= 60_000
    assert witness(house, recovery) == ""
    done = await page.ask("POST", "/v1/objection", json=of(page, recovery))
    assert done.status_code == 201, done.text
    assert done.json()["person"]["recoveries"][0]["objected"] == [page.identity.node_id]
    assert witness(house, recovery) == "unauthorized"
    assert not house.mesh.home.recovery_statements.exists()
    # Once more it is the same, and no other event; another browser objects for itself.
    assert (await page.ask("POST", "/v1/objection", json=of(page, recovery))).status_code == 201
    assert (await other.ask("POST", "/v1/objection", json=of(other, recovery))).status_code == 201
    events = [one for one in house.bus.peer.roster.events if one.event_type == OBJECTED]
    assert sum(one.data["recovery"] == recovery for one in events) == 2
    # One that signs out is no device any more, and objects no longer.
    await page.ask("DELETE", "/v1/session")
    await wait_for(lambda: family.recovery(recovery).objected == (other.identity.node_id,))


@pytest.mark.req("PERSON-85", "ATTACK-117")
async def test_nobody_else_sees_a_recovery_or_objects_to_it(family: Family) -> None:
    house, recovery = family.house, await family.announce("anna")
    anna, berta, owner = [await PersonPage.open(house, name) for name in ("anna", "berta", "owner")]
    person = anna.me["person"]["id"]
    for other in (berta, owner):
        assert recovery not in [one["recovery"] for one in await shown(other)]
        for sent in (of(other, recovery), objection(house, recovery, person, other.identity)):
            refused = await other.ask("POST", "/v1/objection", json=sent)
            assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
    forged = [objection(house, recovery, person, key) for key in (berta.identity, house.mesh.identity)]
    for sent in (*forged, of(anna, "blake3:" + "0" * 64) | {"recovery": recovery}):
        refused = await anna.ask("POST", "/v1/objection", json=sent)
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_signature")
    async with house.http(headers={"Origin": house.url}) as http:
        refused = await http.post("/v1/objection", json=of(anna, recovery))
        assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
        # A page of hers that is no device, and a program with a key of the owner.
        fresh = Identity.generate()
        link = opening(fresh, house.gateway.links.make("anna"), house.bus.peer.node_id)
        assert (await http.post("/v1/session", json=link)).status_code == 201
        refused = await http.post("/v1/objection", json=objection(house, recovery, person, fresh))
        assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
    entry, secret = house.gateway.clients.book.add("editor", "owner")
    async with house.http(headers={"Authorization": f"Bearer hnk_{entry.id}_{secret}"}) as http:
        refused = await http.post("/v1/objection", json=of(owner, recovery))
        assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    assert not house.mesh.home.recovery_statements.exists()
    assert family.recovery(recovery).objected == ()
    assert witness(house, recovery) == ""


@pytest.mark.req("PERSON-86")
async def test_an_objection_waits_for_the_auth_service(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        async with auth_with_owner(house.mesh) as auth:
            page = await PersonPage.open(house)
            recovery = await announce_recovery(auth, house, house.mesh.home.recovery_key)
        waiting, sent = house.mesh.home.recovery_statements, of(page, recovery)
        wrong = await page.ask("POST", "/v1/objection", json=sent | {"signature": "ed25519:" + "A" * 86})
        assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_signature")
        assert not waiting.exists()
        for _ in range(2):
            refused = await page.ask("POST", "/v1/objection", json=sent)
            assert (refused.status_code, refused.json()["error"]) == (503, "partition")
        assert len(json.loads(waiting.read_bytes())) == 1
        assert found(house, recovery).objected == ()
        async with house.mesh.hosting(AuthService()):
            await wait_for(lambda: found(house, recovery).objected == (page.identity.node_id,))
        # What is in the log needs nobody once more.
        assert (await page.ask("POST", "/v1/objection", json=sent)).status_code == 201
        assert not waiting.exists()
