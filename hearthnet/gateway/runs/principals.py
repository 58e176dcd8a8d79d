"""The clients behind runs: tokens for calls, keys for approvals, and numbers of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from hearthnet.agent.runtime.client_authority import ClientApprover, ClientPrincipal
from hearthnet.agent.runtime.ports import BusPort
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.clients import Client

_MOST_SEEN: Final = 2048


class ClientsPort(Protocol):
    """The part of `clients.Clients` that runs use."""

    def token(self, client: Client) -> str: ...
    def with_key(self, principal: str, key: str) -> Client | None: ...


class RunPrincipals:
    """The clients of one gateway, as its runs see them."""

    def __init__(self, bus: BusPort, clients: ClientsPort) -> None:
        self._bus = bus
        self._clients = clients
        self._driven: Counter[str] = Counter()
        self._seen: dict[tuple[str, str], Client] = {}

    def voter(self, client: Client) -> ClientApprover:
        """Return the client as a decider about its runs."""
        peer = self._bus.peer
        own = peer.identity.node_id
        return ClientApprover(
            client.principal, client.key, own, peer.community, self._bus, is_owner=client.is_owner
        )

    def acting(self, client: Client) -> ClientPrincipal:
        """Return the client as the one for whom runs work.

        One principal may have several clients, each with a key. A call that another one of them approved is
        sent under the token of that client, since the approval is valid with no other.
        """
        self.remember(client)

        def token(approver: str) -> str:
            return self._clients.token(self._with_key(client.principal, approver) if approver else client)

        return ClientPrincipal(client.principal, client.key, client.scope, token, is_owner=client.is_owner)

    def remember(self, client: Client) -> None:
        """Remember a connected client; one with a token from elsewhere is known only from here."""
        if client.key:
            self._seen.pop((client.principal, client.key), None)
            self._seen[client.principal, client.key] = client
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]

    def begin(self, client: Client, most: int) -> Callable[[], None]:
        """Count a run of the client's; return the function to call once when it ends.

        Raises:
            HearthNetError: `capacity_exceeded` for more than `most` at a time.
        """
        principal = client.principal
        if self._driven[principal] >= most:
            raise HearthNetError(
                "capacity_exceeded", f"{most} runs of yours are under way; wait for one, or cancel it"
            )
        self._driven[principal] += 1

        def end() -> None:
            self._driven[principal] -= 1
            if not self._driven[principal]:
                del self._driven[principal]

        return end

    def _with_key(self, principal: str, key: str) -> Client:
        found = self._seen.get((principal, key)) or self._clients.with_key(principal, key)
        if found is None:
            raise HearthNetError(
                "unauthorized", "another client of yours approved this; go on with the run there"
            )
        return found
