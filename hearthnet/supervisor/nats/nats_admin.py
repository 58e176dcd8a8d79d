"""The supervisor's connection to the account SYS of its server, for reports and commands.

The login is made anew at every start of the node and kept in memory, so that no other process can use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.nats.client import NatsClient
from hearthnet.supervisor.nats.silent_peers import Peer
from hearthnet.trust.keys import Login

BUS_ACCOUNT: Final = "HN"
ANSWER_SECONDS: Final = 2.0
FIRST_ANSWER_SECONDS: Final = 15.0
"""At the start of a node, which fails without an answer, all its processes want the cores at once."""
_PAGE: Final = 1024
_LEAF: Final = "Leafnode"


class ServerConnection(NamedTuple):
    """A connection of a client or leaf link into the bus account, with its login."""

    connection: int
    login: str
    is_leaf: bool


_T = TypeVar("_T")


class _Refusal(msgspec.Struct):
    description: str = ""


class _Answer(msgspec.Struct):
    error: _Refusal | None = None


class _Server(msgspec.Struct):
    id: str


class _About(msgspec.Struct, Generic[_T]):
    data: _T


class _Settings(msgspec.Struct):
    sync_always: bool = False


class _JetStream(msgspec.Struct):
    config: _Settings


class _Connection(msgspec.Struct):
    cid: int
    kind: str = ""
    authorized_user: str = ""


class _Connections(msgspec.Struct):
    total: int
    connections: tuple[_Connection, ...] = ()


class _LeafLink(msgspec.Struct):
    id: int
    ip: str = ""
    port: int = 0
    is_spoke: bool = False


class _LeafLinks(msgspec.Struct):
    leafs: tuple[_LeafLink, ...] = ()


class _Listener(msgspec.Struct):
    port: int = 0


class _Variables(msgspec.Struct):
    routes: int = 0
    leaf: _Listener = msgspec.field(default_factory=_Listener)


class _ClientInfo(msgspec.Struct):
    kind: str = ""


class _Connected(msgspec.Struct):
    client: _ClientInfo


class NatsAdmin:
    """Requests and commands to one server.

    Raises:
        HearthNetError: all methods raise `partition` if the server does not answer.
    """

    def __init__(self, link: NatsClient) -> None:
        self._link = link

    @classmethod
    async def connect(cls, url: str, login: Login) -> NatsAdmin:
        """Connect; the connection is later restored by itself, also to a restarted server."""
        return cls(await NatsClient.connect(url, login, "up"))

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    async def check_sync(self, config: Path) -> None:
        """Check that JetStream syncs every write.

        See: docs/protocol/subjects.md#server-settings.

        Raises:
            HearthNetError: `internal_error` if it does not.
        """
        about = await self._ask("JSZ", _About[_JetStream], FIRST_ANSWER_SECONDS, config=True)
        if not about.data.config.sync_always:
            raise HearthNetError(
                "internal_error",
                f"nats-server does not sync every write, so that a power cut would lose posts; see {config}",
            )

    async def leaf_port(self) -> int:
        """Return the port of the leaf listener, 0 where there is none."""
        return (await self._ask("VARZ", _About[_Variables], FIRST_ANSWER_SECONDS)).data.leaf.port

    async def routes(self) -> int:
        """Return the number of routes to other doors."""
        return (await self._ask("VARZ", _About[_Variables])).data.routes

    async def reload(self) -> None:
        """Make the server read its configuration again.

        Raises:
            HearthNetError: `internal_error` with the server's message if it refuses.
        """
        answer = await self._command("RELOAD")
        if answer.error is not None:
            raise HearthNetError(
                "internal_error",
                f"nats-server refuses the new configuration: {answer.error.description.strip()}",
            )

    async def sessions(self) -> list[ServerConnection]:
        """Return all incoming connections of the bus account, of clients and leaf links."""
        found: list[ServerConnection] = []
        offset, total = 0, 1
        while offset < total:
            about = await self._ask(
                "CONNZ", _About[_Connections], auth=True, acc=BUS_ACCOUNT, offset=offset, limit=_PAGE
            )
            # A link that this server made to another one has no login.
            found += [
                ServerConnection(each.cid, each.authorized_user, each.kind == _LEAF)
                for each in about.data.connections
                if each.authorized_user
            ]
            offset, total = offset + _PAGE, about.data.total
        return found

    async def hubs(self) -> set[int]:
        """Return the leaf connections whose other side acts as the hub.

        The server checks no permissions of those.
        """
        return {each.id for each in await self._links() if each.is_spoke}

    async def links_to(self, peers: Collection[Peer]) -> set[int]:
        """Return the leaf connections, made by either side, whose other end is one of `peers`."""
        return {each.id for each in await self._links() if Peer(each.ip, each.port) in peers}

    async def kick(self, connection: int) -> None:
        """Close a connection; ignore one that is closed already."""
        await self._command("KICK", cid=connection)

    async def on_leaf_link(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever a leaf link has come into the bus account."""

        def on_event(subject: str, data: bytes, absent: bool) -> None:
            with contextlib.suppress(msgspec.DecodeError):
                if msgspec.json.decode(data, type=_Connected).client.kind == _LEAF:
                    callback()

        await self._link.subscribe(f"$SYS.ACCOUNT.{BUS_ACCOUNT}.CONNECT", on_event)

    async def _links(self) -> tuple[_LeafLink, ...]:
        return (await self._ask("LEAFZ", _About[_LeafLinks])).data.leafs

    async def _command(self, name: str, **options: Any) -> _Answer:
        # Commands name the server by its id, which is new after a restart.
        server = (await self._ask("IDZ", _Server)).id
        return await self._request(f"$SYS.REQ.SERVER.{server}.{name}", _Answer, options)

    async def _ask(self, what: str, kind: type[_T], seconds: float = ANSWER_SECONDS, **options: Any) -> _T:
        return await self._request(f"$SYS.REQ.SERVER.PING.{what}", kind, options, seconds)

    async def _request(
        self, subject: str, kind: type[_T], options: dict[str, Any], seconds: float = ANSWER_SECONDS
    ) -> _T:
        try:
            answer = await self._link.request(subject, msgspec.json.encode(options), seconds)
            return msgspec.json.decode(answer, type=kind)
        except (HearthNetError, TimeoutError) as error:
            raise Unavailable(f"nats-server does not answer {subject}", rule="no_server") from error
        except msgspec.DecodeError as error:
            raise HearthNetError(
                "internal_error", f"nats-server answers {subject} in a way unknown here: {error}"
            ) from error
