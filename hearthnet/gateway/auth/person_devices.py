"""Pages as devices of the person who signed in: their adding and removing, and what they object to.

The auth service of the node signs with the person key. The gateway calls it in the node's own name, and does
so for nothing else: consent and objection are signed by the page, and the log shows them to their person.

See: docs/protocol/gateway.md#devices, docs/protocol/persons.md#pages-and-phones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.administrator import CAN, CANNOT
from hearthnet.gateway.auth.clients import Client, Clients
from hearthnet.gateway.auth.home_persons import Limits, check_hours, clock
from hearthnet.service.community.queued_statements import as_json, queue_statements
from hearthnet.trust.community.persons import Device, Person
from hearthnet.trust.community.recovery_statements import RecoveryObjected, check_recovery_statement
from hearthnet.trust.community.roster import Roster

PageKind = Literal["browser", "phone"]
_LONGEST: Final = 64
_NEWS_SECONDS: Final = 2.0
_NO_PERSON: Final = (
    "this client is no page of a person of this home; open a link of hearthnet link or hearthnet person link"
)
_WAITS: Final = (
    "the auth service of this node is away; the objection waits in this home, and is made when it starts"
)


class PersonDevices:
    """The devices of the persons of one home, as its gateway adds and removes them."""

    def __init__(self, bus: Bus, home: Home, clients: Clients) -> None:
        self._bus = bus
        self._home = home
        self._clients = clients
        self._changed = asyncio.Event()
        bus.peer.membership.on_change(self._changed.set)

    def about(self, client: Client) -> dict[str, Any]:
        """Return the members `person` and `device` of `GET /v1/me`; none for a client without a person."""
        held = self._roster
        if not client.person:
            return {}
        devices = held.devices(client.person)
        known = next((one for one in devices if one.key == client.key), None)
        page: dict[str, Any] = {
            "id": client.person,
            "name": self._name(client),
            "is_administrator": client.is_owner,
            "devices": [_shown(one, client.key) for one in devices],
            "recoveries": self._recoveries(client),
        }
        if not client.is_owner:
            page |= {
                "administrator_can": [one._asdict() for one in CAN],
                "administrator_cannot": [one._asdict() for one in CANNOT],
            }
        if client.limits is not None:
            page["limits"] = self._limits(client)
        if known is not None:
            return {"person": page, "device": {"added": True, **_shown(known, client.key)}}
        try:
            offered: dict[str, Any] = {"offer": self.offer(client)}
        except HearthNetError as error:
            offered = {"problem": error.message}
        return {"person": page, "device": {"added": False, **offered}}

    def offer(self, client: Client) -> dict[str, str]:
        """Return the members that the page signs for `device consent`, without its `kind`.

        Raises:
            HearthNetError: `bad_request` for a client that is no page of a person; `not_found` if the
                community does not know the person.
        """
        person = self._person(client)
        return {
            "community_id": self._roster.community_id,
            "person": client.person,
            "key": person.key,
            "device": client.key,
            "name": client.name[:_LONGEST],
        }

    async def add(self, client: Client, kind: PageKind, signature: str) -> None:
        """Make the page a device of its person; its consent is `signature`.

        Raises what `offer` and the auth service raise.
        """
        offered = self.offer(client)
        fields = {name: offered[name] for name in ("person", "device", "name")}
        await self._call("community.device.add@1.0", {**fields, "kind": kind, "device_signature": signature})
        await self._news(lambda: self._roster.is_device(client.key, client.person))

    async def object(self, client: Client, recovery: str, signature: str) -> None:
        """Write the page's objection to a recovery of its person to the log, once; `signature` is the page's.

        Where the auth service is away it waits in the home, and is in the log when that service starts.

        Raises:
            HearthNetError: `bad_request` for a client that is no page of a person; `not_found` if no such
                recovery of that person is open; `unauthorized` for a page that is no device;
                `invalid_signature`; those of the auth service.
        """
        person = self._person(client)
        if all(one.recovery != recovery for one in person.recoveries):
            raise HearthNetError("not_found", "no such recovery of your person is open; it may be completed")
        if not self._roster.is_device(client.key, client.person):
            raise HearthNetError("unauthorized", "this page is no device of yours, and a device objects")
        objection = RecoveryObjected(
            person=client.person, key=client.key, recovery=recovery, signature=signature
        )
        check_recovery_statement(self._roster.community_id, objection)
        if self._has_objected(client, recovery):
            return
        await asyncio.to_thread(queue_statements, self._home, (objection,))
        is_away = False
        try:
            await self._call("community.person.recover@1.0", {})
        except HearthNetError as error:
            # The service is not there, or a call at the same time has carried this one, too.
            is_away = error.code == "not_found"
            if not is_away:
                raise
        if not await self._news(lambda: self._has_objected(client, recovery)) and is_away:
            raise HearthNetError("partition", _WAITS, details={"rule": "provider_starting"})

    async def remove(self, client: Client) -> None:
        """Take the page from the devices of its person, if it is one; raises what the auth service does."""
        if client.key and self._roster.is_device(client.key, client.person):
            await self._call("community.device.remove@1.0", {"device": client.key, "reason": "signed out"})

    async def _call(self, capability: str, fields: dict[str, Any]) -> None:
        body = {"params": {}, "input": {"client_id": ids.new_ulid(), **fields}}
        await self._bus.call(capability, body, node=self._bus.peer.node_id)

    async def _news(self, is_there: Callable[[], bool]) -> bool:
        """Wait until what the auth service wrote is here: it comes on its own way, and the answer says it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_SECONDS):
                while not is_there():
                    self._changed.clear()
                    await self._changed.wait()
        return is_there()

    def _person(self, client: Client) -> Person:
        if not client.person:
            raise HearthNetError("bad_request", _NO_PERSON)
        person = self._roster.person(client.person)
        if person is None:
            raise HearthNetError("not_found", "the community does not know this person yet; try again later")
        return person

    def _recoveries(self, client: Client) -> list[dict[str, Any]]:
        """Return the recoveries of the client's person that have begun."""
        held, now = self._roster, now_ms()
        person = held.person(client.person)
        return [as_json(held, one, now) for one in (person.recoveries if person else ())]

    def _has_objected(self, client: Client, recovery: str) -> bool:
        return any(
            one["recovery"] == recovery and client.key in one["objected"] for one in self._recoveries(client)
        )

    def _name(self, client: Client) -> str:
        if client.is_owner:
            return self._roster.person_name(client.person)
        return client.principal.rpartition("/")[2]

    def _limits(self, client: Client) -> dict[str, Any]:
        """Return the limits of a child, and whether it may ask now."""
        limits = client.limits or Limits()
        page: dict[str, Any] = {"capabilities": client.scope.capabilities, "closed": ""}
        if limits.hours is not None:
            page |= {"from": clock(limits.hours[0]), "to": clock(limits.hours[1])}
        if limits.questions is not None:
            page["questions"] = limits.questions
        try:
            check_hours(limits, now_ms())
        except HearthNetError as error:
            page["closed"] = error.message
        return page

    @property
    def _roster(self) -> Roster:
        return self._bus.peer.roster


def _shown(one: Device, own: str) -> dict[str, Any]:
    return {**msgspec.to_builtins(one), "this": one.key == own}
