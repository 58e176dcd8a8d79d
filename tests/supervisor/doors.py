"""Homes with doors, for tests: which ports they have, and the events that open them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats import certificate
from hearthnet.supervisor.nats.access_control import ServerRoster, admitted_by
from hearthnet.supervisor.nats.address import reachable_host
from hearthnet.supervisor.nats.leaf_links import linked
from hearthnet.supervisor.nats.server_config import Certificate
from hearthnet.supervisor.os.disk import make_folder
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import raise_to
from tests.helpers.processes import unused_port
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import Callers, House, Street, Visitor


@dataclass
class DoorPlan:
    """Where the doors of some homes are: by the home's name its ports and the id of its certificate's key."""

    folder: Path
    host: str = "127.0.0.1"
    ports: dict[str, tuple[int, int]] = field(default_factory=dict)

    def settings(self, name: str) -> str:
        """Settings of that home, whose port for other homes is the one of its door."""
        port = self.ports[name][0] if name in self.ports else 0
        return f'[server]\nport = 0\n[community]\nhost = "{self.host}"\nport = {port}\n'

    def opened(self, held: Roster, name: str, by: Identity) -> CommunityEvent:
        """The event that opens the door of that home, at ports that are free now."""
        home = Home(self.folder / ("home" if name == "founder" else name))
        files = certificate_of(home.nats)
        host = reachable_host(self.host)
        leaf, route = self.ports.setdefault(name, (unused_port(), unused_port()))
        places = f"{host}:{leaf}", f"{host}:{route}"
        return CommunityAuthor(held, by).open_door(*places, certificate.key_id(files.key), now_ms())


def certificate_of(folder: Path) -> Certificate:
    """A certificate in `folder`, with the names of this computer."""
    make_folder(folder)
    files = Certificate(folder / "leaf.pem", folder / "leaf.key")
    certificate.ensure(*files, certificate.local_names(reachable_host("0.0.0.0")))
    return files


async def shaken_hands(host: str, port: int, files: Certificate | None) -> bool:
    """Whether the server there goes on after TLS with that certificate of a client, or none.

    Raises:
        OSError: It hangs up.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(*files)
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        async with asyncio.timeout(10):
            if not (line := await reader.readline()):
                raise ConnectionResetError("hung up")
        return line.startswith(b"INFO")
    finally:
        writer.close()


def street_with_doors(
    folder: Path, *names: str, doors: tuple[str, ...], host: str = "127.0.0.1"
) -> tuple[Street, DoorPlan]:
    """A community of the founder and `names`, of whom `doors` are trusted and have their doors open."""
    plan = DoorPlan(folder, host)

    def past(held: Roster, keys: Mapping[str, Identity]) -> Roster:
        for name in doors:
            if name != "founder":
                held = raise_to(held, keys["founder"], keys[name], "trusted")
            held = rosters.merge(held, [plan.opened(held, name, keys[name])])
        return held

    return Street.build(folder, *names, past=past), plan


def server_roster(held: Roster) -> ServerRoster:
    """What servers take from `held` now."""
    return admitted_by(held, now_ms())


@dataclass
class Village:
    """Three homes that are open: two have a door in the beginning."""

    street: Street
    plan: DoorPlan
    houses: dict[str, House]
    callers: Callers

    @property
    def held(self) -> Roster:
        """The roster that all have on their disks."""
        return self.houses["founder"].prepared.roster

    async def visitors(self) -> dict[str, Visitor]:
        """A process of each home, which hears the announcements of all."""
        found = {}
        for name, house in self.houses.items():
            found[name] = await self.callers.connect(house.url, house.identity.login())
            await found[name].listen("hn.adv.>")
        return found

    async def all_admit(self, held: Roster, *names: str) -> None:
        """`held` comes to the homes of `names`, or to all."""
        for name in names or tuple(self.houses):
            await self.houses[name].admit(server_roster(held))


@contextlib.asynccontextmanager
async def opened(
    folder: Path, callers: Callers, *doors: str, host: str = "127.0.0.1"
) -> AsyncIterator[Village]:
    """The founder's home, bob's and carol's; those of `doors` have one, which listens on `host`."""
    street, plan = street_with_doors(folder, "bob", "carol", doors=doors, host=host)
    async with contextlib.AsyncExitStack() as stack:
        houses = {}
        for name in ("founder", "bob", "carol"):
            houses[name] = await stack.enter_async_context(street.open(name, settings=plan.settings(name)))
        yield Village(street, plan, houses, callers)


async def is_linked(house: House) -> bool:
    """Whether its server is linked to a door."""
    assert house.server.guarded.system is not None
    return await linked(house.server.guarded.system)


async def reaches(one: Visitor, other: Visitor, house: House) -> bool:
    """Whether `other` hears what `one`, a process of `house`, says now."""
    other.heard.clear()
    await one.say(f"hn.adv.{house.identity.token}.c.v1")
    with contextlib.suppress(AssertionError, TimeoutError):
        await wait_for(lambda: other.heard, 0.2, "the announcement")
    return bool(other.heard)


async def all_meet(village: Village, visitors: dict[str, Visitor], *names: str) -> None:
    """Waits until each of those homes hears each other one."""
    names = names or tuple(village.houses)
    for one in names:
        for other in names:
            if one != other:
                await wait_for(
                    lambda one=one, other=other: reaches(  # type: ignore[misc]
                        visitors[one], visitors[other], village.houses[one]
                    ),
                    20,
                    f"{other} to hear {one}",
                )
