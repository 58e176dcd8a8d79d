"""Calls to a market in tests: short to write, with a new client id each."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint
from tests.helpers.mesh import Mesh


def body(**given: Any) -> dict[str, Any]:
    """A body with that input."""
    return {"params": {}, "input": given}


async def do(bus: Bus, verb: str, **given: Any) -> dict[str, Any]:
    """The output of `market.<verb>` with that input, and a client id of its own where it takes one."""
    if verb not in ("list", "search", "export"):
        given = {"client_id": ids.new_ulid(), **given}
    return dict((await bus.call(f"market.{verb}@1.0", body(**given))).output)


async def post(bus: Bus, title: str = "Water filter", **given: Any) -> str:
    """The id of a new post."""
    made = await do(bus, "post", **{"category": "offer", "title": title, "body": "To lend.", **given})
    return str(made["event_id"])


async def refused(bus: Bus, verb: str, **given: Any) -> HearthNetError:
    """Why `market.<verb>` is refused."""
    try:
        await do(bus, verb, **given)
    except HearthNetError as error:
        return error
    raise AssertionError(f"market.{verb} was not refused")


async def found(bus: Bus, query: str) -> list[str]:
    """The titles that a search finds, best first."""
    return [one["title"] for one in (await do(bus, "search", query=query))["posts"]]


async def listed(bus: Bus) -> dict[str, dict[str, Any]]:
    """The current posts by their ids."""
    return {one["event_id"]: one for one in (await do(bus, "list", limit=500))["posts"]}


class Guest:
    """A guest of the founder's gateway: its calls are under a session token, approved by the gateway.

    Without a name it is the founder, who lent the token and approves.
    """

    def __init__(self, mesh: Mesh, bus: Bus, name: str = "anna") -> None:
        self._mesh = mesh
        self._bus = bus
        self.principal = f"{mesh.identity.node_id}/{name}"
        verbs = ("post", "update", "expire", "hide", "unhide", "delete", "export", "list")
        self.token = mint(
            mesh.identity,
            subject=mesh.identity.node_id,
            audience=bus.peer.community,
            scope=Scope(tuple(f"market.{verb}@1.0" for verb in verbs)),
            now_ms=now_ms(),
            ttl_seconds=3600,
            principal=name,
        )

    async def do(self, verb: str, **given: Any) -> dict[str, Any]:
        """As `do`, of the guest."""
        if verb in ("list", "export"):
            reply = await self._bus.call(f"market.{verb}@1.0", body(**given), token=self.token)
            return dict(reply.output)
        request = body(**{"client_id": ids.new_ulid(), **given})
        reply = await self._bus.call(
            f"market.{verb}@1.0", request, token=self.token, approval=self._approval(verb, request)
        )
        return dict(reply.output)

    def _approval(self, verb: str, request: dict[str, Any]) -> Approval:
        node = self._mesh.identity.node_id
        now = now_ms()
        unsigned = Approval(
            id=ids.new_ulid(),
            community=self._bus.peer.community,
            approver=node,
            via=msgspec.UNSET if self.principal == f"{node}/" else "gateway",
            actor=node,
            provider=node,
            capability=f"market.{verb}@1.0",
            arguments_digest=digest(request),
            idempotency_key=request["input"]["client_id"],
            run="",
            tool_call_id="",
            time=now,
            expires=now + 60_000,
        )
        return sign_approval(self._mesh.identity, unsigned)
