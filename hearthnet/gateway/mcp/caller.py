"""The callers behind MCP requests, and their approvals.

A client of the gateway acts under its own token, as everywhere. Over stdio the caller is the owner of the
home, under a token made with the owner's key: effects need the owner's approval there too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hearthnet.agent.tools.names import sanitize, stem
from hearthnet.bus.bus import Bus
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core.capability_name import Capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.client_tokens import everything
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.mcp.tools import foreign_stem
from hearthnet.gateway.runs.calls import approved, asks_model
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint, whole_server

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway

_TOKEN_SECONDS: Final = 300
NO_SIGNING: Final = (
    "this client approves with a key of its own, which MCP cannot use: add one without a key for it, "
    "with hearthnet clients add"
)


class ClientCaller:
    """A client of the gateway."""

    is_owner: Final = False

    def __init__(self, gateway: Gateway, client: Client) -> None:
        self._gateway = gateway
        self._client = client
        self.id = client.id

    @property
    def chosen(self) -> bool:
        """Return whether its scope was given by name."""
        return bool(self._client.bearer or self._gateway.clients.book.find(self.id).scope.capabilities)

    def covers(self, capability: Capability) -> bool:
        """Return whether its scope covers the capability."""
        return self._client.scope.covers(capability)

    def may_know(self, tool: str) -> bool:
        """Return whether its scope has a capability without installed contract for this tool name."""
        entries = filter(is_provider_defined, self._client.scope.capabilities)
        return any(_may_name(tool, entry.partition("@")[0]) for entry in entries)

    def token(self, contract: Contract) -> str:
        """Return the token of its calls; raises if the client was removed."""
        return self._gateway.clients.token(self._client)

    def held(self) -> AbstractContextManager[None]:
        """Count one more answer at a time.

        Raises:
            HearthNetError: `capacity_exceeded` if there are too many.
        """
        return self._gateway.limits.held(self._client.account)

    def count(self, contract: Contract, body: dict[str, Any]) -> None:
        """Count a question to a model; raises as `Clients.count_question`."""
        if asks_model(contract, body):
            self._gateway.clients.count_question(self._client)

    def check_may_ask(self) -> None:
        """Check that an approval over MCP counts for this client.

        Raises:
            HearthNetError: `unauthorized` if it approves with a key of its own.
        """
        if self._client.key:
            raise HearthNetError("unauthorized", NO_SIGNING)

    async def approval(self, contract: Contract, body: dict[str, Any], provider: str) -> Approval:
        """Return the approval of exactly `body` at `provider`, signed by the gateway."""
        found = await approved(self._gateway.bus, self._client, contract, body, None, provider)
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

    def covers(self, _capability: Capability) -> bool:
        """Return True: the owner may call all that a token can carry."""
        return True

    def may_know(self, _tool: str) -> bool:
        """Return True, as `covers` does."""
        return True

    def token(self, contract: Contract) -> str:
        """Return a token for this capability alone."""
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
        """Return an empty context: the owner has no limit."""
        return nullcontext()

    def count(self, _contract: Contract, _body: dict[str, Any]) -> None:
        """Do nothing: the owner asks as often as they like."""

    def check_may_ask(self) -> None:
        """Accept: the owner's approval counts."""

    async def approval(self, contract: Contract, body: dict[str, Any], provider: str) -> Approval:
        """Return the approval of exactly `body` at `provider`, signed with the node's key."""
        peer = self._bus.peer
        owner = Client("owner", "owner", peer.node_id, peer.node_id, Scope(everything()), 0)
        found = await approved(self._bus, owner, contract, body, None, provider)
        if isinstance(found, Approval):
            return found
        unsigned = msgspec.convert({**found["approval"], "signature": ""}, Approval)
        return sign_approval(peer.identity, unsigned)


def _may_name(tool: str, entry: str) -> bool:
    """Return whether `tool` can be the name of the capability or of a tool of the server in `entry`."""
    shown = sanitize(tool)
    server = whole_server(entry)
    if server is not None:
        return shown.startswith(foreign_stem(f"{server}."))
    return shown == sanitize(entry) or shown.startswith((f"{stem(entry)}-", f"{foreign_stem(entry)}-"))


Caller = ClientCaller | OwnerCaller
"""The caller for whom MCP requests are made."""
