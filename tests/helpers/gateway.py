"""A gateway in the test's process: a real server and bus, services hosted beside it, uvicorn on a free port.

`open_house(folder)` gives a `House`; `tests/gateway/conftest.py` has it as fixtures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest

from hearthnet import Call, Offer, Reply, Service, Stream, capability
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.config_loader import load_config
from hearthnet.core.node_state import ServiceState
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.gateway.auth.client_store import StoredClient, api_key
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.server import serving
from hearthnet.service.hosting.host import Host
from hearthnet.trust.authorization.token import Scope
from hearthnet.trust.keys import Identity
from hearthnet_llm import LlmService
from hearthnet_llm import service as llm_service
from tests.helpers.envelopes import sign_envelope
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.probe import POST, QUERY, ROW, Anything, ProbeService
from tests.helpers.scripted_model import ScriptedModel

SETTINGS = "[server]\nport = 0\n\n[llm]\nbuiltin = false\n\n"
SLOW = "llm.complete@1.0"


class Workshop(ProbeService):
    """What the tests' clients call.

    `rag.query` reads (corpus `probe`), `market.post` has an effect, counted in `posts`. `llm.complete`
    streams: the prompt "slow N" tells its progress N times, waiting for `go` to be set before each, any other
    comes back word by word.
    """

    name: ClassVar[str] = "workshop"

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()

    def offers(self) -> list[Offer]:
        """The three."""
        model = {"model": "echo", "ctx": 1000, "backend": "echo"}
        return [
            Offer(capability=QUERY, params={"corpus": "probe"}, max_concurrent=64),
            Offer(capability=POST, max_concurrent=64),
            Offer(capability=SLOW, params=model, max_concurrent=600),
        ]

    @property
    def posts(self) -> list[Call[Any, Any]]:
        """The effects that happened, each once."""
        return [call for call in self.calls if call.contract.name == "market.post"]

    @capability(QUERY)
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """One row that says what was asked."""
        self.calls.append(call)
        await self.answer(call)
        return Reply(
            {"chunks": [{**ROW, "text": f"about {call.body['input']['query']}"}]},
            {"corpus": "probe", "embedding_model": None},
        )

    @capability(SLOW)
    async def complete(self, call: Call[Anything, Anything], stream: Stream) -> Reply:
        """Words, or progress."""
        self.calls.append(call)
        try:
            words = str(call.body["input"]["prompt"]).split()
            if words[0] == "slow":
                for number in range(int(words[1])):
                    await self.go.wait()
                    await stream.progress("working", number + 1, int(words[1]))
            for word in words:
                await stream.send("token", {"text": f"{word} "})
        except asyncio.CancelledError:
            self.stopped.append(call.id)
            raise
        meta = {"model": "echo", "tokens_in": 1, "tokens_out": len(words), "stop_reason": "end"}
        return Reply({"text": " ".join(words)}, meta)


@dataclass(frozen=True)
class Guest:
    """A client of the book, with all it needs to ask."""

    entry: StoredClient
    secret: str
    cookie: str
    identity: Identity | None

    @property
    def bearer(self) -> dict[str, str]:
        """As a program shows it."""
        return {"Authorization": f"Bearer {api_key(self.entry, self.secret)}"}

    @property
    def cookies(self) -> dict[str, str]:
        """As a page shows it; a request that changes something needs the header Origin too."""
        return {self.cookie: f"{self.entry.id}_{self.secret}"}


@dataclass
class House:
    """A node with its gateway."""

    mesh: Mesh
    bus: Bus
    gateway: Gateway
    workshop: Workshop
    model: ScriptedModel
    _numbers: list[int] = field(default_factory=lambda: [0])

    @property
    def url(self) -> str:
        """Where the gateway listens: `http://127.0.0.1:PORT`."""
        return self.gateway.url

    @property
    def socket_url(self) -> str:
        """The WebSocket."""
        return f"ws{self.url.removeprefix('http')}/v1/socket"

    def guest(
        self, *capabilities: str, key: bool = False, scope: Scope | None = None, principal: str = ""
    ) -> Guest:
        """A new client of the book: with a key of its own or without; what it may call, all by default."""
        self._numbers[0] += 1
        identity = Identity.generate() if key else None
        name = principal or f"guest-{self._numbers[0]}"
        if capabilities:
            scope = Scope(capabilities)
        entry, secret = self.gateway.clients.book.add(
            name, name, key=identity.node_id if identity else "", scope=scope
        )
        return Guest(entry, secret, self.gateway.clients.cookie, identity)

    def client(self, guest: Guest) -> Client:
        """The guest as the gateway's parts know it."""
        return self.gateway.clients.of(guest.entry)

    def envelope(
        self, capability: str, body: dict[str, Any], version: str, guest: Guest | None = None, **fields: Any
    ) -> dict[str, Any]:
        """A call, signed where `guest` has a key."""
        said: dict[str, Any] = {
            "capability": capability,
            "version": version,
            "request_id": ids.new_ulid(),
            "community": self.bus.peer.community,
            "timestamp": rfc3339(now_ms()),
            "body": body,
            **fields,
        }
        identity = guest.identity if guest is not None else None
        return said if identity is None else sign_envelope(identity, said)

    def http(self, guest: Guest | None = None, **options: Any) -> httpx2.AsyncClient:
        """An HTTP client that shows the guest's key; close it, or use it as a context manager."""
        headers = {**(guest.bearer if guest else {}), **options.pop("headers", {})}
        options = {"base_url": self.url, **options}
        return httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False, **options)


def _state(name: str, host: Host) -> ServiceState:
    """A service as a supervisor tells of it, so that a list waits for its answer."""
    return ServiceState(name, os.getpid(), "ready", 0, None, tuple(host.offers), 0)


def _refresh(tasks: asyncio.TaskGroup, host: Host) -> None:
    """Announces what a service offers now, as its own process does."""
    tasks.create_task(host.refresh())


@contextlib.asynccontextmanager
async def open_house(
    folder: Path, settings: str = "", *, stores: bool = False, more: Sequence[Service] = ()
) -> AsyncIterator[House]:
    """A node in `folder` with its gateway; `settings` are added to the node's own, as TOML.

    With `stores` the second member has a store too, and can host services. `more` are hosted besides.
    """
    with ScriptedModel() as model, pytest.MonkeyPatch.context() as patch:
        # On a busy machine the service looks at its server later, and nobody here follows its offers.
        patch.setattr(llm_service, "SETTLE_SECONDS", 20.0)
        mesh = await start_mesh(folder, stores=stores)
        port = "" if "[gateway]" in settings else "[gateway]\nport = 0\n\n"
        mesh.home.config_file.write_text(f"{SETTINGS}{port}{settings}\n{model.config}")
        workshop = Workshop()
        try:
            async with contextlib.AsyncExitStack() as stack:
                states = []
                for service in (workshop, LlmService(), *more):
                    host = await stack.enter_async_context(mesh.hosting(service))
                    tasks = await stack.enter_async_context(asyncio.TaskGroup())
                    service.on_offers_changed(partial(_refresh, tasks, host))
                    states.append(_state(service.name, host))
                stack.enter_context(mesh.published(*states))
                bus = await stack.enter_async_context(await mesh.bus("gateway"))
                gateway = Gateway.on(bus, mesh.home, load_config(mesh.home))
                await stack.enter_async_context(serving(gateway))
                yield House(mesh, bus, gateway, workshop, model)
        finally:
            mesh.server.stop()


__all__ = ["Guest", "House", "Workshop", "open_house"]
