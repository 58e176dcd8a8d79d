"""The objects that the parts of the gateway share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from hearthnet.bus.bus import Bus
from hearthnet.core.config import Config
from hearthnet.core.home import Home
from hearthnet.gateway.auth.client_store import ClientStore
from hearthnet.gateway.auth.client_tokens import local_capabilities
from hearthnet.gateway.auth.clients import Clients
from hearthnet.gateway.auth.login_links import LinkBook
from hearthnet.gateway.auth.person_devices import PersonDevices
from hearthnet.gateway.http.body_gate import BodyGate
from hearthnet.gateway.http.rate_limits import RateLimits
from hearthnet.gateway.runs.runs import GatewayRuns


@dataclass
class Gateway:
    """The state that the parts share; `url` is the address of the listening gateway."""

    bus: Bus
    home: Home
    config: Config
    clients: Clients
    links: LinkBook
    limits: RateLimits
    runs: GatewayRuns
    bodies: BodyGate
    devices: PersonDevices
    url: str = ""
    sockets: Any = None
    """The WebSocket part, once the application is built."""
    mcp: Any = None
    """The MCP part, once the application is built."""

    @classmethod
    def on(cls, bus: Bus, home: Home, config: Config) -> Gateway:
        """Return the gateway of the node in `home`, which calls through `bus`."""
        limits = RateLimits()
        clients = Clients(bus.peer, ClientStore(home), limits)
        clients.more_capabilities = partial(local_capabilities, home)
        runs = GatewayRuns.of(bus, home, clients)
        return cls(
            bus,
            home,
            config,
            clients,
            LinkBook(home),
            limits,
            runs,
            BodyGate(clients),
            PersonDevices(bus, home, clients),
        )
