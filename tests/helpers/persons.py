"""Persons of a home at its gateway: the auth service beside it, and pages that sign in as a browser does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2

from hearthnet.bus.session import keyring
from hearthnet.cli.workflows import home_person
from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.files import write_whole
from hearthnet.gateway.auth.home_persons import HomePerson, Limits
from hearthnet.gateway.context import Gateway
from hearthnet.service.community.queued_statements import queue_statements
from hearthnet.supervisor.nats.home_setup import Prepared, make_person
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.person_statements import CONSENT_PURPOSE
from hearthnet.trust.community.recovery_statements import recovery_id
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from hearthnet_auth import AuthService
from hearthnet_auth import persons as auth_persons
from tests.helpers.envelopes import opening, parts_of, sign_envelope
from tests.helpers.gateway import House
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

WAIT_SECONDS = 3 * 86_400
"""The time that witnesses of an announced recovery wait."""


class Gatehouse(Protocol):
    """A node with its gateway."""

    mesh: Mesh
    gateway: Gateway


@contextlib.asynccontextmanager
async def auth_with_owner(mesh: Mesh) -> AsyncIterator[AuthService]:
    """The auth service of the node, whose owner is a person."""
    roster = keyring.load_roster(mesh.home.roster)
    make_person(Prepared(mesh.home, mesh.identity, roster, None), lambda line: None)  # type: ignore[arg-type]
    auth = AuthService()
    async with mesh.hosting(auth):
        await wait_for(lambda: auth._membership.roster.person_of(mesh.identity.node_id))
        yield auth


async def add_person(
    auth: AuthService, house: Gatehouse, name: str, limits: Limits | None = None
) -> HomePerson:
    """A person of the home; the gateway knows of them when this returns."""
    with _stopped(house.mesh):
        entry = home_person.create(house.mesh.home, name, limits)
    await auth_persons.carry_recovery(auth._chain, house.mesh.home, house.mesh.identity)
    await wait_for(lambda: house.gateway.bus.peer.roster.person(entry.person))
    return entry


async def remove_person(auth: AuthService, house: Gatehouse, entry: HomePerson) -> None:
    """The person is removed; what the keys have signed is in the log when this returns."""
    publish(house.mesh, house.gateway.bus.peer.roster)
    with _stopped(house.mesh):
        home_person.remove(house.mesh.home, entry)
    await auth_persons.carry_recovery(auth._chain, house.mesh.home, house.mesh.identity)


async def announce_recovery(auth: AuthService, house: Gatehouse, paper: Path) -> str:
    """Helpers of the person with the recovery key in `paper` announce another person key.

    The node is one of the witnesses. Returns the recovery; the gateway knows of it then.
    """
    home, own, shared = house.mesh.home, house.mesh.identity, Identity.generate()
    recovery, held = keyring.load_identity(paper), house.gateway.bus.peer.membership
    named = CommunityAuthor(held.roster, recovery).named_helpers(shared.node_id, WAIT_SECONDS, (own.node_id,))
    queue_statements(home, (named,))
    await auth_persons.carry_recovery(auth._chain, home, own)
    person = recovery.node_id
    await wait_for(lambda: (found := held.roster.person(person)) and found.helpers == named)
    begun, _ = CommunityAuthor(held.roster, shared).begun_recovery(person, Identity.generate(), ())
    queue_statements(home, (begun,))
    await auth_persons.carry_recovery(auth._chain, home, own)
    await wait_for(lambda: (found := held.roster.person(person)) and found.recoveries)
    return recovery_id(held.roster.community_id, begun)


def remove_at_running_node(house: Gatehouse, entry: HomePerson) -> None:
    """The person is removed by the command, which calls the node."""
    publish(house.mesh, house.gateway.bus.peer.roster)
    home_person.remove(house.mesh.home, entry)


@contextlib.contextmanager
def _stopped(mesh: Mesh) -> Iterator[None]:
    """The home as if its node did not run: the command leaves its statements, and calls nobody."""
    away = mesh.home.state.with_suffix(".away")
    mesh.home.state.rename(away)
    try:
        yield
    finally:
        away.rename(mesh.home.state)


def publish(mesh: Mesh, roster: Roster) -> None:
    """Writes the roster as the supervisor does, for commands that read it."""
    write_whole(mesh.home.roster, rosters.encode(rosters.seal(roster, mesh.identity)))


@dataclass
class PersonPage:
    """A browser that has opened a one-time link: its key, its cookie, and what the gateway said it is."""

    house: House
    identity: Identity
    cookies: dict[str, str]
    me: dict[str, Any]

    @classmethod
    async def open(cls, house: House, principal: str = "owner", *, kind: str = "browser") -> PersonPage:
        """Opens a link, and signs that the browser is a device."""
        identity = Identity.generate()
        _, code, node = parts_of(house.gateway.links.link(house.url, principal))
        async with house.http() as http:
            answer = await http.post("/v1/session", json=opening(identity, code, node, f"{principal}'s"))
            assert answer.status_code == 201, answer.text
            cookies = dict(http.cookies)
        page = cls(house, identity, cookies, answer.json())
        added = await page.ask("POST", "/v1/device", json=page.consent(kind))
        assert added.status_code == 201, added.text
        page.me = added.json()
        await wait_for(lambda: house.gateway.bus.peer.roster.person_of(identity.node_id))
        return page

    @property
    def bearer(self) -> dict[str, str]:
        """The headers by which the page opens a socket."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"Cookie": cookie, "Origin": self.house.url}

    def consent(self, kind: str = "browser") -> dict[str, str]:
        """What the page signs to become a device."""
        return {"kind": kind, "signature": self.signed({**self.me["device"]["offer"], "kind": kind})}

    def signed(self, offer: dict[str, str]) -> str:
        """The page's signature on an offer."""
        return ids.PREFIX + ids.b64(self.identity.sign(CONSENT_PURPOSE, canonical_json(offer)))

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """One request of the page's own origin."""
        async with self.house.http(headers={"Origin": self.house.url}, cookies=self.cookies) as http:
            return await http.request(method, path, **options)

    async def call(
        self, capability: str, body: dict[str, Any], version: str = "1.0", **fields: Any
    ) -> httpx2.Response:
        """One call, signed by the page's key."""
        envelope = self.house.envelope(capability, body, version, **fields)
        return await self.ask("POST", "/v1/call", json=sign_envelope(self.identity, envelope))
