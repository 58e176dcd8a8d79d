"""The person of this node's owner, in the community's log: its beginning, and the removal of its devices.

Its keys are made at the first start of a home; here the community comes to know of it.

See: docs/protocol/persons.md#first-start.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from hearthnet import HearthNetError, Home
from hearthnet.bus import load_identity
from hearthnet.core import now_ms
from hearthnet.service import EventChain
from hearthnet.trust import CommunityAuthor, CommunityEvent, Identity, Roster
from hearthnet_auth.private_files import write_private
from hearthnet_auth.schemas import DeviceAddInput, DeviceInput, invalid

_log = logging.getLogger(__name__)
_REFUSALS: Final = frozenset({"unauthorized", "bad_request", "invalid_signature"})
"""Errors of a statement that does not count, now or later."""
_REPLACED: Final = "the person key of this home was replaced; it adds no devices"


async def introduce(chain: EventChain, home: Home, own: Identity) -> None:
    """Write the events that begin the owner's person and make this node its device, where they are missing.

    A start that is interrupted between them is completed by the next one. Failures are logged: a node without
    its person serves as one of earlier versions.
    """
    try:
        await carry_recovery(chain, home, own)
    except HearthNetError as error:
        _log.warning("the recovery is not in the log: %s", error)
    try:
        # A recovery that was carried just now has begun the person with this key.
        if await asyncio.to_thread(_is_needed, home, own, chain.roster):
            key = await asyncio.to_thread(load_identity, home.person_key)
            if not any(one.key == key.node_id for one in chain.roster.persons):
                await chain.append(lambda roster: (_keyed(roster, home, own, key),), _nothing_to_check)
            await chain.append(lambda roster: (_added(roster, own, key),), _nothing_to_check)
    except HearthNetError as error:
        _log.warning("the person of this node is not in the log yet: %s", error)


async def carry_recovery(
    chain: EventChain, home: Home, own: Identity, check: Callable[[], None] | None = None
) -> CommunityEvent | None:
    """Write what a recovery key has signed in this home to the log, once; return the first event.

    A start completes an interrupted one. None is returned where nothing waits. Each statement is tried,
    also after a refused one.

    Raises:
        HearthNetError: `bad_request` or `invalid_signature` if a statement does not hold; `unauthorized` if
            it does not count, as after a later recovery elsewhere.
    """
    first, refused = None, None
    waiting = await asyncio.to_thread(_waiting, home)
    for statement in waiting:
        kind, data = statement["event_type"], statement["data"]
        try:
            event, _ = await chain.append(
                lambda held, kind=kind, data=data: (  # type: ignore[misc]
                    CommunityAuthor(held, own).carry(kind, data, now_ms()),
                ),
                check or _nothing_to_check,
            )
        except HearthNetError as error:
            if error.code not in _REFUSALS:
                raise
            # The removals count without the new key, as after a recovery elsewhere at the same time.
            refused = refused or error
        else:
            first = first or event
    await asyncio.to_thread(_take_off, home, waiting)
    if refused is not None:
        raise refused
    return first


def _waiting(home: Home) -> list[dict[str, Any]]:
    """Return the statements that wait.

    Raises:
        HearthNetError: `bad_request` if their file is damaged.
    """
    with home.changing_statements() as path:
        try:
            return list(json.loads(path.read_bytes())) if path.exists() else []
        except ValueError as error:
            raise HearthNetError("bad_request", f"{path} is damaged: {error}; move it away") from error


def _take_off(home: Home, carried: Sequence[dict[str, Any]]) -> None:
    """Remove statements that are in the log; those that a command has added since wait on."""
    with home.changing_statements() as path:
        waiting = json.loads(path.read_bytes()) if path.exists() else []
        left = [one for one in waiting if one not in carried]
        if left:
            write_private(path, json.dumps(left).encode("ascii"))
        else:
            path.unlink(missing_ok=True)


def add_device(held: Roster, own: Identity, home: Home, wanted: DeviceAddInput) -> CommunityEvent:
    """Return the event that adds a page, phone or program, or the one by which this node did so.

    Raises:
        HearthNetError: `not_found` if this home has not the key of that person; `revoked` for a device that
            was removed; `invalid_signature` if the device has not signed this; `capacity_exceeded`.
    """
    person, key = _with_key(held, home, wanted.person)
    earlier = _written(held, own, "community.person.device_added", wanted.device)
    if earlier is not None and held.is_device(wanted.device, person):
        return earlier
    about = wanted.device, wanted.kind, wanted.name
    return CommunityAuthor(held, own).add_page(person, key, about, wanted.device_signature, now_ms())


def remove_device(held: Roster, own: Identity, home: Home, wanted: DeviceInput) -> CommunityEvent:
    """Return the event that removes a device of a person of this home, or the one by which this node did so.

    Raises:
        HearthNetError: `not_found` if no person whose key is here has such a device; `bad_request` for the
            last node of its person, whose keys are there; `unauthorized` if it would not count.
    """
    if not held.person_of(wanted.device):
        earlier = _written(held, own, "community.person.device_removed", wanted.device)
        if earlier is not None:
            return earlier
    person, key = _with_key(held, home, held.person_of(wanted.device))
    devices = {one.key: one.kind for one in held.devices(person)}
    if devices.pop(wanted.device) == "node" and "node" not in devices.values():
        raise invalid("device", "last", "this is the person's last node, and its keys are there; it stays")
    return CommunityAuthor(held, own).remove_device(person, key, wanted.device, wanted.reason, now_ms())


def _with_key(held: Roster, home: Home, person: str) -> tuple[str, Identity]:
    """Return `person` with its present person key, of those of the owner and of others in this home."""
    known = held.person(person)
    for path in (home.person_key, *sorted(home.persons.glob("*/person.key"))):
        if known is not None and path.exists() and load_identity(path).node_id == known.key:
            return person, load_identity(path)
    raise HearthNetError("not_found", "no person whose present person key is in this home has that device")


def _written(held: Roster, own: Identity, kind: str, device: str) -> CommunityEvent | None:
    """Return the last event of this node of that kind about a device."""
    for event in reversed(held.events):
        if event.event_type == kind and event.author == own.node_id and event.data["device"] == device:
            return event
    return None


def _is_needed(home: Home, own: Identity, held: Roster) -> bool:
    return home.person_key.exists() and held.owner(own.node_id) == own.node_id


def _keyed(held: Roster, home: Home, own: Identity, key: Identity) -> CommunityEvent:
    """Return the event that begins the person of `key`.

    Raises:
        HearthNetError: `not_found` if the recovery key is not here; `unauthorized` if its person has begun:
            another epoch would give its devices up, for a key that was replaced.
    """
    recovery = load_identity(home.recovery_key)
    if held.person(recovery.node_id) is not None:
        raise HearthNetError("unauthorized", _REPLACED)
    return CommunityAuthor(held, own).key_person(recovery, key, now_ms())


def _added(held: Roster, own: Identity, key: Identity) -> CommunityEvent:
    """Return the event that adds this node to the person of `key`, or the one that did."""
    person = next((one.person for one in held.persons if one.key == key.node_id), "")
    if not person:
        raise HearthNetError("unauthorized", _REPLACED)
    for event in held.events:
        is_own = event.event_type == "community.person.device_added" and event.author == own.node_id
        if is_own and event.data["person"] == person and not held.flaw(event):
            return event
    member = held.member(own.node_id)
    name = own.node_id if member is None else member.display_name
    return CommunityAuthor(held, own).add_node(person, key, name[:64], now_ms())


def _nothing_to_check() -> None:
    """Do nothing: no call asked for these events."""
