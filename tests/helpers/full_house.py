"""A node as it runs at somebody's: `hearthnet up` with every installed service, neighbours, and content."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.store import HomeStore
from hearthnet.contracts.registry import contracts
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid
from hearthnet.core.node_state import NodeState, read_node_state
from hearthnet.service.hosting.service import GROUP
from tests.helpers.neighbourhood import Neighbourhood, settle_in
from tests.helpers.samples import CORPUS, DOCUMENT, Stock, documents
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

UNLIMITED: Final = "[limits]\ncapability_soft = 0\ncapability_hard = 0\ntotal_soft = 0\ntotal_hard = 0\n"
_SCRIPT: Final = '[[questions]]\n[[questions.turns]]\ntext = "Boil it for a minute."\n'
_POSTS: Final = 20
_SETTINGS: Final = "llm.models."
"""What works on the settings of the node, and asks other servers."""


def installed() -> tuple[str, ...]:
    """The services that come with this installation."""
    return tuple(sorted(entry.name for entry in entry_points(group=GROUP)))


@dataclass(frozen=True)
class FullHouse:
    """A running node; `stock` is what lies in it, for those who ask."""

    neighbourhood: Neighbourhood
    url: str
    stock: Stock

    @property
    def home(self) -> Home:
        """The node's own."""
        return self.neighbourhood.founder

    @property
    def state(self) -> NodeState:
        """What its supervisor says now."""
        return read_node_state(self.home)

    async def offers(self, bus: Bus) -> list[OfferView]:
        """What is offered, by all services of the node that offer something."""
        services = {each.name for each in self.state.services if each.offers}

        async def complete() -> list[OfferView] | None:
            views = await bus.offers()
            return views if services <= {view.offer.service for view in views} else None

        return await wait_for(complete, what=f"offers of {services}")

    @property
    def processes(self) -> dict[str, int]:
        """The process ids of its server and services, by name."""
        state = self.state
        services = {each.name: each.pid for each in state.services if each.pid is not None}
        return {"nats-server": state.server.pid, **services}


def memory_kb(pid: int) -> float:
    """What a process has written to and holds alone, in KB; 0 for one that is gone.

    Pages of its program and libraries are left out: they count as its own or not by who else runs them.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(float(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Swap:")))


@contextlib.contextmanager
def full_house(folder: Path, *members: str, settings: str = "", gateway: bool = False) -> Iterator[FullHouse]:
    """A node in `folder` with every service, for `members` too; as many may ask as like to."""
    model = '[[llm.scripted]]\nname = "scripted"\nfile = "script.toml"\n'
    neighbourhood = settle_in(
        folder,
        *members,
        services=installed(),
        settings=f"{model}\n{UNLIMITED}\n{settings}",
        gateway=gateway,
    )
    home = neighbourhood.founder
    (home.path / "script.toml").write_text(_SCRIPT)
    with Shell(home.path).node() as state:
        url = str(state["server"]["url"])
        yield FullHouse(neighbourhood, url, asyncio.run(_filled(home, url)))


async def _filled(home: Home, url: str) -> Stock:
    """Stores what the examples of the contracts speak of, a corpus and some posts."""
    async with await HomeStore.join(home, url, "stock") as store:
        for text in documents():
            await store.blobs.put_bytes(text.encode(), Hold(shared=True))
        cid = await store.blobs.put_bytes(DOCUMENT.encode(), Hold(shared=True))
    async with await Bus.join(home, url, "stock") as bus:
        ingestion = {"doc_cid": cid, "title": "Water", "language": "en", "media_type": "text/markdown"}
        await bus.call("rag.ingest@1.0", {"params": {"corpus": CORPUS}, "input": ingestion})
        await bus.call("rag.share@1.0", {"params": {"corpus": CORPUS}, "input": {"shared": True}})
        for number in range(_POSTS):
            await bus.call("market.post@1.0", _post(number))
        scope = {"capabilities": ["market.list@1.0"]}
        wanted = {"client_id": new_ulid(), "subject": bus.peer.node_id, "scope": scope}
        issued = await bus.call("auth.token.issue@1.0", {"params": {}, "input": wanted})
        return Stock(cid, bus.peer.node_id, str(issued.output["token"]))


def _post(number: int) -> dict[str, Any]:
    words = {
        "category": "offer",
        "title": f"Water filter {number}",
        "body": "A ceramic one.",
        "tags": ["water"],
    }
    return {"params": {}, "input": {"client_id": new_ulid(), **words}}


def reads(offered: Iterable[str]) -> list[str]:
    """Which of `offered` change nothing, by their contracts."""
    known = {
        each.id: each for each in contracts() if not (each.side_effects or each.name.startswith(_SETTINGS))
    }
    return sorted(known.keys() & set(offered))
