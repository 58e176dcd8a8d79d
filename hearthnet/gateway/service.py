"""The gateway as a service of its node."""

from __future__ import annotations

import contextlib
from typing import ClassVar

from hearthnet import __version__
from hearthnet.core.node_state import GATEWAY
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.server import serving
from hearthnet.service.hosting.context import NodeContext
from hearthnet.service.hosting.service import Service


class GatewayService(Service):
    """The HTTP gateway of a node: it offers no capability and calls those of the mesh.

    It is open from `start` to `stop`; `address` is where it listens.
    """

    name: ClassVar[str] = GATEWAY
    version: ClassVar[str] = __version__

    def __init__(self) -> None:
        super().__init__()
        self._open = contextlib.AsyncExitStack()

    async def start(self, node: NodeContext) -> None:
        """Open the gateway; raises what `serving` raises."""
        gateway = Gateway.on(node.bus, node.home, node.config)
        self.address = (await self._open.enter_async_context(serving(gateway))).url

    async def stop(self) -> None:
        """Close the gateway in order."""
        await self._open.aclose()
