"""The principal of an executor's runs: the owner of the node, or one client of its gateway.

See: docs/protocol/agent.md#authority-of-the-calls, docs/decisions/0164.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hearthnet.agent.persistence.run_record import RunRecord
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.authority import CallAuthority, RunAuthority, Scopes
from hearthnet.agent.runtime.client_authority import ClientApprover, ClientAuthority, ClientPrincipal
from hearthnet.agent.runtime.ports import BusPort
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.core.errors import HearthNetError


class RunPrincipal:
    """The owner of the node on this bus, or the client `acting_for`."""

    def __init__(self, bus: BusPort, acting_for: ClientPrincipal | None) -> None:
        self._bus = bus
        self._acting = acting_for
        own = bus.peer.identity.node_id
        self.principal: Final = own if acting_for is None else acting_for.principal
        self.key: Final = "" if acting_for is None else acting_for.key

    @property
    def is_owner(self) -> bool:
        """Return whether the node's owner drives them, at the command line or at the page."""
        return self._acting is None or self._acting.is_owner

    @property
    def has_client(self) -> bool:
        """Return whether these are the runs of a client, and not of the owner at the command line."""
        return self._acting is not None

    def toolbox(self, tools: list[ToolDefinition]) -> Toolbox:
        """Return those of `tools` that may be called here; raises as `Toolbox`."""
        toolbox, acting = Toolbox(tools), self._acting
        if acting is None:
            return toolbox
        return Toolbox(tool.definition for tool in toolbox if acting.covers(tool))

    def check(self, record: RunRecord) -> None:
        """Check that this principal may continue a saved run.

        A run continues under the token of its principal and, where a client with a key began it, only for a
        client with a key. The owner continues the owner's runs, at the page also those of the command line,
        and the other way round.

        Raises:
            HearthNetError: `unauthorized` for a run of another principal, or one that needs a key.
        """
        own = self._bus.peer.identity.node_id
        if self.is_owner and (record.principal == own or record.by_owner):
            return
        if record.principal != self.principal:
            raise HearthNetError(
                "unauthorized",
                f"the run {record.run} is for {record.principal}, and goes on where that one asks for it",
                rule="principal",
            )
        if record.key and not self.key:
            raise HearthNetError(
                "unauthorized",
                f"the run {record.run} was begun by a client with a key of its own; go on with one that has",
                rule="own_key",
            )

    def saved_runs(self, store: RunStore) -> SavedRuns:
        """Return the saved runs as this principal sees them."""
        peer, approver = self._bus.peer, None
        if self._acting is not None:
            own = peer.identity.node_id
            approver = ClientApprover(
                self.principal, self.key, own, peer.community, self._bus, is_owner=self._acting.is_owner
            )
        return SavedRuns(store, peer.identity, peer.community, client=approver)

    def authority(self, run: str, scopes: Callable[[], Scopes], store: RunStore | None) -> CallAuthority:
        """Return the authority for the calls of `run`; `scopes` returns those of the owner."""
        peer = self._bus.peer
        if self._acting is None:
            return RunAuthority(peer.identity, peer.community, run, scopes())
        owner = RunAuthority(peer.identity, peer.community, run, scopes()) if self.is_owner else None
        decisions = None if store is None else self.saved_runs(store).decision_log
        devices = self._other_nodes() if self.is_owner else frozenset()
        return ClientAuthority(
            peer.identity, peer.community, run, self._acting, decisions, owner=owner, devices=devices
        )

    def _other_nodes(self) -> frozenset[str]:
        """Return the nodes of the owner's person, by which a decision is the owner's."""
        roster = getattr(self._bus.peer, "roster", None)
        if roster is None:
            return frozenset()
        person = roster.person_of(self._bus.peer.identity.node_id)
        return frozenset(one.key for one in roster.devices(person) if one.kind == "node")
