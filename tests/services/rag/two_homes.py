"""Two homes on one server, each with its rag service: K, whose corpora they are, and M, which copies them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.hosting.host import Host
from hearthnet.trust.community.events import Level
from hearthnet_rag import RagService
from tests.helpers.members import raise_to
from tests.helpers.mesh import Mesh, write_roster
from tests.helpers.waiting import wait_for

MANUALS = "manuals"


@dataclass
class RagHome:
    """A home with its service, while that runs, and a process of it to call from."""

    mesh: Mesh
    home: Home
    bus: Bus
    rag: RagService | None = None
    _host: Host | None = None
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @property
    def node(self) -> str:
        """Its id."""
        return self.bus.peer.node_id

    async def start(self) -> None:
        """Start the service, with its changes of offers announced."""
        rag, tasks = RagService(), list[asyncio.Task[None]]()
        host = await self._stack.enter_async_context(self.mesh.hosting(rag, at=self.home))
        self._host = host
        rag.on_offers_changed(lambda: tasks.append(asyncio.create_task(host.refresh())))
        await host.refresh()

        async def announced() -> None:
            rag.on_offers_changed(lambda: None)
            await asyncio.gather(*tasks)

        self._stack.push_async_callback(announced)
        self.rag = rag

    async def stop(self) -> None:
        """Stop the service, which withdraws its offers."""
        self.rag = None
        await self._stack.aclose()

    async def lose(self) -> None:
        """Cut the service off from the server, as a power cut does; nobody is told."""
        assert self._host is not None
        await self._host.peer.link.close()

    async def call(self, capability: str, corpus: str, /, **given: Any) -> Any:
        """The reply to a call at this home itself."""
        body = {"params": {"corpus": corpus}, "input": given}
        return await self.bus.call(capability, body, node=self.node)

    async def add(self, corpus: str, text: str, **given: Any) -> str:
        """Store a document and add it."""
        async with await self.mesh.store(self.home) as store:
            cid = await store.put_blob(text.encode())
        await self.call("rag.ingest@1.0", corpus, doc_cid=cid, **given)
        return cid

    async def share(self, corpus: str, *, shared: bool = True, copies: bool = True) -> None:
        """Decide about a corpus."""
        await self.call("rag.share@1.0", corpus, shared=shared, copies=copies)

    async def mirror(self, home: str, corpus: str = MANUALS, *, end: bool = False) -> Any:
        """Begin or end a copy here; the row of it."""
        return (await self.call("rag.mirror@1.0", corpus, home=home, end=end)).output

    async def copies(self) -> list[dict[str, Any]]:
        """The copies here."""
        reply = await self.bus.call("rag.list_mirrors@1.0", {"params": {}, "input": {}}, node=self.node)
        return list(reply.output["copies"])

    async def whole(self, other_than: str = "", **wanted: Any) -> dict[str, Any]:
        """Wait for the one copy to be whole, as `wanted`, and of another version than the given one."""

        async def there() -> dict[str, Any] | None:
            rows = await self.copies()
            fits = len(rows) == 1 and {"state": "whole", **wanted}.items() <= rows[0].items()
            is_well = "problem" not in rows[0] if rows and "answers" not in wanted else True
            return rows[0] if fits and is_well and rows[0]["version"] != other_than else None

        return await wait_for(there, what=f"a whole copy with {wanted}")

    async def ask(self, corpus: str, query: str) -> Any:
        """The reply of whoever answers a search."""
        return await self.bus.call("rag.query@1.0", {"params": {"corpus": corpus}, "input": {"query": query}})

    async def held(self, cid: str) -> list[str]:
        """The holders of a file here."""
        async with await self.mesh.store(self.home) as store:
            entry = await store.blobs.find(cid)
        return [] if entry is None else [hold.by for hold in entry.notes.holds]


@contextlib.asynccontextmanager
async def two_homes(mesh: Mesh, level: Level = "trusted") -> AsyncIterator[tuple[RagHome, RagHome]]:
    """K and M, both running; M is a trusted member, or of another level."""
    founder, guest = (load_identity(home.device_key) for home in (mesh.home, mesh.guest))
    held = load_roster(mesh.home.roster, founder.node_id)
    if level != "member":
        held = raise_to(held, founder, guest, level)
    write_roster(held, mesh.home, mesh.guest)
    async with await mesh.bus() as bus, await mesh.bus(at=mesh.guest) as other:
        homes = RagHome(mesh, mesh.home, bus), RagHome(mesh, mesh.guest, other)
        try:
            for home in homes:
                await home.start()
            yield homes
        finally:
            for home in homes:
                await home.stop()


def texts(reply: Any) -> list[str]:
    """The texts that a search found."""
    return sorted(chunk["text"] for chunk in reply.output["chunks"])


async def refusal(work: Any) -> HearthNetError:
    """The error with which a call ends."""
    with pytest.raises(HearthNetError) as caught:
        await work
    return caught.value
