"""For whom MCP's calls are made, and how a person's yes becomes an approval.

A client of the gateway acts under its own token, as everywhere. Over stdio it is the owner of the home, under
a token that the owner's own key gave: effects need the owner's approval there too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from hearthnet.bus import Bus
from hearthnet.contracts import Contract
from hearthnet.errors import HearthNetError
from hearthnet.gateway.clients import Client, everything
from hearthnet.gateway.effects import approved
from hearthnet.times import now_ms
from hearthnet.trust.approval import Approval, sign_approval
from hearthnet.trust.token import Scope, mint

if TYPE_CHECKING:
    from hearthnet.gateway.app import Gateway

_TOKEN_SECONDS: Final = 300
NO_SIGNING: Final = (
    "this client approves with a key of its own, which MCP cannot use: add one without a key for it, "
    "with hearthnet clients add"
)


class Caller(Protocol):
    """Who MCP speaks for."""

    @property
    def id(self) -> str: ...
    @property
    def is_owner(self) -> bool: ...
    @property
    def chosen(self) -> bool: ...
    def covers(self, contract: Contract) -> bool: ...
    def token(self, contract: Contract) -> str: ...
    def held(self) -> AbstractContextManager[None]: ...
    def check_may_ask(self) -> None: ...
    async def approval(self, contract: Contract, body: dict[str, Any]) -> Approval: ...


class ClientCaller:
    """A client of the gateway."""

    is_owner: Final = False

    def __init__(self, gateway: Gateway, client: Client) -> None:
        self._gateway = gateway
        self._client = client
        self.id = client.id

    @property
    def chosen(self) -> bool:
        """Whether somebody named what it may call."""
        return bool(self._client.bearer or self._gateway.clients.book.find(self.id).scope.capabilities)

    def covers(self, contract: Contract) -> bool:
        """Whether its scope covers the contract."""
        return self._client.scope.covers(contract.capability)

    def token(self, contract: Contract) -> str:
        """Under which it calls; raises where the client was removed."""
        return self._gateway.clients.token(self._client)

    def held(self) -> AbstractContextManager[None]:
        """One answer more at a time; `capacity_exceeded` for one too many."""
        return self._gateway.limits.held(self._client.id)

    def check_may_ask(self) -> None:
        """Raises `unauthorized` where a yes over MCP would not count."""
        if self._client.key:
            raise HearthNetError("unauthorized", NO_SIGNING)

    async def approval(self, contract: Contract, body: dict[str, Any]) -> Approval:
        """The yes to exactly `body`, which the gateway signs for it."""
        found = await approved(self._gateway.bus, self._client, contract, body, None)
        if not isinstance(found, Approval):
            raise HearthNetError("unauthorized", NO_SIGNING)
        return found


class OwnerCaller:
    """The owner of the home, over stdio."""

    id: Final = "owner"
    is_owner: Final = True
    chosen: Final = False

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def covers(self, contract: Contract) -> bool:
        """Everything that may be called under a token at all."""
        return True

    def token(self, contract: Contract) -> str:
        """For this capability alone."""
        peer = self._bus.peer
        return mint(
            peer.identity,
            subject=peer.node_id,
            audience=peer.community,
            scope=Scope((contract.id,)),
            now_ms=now_ms(),
            ttl_seconds=_TOKEN_SECONDS,
        )

    def held(self) -> AbstractContextManager[None]:
        """There is no limit for the owner."""
        return nullcontext()

    def check_may_ask(self) -> None:
        """The owner's yes counts."""

    async def approval(self, contract: Contract, body: dict[str, Any]) -> Approval:
        """The yes to exactly `body`, signed with the node's key."""
        peer = self._bus.peer
        owner = Client("owner", "owner", peer.node_id, peer.node_id, Scope(everything()), 0)
        found = await approved(self._bus, owner, contract, body, None)
        if isinstance(found, Approval):
            return found
        unsigned = msgspec.convert({**found["approval"], "signature": ""}, Approval)
        return sign_approval(peer.identity, unsigned)
