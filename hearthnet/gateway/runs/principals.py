"""The clients behind runs: tokens for calls, keys for approvals, unsigned approvals to be shown."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.agent.runtime.client_authority import ClientApprover, ClientPrincipal
from hearthnet.agent.runtime.ports import BusPort, Listener
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.clients import Client, Clients
from hearthnet.trust.authorization.approval import Approval

_MOST_SEEN: Final = 2048


class RunPrincipals:
    """The clients of one gateway, as its runs see them."""

    def __init__(self, bus: BusPort, clients: Clients) -> None:
        self._bus = bus
        self._clients = clients
        self._driven: Counter[str] = Counter()
        self._seen: dict[tuple[str, str], Client] = {}

    def approver(self, client: Client) -> ClientApprover:
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
        payer = client.payer
        if self._driven[payer] >= most:
            raise HearthNetError(
                "capacity_exceeded", f"{most} runs of yours are under way; wait for one, or cancel it"
            )
        self._driven[payer] += 1

        def end() -> None:
            self._driven[payer] -= 1
            if not self._driven[payer]:
                del self._driven[payer]

        return end

    def _with_key(self, principal: str, key: str) -> Client:
        found = self._seen.get((principal, key)) or self._clients.with_key(principal, key)
        if found is None:
            raise HearthNetError(
                "unauthorized", "another client of yours approved this; go on with the run there"
            )
        return found


_MOST_PROPOSED: Final = 1024


class ApprovalCache:
    """The approvals that were proposed, so that a client sees the same one again."""

    def __init__(self) -> None:
        self._approvals: OrderedDict[bytes, Approval] = OrderedDict()

    def same(self, wanted: Approval) -> Approval:
        """Return the approval that was proposed earlier in place of `wanted`, else `wanted`.

        The two differ only in id and time.
        """
        alike = msgspec.structs.replace(wanted, id="", time=0).signing_bytes()
        proposed = self._approvals.pop(alike, wanted)
        self._approvals[alike] = proposed
        if len(self._approvals) > _MOST_PROPOSED:
            self._approvals.popitem(last=False)
        return proposed


class ApprovalPresenter:
    """The pending calls of one run, as its client is shown them."""

    def __init__(self, approver: ClientApprover, toolbox: Toolbox, proposed: ApprovalCache) -> None:
        self._approver = approver
        self._toolbox = toolbox
        self._proposed = proposed

    async def with_template(self, pending: dict[str, Any]) -> dict[str, Any]:
        """Return `pending`, the data of `confirmation_required`, with an unsigned `approval`.

        It is None where the call takes no approval, and where none can be made now: then `approval_problem`
        has the reason. Clients without a key get `pending` unchanged.
        """
        if not self._approver.key:
            return pending
        try:
            wanted = await self._approver.approval_template(
                self._toolbox[pending["name"]], msgspec.convert(pending, PendingApproval)
            )
        except HearthNetError as error:
            return {**pending, "approval": None, "approval_problem": error.message}
        if wanted is None:
            return {**pending, "approval": None}
        unsigned = self._proposed.same(wanted).as_json()
        del unsigned["signature"]
        return {**pending, "approval": unsigned}

    async def with_templates(self, pending: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the result of `with_template` for each."""
        return [await self.with_template(one) for one in pending]

    def hearing(self, hear: Listener, hidden: list[str]) -> Listener:
        """Return a listener that adds approvals, and first a notice of `hidden` tools, to `hear`."""
        more = 1 if hidden else 0

        async def relay(frame: dict[str, Any]) -> None:
            event, data = frame["event"], frame["data"]
            if hidden and frame["seq"] == 1:
                await hear({"event": "notice", "data": _notice(hidden), "seq": 1})
            if event == "confirmation_required":
                data = await self.with_template(data)
            elif event == "suspended":
                data = {**data, "pending": await self.with_templates(data["pending"])}
            await hear({"event": event, "data": data, "seq": frame["seq"] + more})

        return relay


def _notice(hidden: list[str]) -> dict[str, Any]:
    return {"code": "tools_hidden", "text": f"what you may do here does not cover: {', '.join(hidden)}"}
