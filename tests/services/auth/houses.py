"""Nodes with their `auth` service, each with a store of its own, on one server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.bus.bus import Bus
from hearthnet.bus.session import keyring
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor.community.join_client import JoinClient
from hearthnet.trust.community import invites
from hearthnet.trust.keys import Identity
from hearthnet_auth import AuthService
from tests.agent.keeping import QUESTION, WANTS, Node
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

INVITE, JOIN, SYNC = "community.invite@1.0", "community.join@1.0", "community.sync@1.0"
PROMOTE, DEMOTE, REVOKE = "community.promote@1.0", "community.demote@1.0", "community.revoke@1.0"
POLICY, WITHDRAW = "community.policy@1.0", "community.withdraw@1.0"
DEVICE = "community.device.invite@1.0"
ISSUE, REVOKE_TOKEN = "auth.token.issue@1.0", "auth.token.revoke@1.0"
INTROSPECT = "auth.token.introspect@1.0"


def body(**members: Any) -> dict[str, Any]:
    """A body with a client id of its own, unless one is given."""
    return {"params": {}, "input": {"client_id": ids.new_ulid(), **members}}


@dataclass
class House:
    """One member's node: its home, its `auth` service, and a second process of the same node."""

    home: Home
    auth: AuthService
    bus: Bus

    @property
    def identity(self) -> Identity:
        """The node's own."""
        return self.bus.peer.identity

    @property
    def node_id(self) -> str:
        """Its full id."""
        return self.bus.peer.node_id

    def level(self, node: str) -> str:
        """What the second process knows of `node`."""
        return self.bus.peer.roster.level(node)

    async def do(self, capability: str, **members: Any) -> dict[str, Any]:
        """The output of a call at the own node."""
        reply = await self.bus.call(capability, body(**members), node=self.node_id)
        return dict(reply.output)


@contextlib.asynccontextmanager
async def living(mesh: Mesh, home: Home) -> AsyncIterator[House]:
    """The node of `home` with its `auth` service, as far as it matters here."""
    auth = AuthService()
    with mesh.published(at=home):
        async with mesh.hosting(auth, at=home), await mesh.bus(at=home) as bus:
            yield House(home, auth, bus)


@contextlib.asynccontextmanager
async def at_the_door(mesh: Mesh, host: House, text: str) -> AsyncIterator[JoinClient]:
    """Someone who holds the invite `text` of `host`, on the server."""
    said = invites.decode(text)
    mesh.let_in(host.auth._membership.roster)

    async def connect() -> JoinClient | None:
        try:
            return await JoinClient.connect(mesh.home, mesh.server.url, said.key(), said)
        except HearthNetError:
            return None

    newcomer = await wait_for(connect, what="the server to know the invite")
    try:
        yield newcomer
    finally:
        await newcomer.close()


async def waiting_run(runs: StoredRuns, home: Home, community: str) -> tuple[Node, str]:
    """A run that waits for a yes at the node of `home`."""
    node = Node(runs, WANTS)
    node.peer.identity, node.peer.community = keyring.load_identity(home.device_key), community
    return node, (await node.executor().run_chat_with_tools(QUESTION))["run"]
