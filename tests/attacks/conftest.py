"""The node under attack: `hearthnet up` as a person runs it, with three more members in its roster."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.core.home import Home
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import LIST, Attacker, Raw
from tests.helpers.mesh import GuestBus
from tests.helpers.neighbourhood import Neighbourhood, Past, settle_in
from tests.helpers.shell import Shell


@dataclass(frozen=True)
class Victim:
    """A running node, and the homes of other members who have a login at its server."""

    home: Home
    url: str
    identity: Identity
    neighbourhood: Neighbourhood

    @property
    def node(self) -> str:
        """Its full id."""
        return self.identity.node_id

    @property
    def community(self) -> str:
        """The community's id."""
        return load_roster(self.home.roster).community_id

    async def attacker(self, name: str = "mallory") -> Attacker:
        """A member's process at the victim's server."""
        return Attacker(await GuestBus.at(self.node, self.neighbourhood.home(name), self.url, name))

    async def raw(self, name: str = "mallory") -> Raw:
        """A member's bare connection."""
        return await Raw.connect(self.url, self.key(name).login())

    def key(self, name: str) -> Identity:
        """A member's key."""
        return load_identity(self.neighbourhood.home(name).device_key)


@pytest.fixture(scope="session")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """One node for all attacks: it has to survive them."""
    with under_attack(tmp_path_factory.mktemp("victim")) as node:
        yield node


@contextlib.contextmanager
def under_attack(
    folder: Path, *more: str, inviters: Mapping[str, str] | None = None, past: Past | None = None
) -> Iterator[Victim]:
    """A node that runs in `folder`, with its members; the others are as those of `settle_in`."""
    # What an attacker may ask a second is not what these attacks are about
    # (service/hosting/test_peer_rates.py).
    patience = "[limits]\ncapability_soft = 0\ncapability_hard = 0\ntotal_soft = 0\ntotal_hard = 0\n"
    names, services = ("mallory", "carol", "gateway", *more), ("market", "auth")
    neighbourhood = settle_in(
        folder, *names, services=services, settings=patience, inviters=inviters, past=past
    )
    home = neighbourhood.founder
    with Shell(home.path).node() as state:
        yield Victim(home, str(state["server"]["url"]), load_identity(home.device_key), neighbourhood)


@pytest_asyncio.fixture
async def mallory(victim: Victim) -> AsyncIterator[Attacker]:
    """A member who means harm."""
    attacker = await victim.attacker()
    yield attacker
    await attacker.bus.close()


@pytest_asyncio.fixture
async def market(mallory: Attacker, victim: Victim) -> OfferView:
    """The victim's market."""
    return await mallory.target(LIST, victim.node)
