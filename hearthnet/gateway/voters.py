"""In whose name runs act: a client's token for its calls, its key for its approvals, how many it drives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from hearthnet.errors import HearthNetError
from hearthnet.gateway.clients import Client
from hearthnet.tools.acting import ActingFor, Voter
from hearthnet.tools.ports import BusPort

_MOST_SEEN: Final = 2048


class ClientsPort(Protocol):
    """The part of `clients.Clients` that runs use."""

    def token(self, client: Client) -> str: ...
    def with_key(self, principal: str, key: str) -> Client | None: ...


class Voters:
    """The clients of one gateway, as its runs see them."""

    def __init__(self, bus: BusPort, clients: ClientsPort) -> None:
        self._bus = bus
        self._clients = clients
        self._driven: Counter[str] = Counter()
        self._seen: dict[tuple[str, str], Client] = {}

    def voter(self, client: Client) -> Voter:
        """The client as it decides."""
        peer = self._bus.peer
        own = peer.identity.node_id
        return Voter(client.principal, client.key, own, peer.community, self._bus, is_owner=client.is_owner)

    def acting(self, client: Client) -> ActingFor:
        """The client as runs act for it.

        One principal may have several clients, each with a key. A call that another one of them approved
        goes out under that one's token: the approval counts for no other.
        """
        self.remember(client)

        def token(approver: str) -> str:
            return self._clients.token(self._with_key(client.principal, approver) if approver else client)

        return ActingFor(client.principal, client.key, client.scope, token, is_owner=client.is_owner)

    def remember(self, client: Client) -> None:
        """Notes that the client is there; one with a token from elsewhere is known by nothing else."""
        if client.key:
            self._seen.pop((client.principal, client.key), None)
            self._seen[client.principal, client.key] = client
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]

    def begin(self, client: Client, most: int) -> Callable[[], None]:
        """Counts a run of the client's; what it returns is called once, when it is driven no more.

        Raises `capacity_exceeded` for more than `most` at a time.
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
