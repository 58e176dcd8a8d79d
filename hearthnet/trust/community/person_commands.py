"""The acts of persons: their keys, devices and helpers, each made as one event or statement and checked.

See: docs/protocol/persons.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import (
    doors,
    event_validation,
    events,
    person_statements,
    recovery_statements,
    roster,
)
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.person_statements import DeviceAdded, DeviceKind, DeviceRemoved, Statement
from hearthnet.trust.community.persons import Person
from hearthnet.trust.community.recoveries import Recovery
from hearthnet.trust.community.recovery_statements import HelpersNamed, RecoveryBegun, RecoveryObjected
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.eventlog.chain_ends import MAX_ENDS
from hearthnet.trust.keys import Identity


class EventAuthor:
    """The author `author` of events in the community of the roster `held`."""

    def __init__(self, held: Roster, author: Identity) -> None:
        self._held = held
        self._author = author

    def _ends(self, author: str) -> tuple[str, ...]:
        """Return the last event that counts of each branch of the author's chain, the longest branch first.

        At most as many as an event may name. Those behind them change nothing, and whoever gets a removal
        need not have them first: a flood of them would keep it back.
        """
        tips = reversed(self._held.history.tips.get(author, ()))
        ends = dict.fromkeys(end.hash for tip in tips if (end := self._end(tip)) is not None)
        return tuple(ends)[:MAX_ENDS]

    def _end(self, tip: CommunityEvent) -> CommunityEvent | None:
        """Return the last event up to `tip` that counts, None if none does."""
        end: CommunityEvent | None = tip
        while end is not None and self._held.flaw(end):
            end = self._held.history.get(end.previous)
        return end

    def _act(
        self, event_type: str, content: events.Data | doors.Content | Statement, now_ms: int
    ) -> CommunityEvent:
        held, author = self._held, self._author
        event = events.write(
            author,
            held.community_id,
            event_type,
            content,
            place=held.next(author.node_id),
            now_ms=now_ms,
        )
        event_validation.validate_event(event, held.community_id)
        after = roster.merge(held, [event])
        flaw = "the author is no member" if after is held else after.flaw(event)
        if flaw:
            raise HearthNetError("unauthorized", flaw)
        return event


class PersonAuthor(EventAuthor):
    """The acts of persons, by a node of theirs or by one of their keys."""

    share_purpose: ClassVar[str] = "share of a helpers' key"
    """The purpose for which a share of a helpers' key is sealed."""

    def key_person(
        self, recovery: Identity, key: Identity, now_ms: int, stay: tuple[str, ...] = ()
    ) -> CommunityEvent:
        """Make `key` the person key of the person of `recovery`, in its next epoch.

        Of the devices of before, those in `stay` (their keys, as node ids) stay.
        """
        known = self._held.person(recovery.node_id)
        epoch = 1 if known is None else known.epoch + 1
        community = self._held.community_id
        content = person_statements.keyed(community, recovery, epoch, key.node_id, stay)
        return self._act(person_statements.KEYED, content, now_ms)

    def add_node(self, person: str, key: Identity, name: str, now_ms: int) -> CommunityEvent:
        """Add this node as a device of `person`, whose person key is `key`."""
        own, community = self._author, self._held.community_id
        offered = person_statements.offered_device(community, person, key, own.node_id, "node", name)
        return self.add_device(person_statements.consented(community, offered, own), now_ms)

    def add_device(self, signed: DeviceAdded, now_ms: int) -> CommunityEvent:
        """Carry the statement by which a device is added, signed by person key and device.

        Raises:
            HearthNetError: `bad_request` or `invalid_signature` if it does not hold; `capacity_exceeded` if
                the person has as many devices as it can have; `unauthorized` if it would not count.
        """
        person = self._held.person(signed.person)
        if person is not None and len(person.devices) >= person_statements.MAX_DEVICES:
            raise HearthNetError(
                "capacity_exceeded",
                f"a person has at most {person_statements.MAX_DEVICES} devices; remove one first",
            )
        return self._act(person_statements.DEVICE_ADDED, signed, now_ms)

    def add_page(
        self, person: str, key: Identity, about: tuple[str, DeviceKind, str], consent: str, now_ms: int
    ) -> CommunityEvent:
        """Add a page, phone or program as a device of `person`, whose person key is `key`.

        `about` has the device, its kind and its name, and `consent` is the device's signature.

        Raises:
            HearthNetError: `revoked` for a device that was removed; else as `add_device`.
        """
        if self._held.is_removed_device(about[0]):
            raise HearthNetError("revoked", person_statements.REMOVED_DEVICE)
        offered = person_statements.offered_device(self._held.community_id, person, key, *about)
        return self.add_device(msgspec.structs.replace(offered, device_signature=consent), now_ms)

    def remove_device(
        self, person: str, signer: Identity, device: str, reason: str, now_ms: int
    ) -> CommunityEvent:
        """Remove a device of `person`; its earlier events keep their effect.

        `signer` is the person key or the recovery key. A node is then out of the community, too.

        Raises:
            HearthNetError: `not_found` if it is no device of the person; `unauthorized`.
        """
        if not self._held.is_device(device, person):
            raise HearthNetError("not_found", f"{device} is no device of that person")
        heads = self._ends(device)[: person_statements.MAX_HEADS]
        community = self._held.community_id
        content = person_statements.device_removed(community, person, signer, device, heads, reason)
        return self._act(person_statements.DEVICE_REMOVED, content, now_ms)

    def carry(self, event_type: str, data: dict[str, Any], now_ms: int) -> CommunityEvent:
        """Carry a signed statement of a person, or return the event that does so already.

        Raises:
            HearthNetError: `bad_request` or `invalid_signature` if it does not hold; `unauthorized` if it
                would not count.
        """
        for event in self._held.events:
            if event.event_type == event_type and event.data == data:
                return event
        try:
            content = msgspec.convert(data, recovery_statements.STATEMENTS[event_type])
        except (KeyError, msgspec.ValidationError) as error:
            raise HearthNetError("bad_request", f"this is no statement of a person: {error}") from error
        return self._act(event_type, content, now_ms)

    def recovered(
        self, key: Identity, lost: Collection[str], back: Collection[str] = ()
    ) -> tuple[Statement, ...]:
        """Return the statements by which the author, a recovery key, replaces the person key by `key`.

        The devices in `lost` are removed; of the former ones those in `back` are there again, and the removal
        of the others is repeated, since former devices count by the present keys only.

        Raises:
            HearthNetError: `not_found` if no person of this community has that recovery key.
        """
        recovery, community = self._author, self._held.community_id
        person = self._person(recovery.node_id)
        stay, gone = self._parted(person, lost, back)
        keyed = person_statements.keyed(community, recovery, person.epoch + 1, key.node_id, tuple(stay))
        return keyed, *self._removals(person, recovery, gone)

    def _parted(
        self, person: Person, lost: Collection[str], back: Collection[str]
    ) -> tuple[list[str], list[str]]:
        """Return the devices that stay in a new epoch, and those that are removed or stay so."""
        present = [one.key for one in self._held.devices(person.person)]
        former = [one.key for one in person.former if one.key not in present]
        stay = [one for one in present if one not in lost] + [one for one in former if one in back]
        gone = [one for one in present if one in lost] + [one for one in former if one not in back]
        return stay, gone

    def _removals(self, person: Person, signer: Identity, gone: Sequence[str]) -> Iterator[DeviceRemoved]:
        for one in gone:
            heads = self._ends(one)[: person_statements.MAX_HEADS]
            community = self._held.community_id
            yield person_statements.device_removed(community, person.person, signer, one, heads)

    def named_helpers(
        self, key: str, wait_seconds: int, witnesses: Collection[str], *, above: int = 0
    ) -> HelpersNamed:
        """Return the statement of the author, a recovery key, that helpers hold `key` from now on.

        Its number is above the present one and `above`, which is that of the last one that was handed out.

        Raises:
            HearthNetError: `not_found` if no person of this community has that recovery key.
        """
        person = self._person(self._author.node_id)
        return recovery_statements.helpers_named(
            self._held.community_id,
            self._author,
            key,
            number=1 + max(above, 0 if person.helpers is None else person.helpers.number),
            epoch=person.epoch,
            wait_seconds=wait_seconds,
            witnesses=tuple(witnesses),
        )

    def begun_recovery(
        self, person: str, key: Identity, lost: Collection[str]
    ) -> tuple[RecoveryBegun, tuple[DeviceRemoved, ...]]:
        """Return the announcement by the author, the helpers' key of `person`, that `key` is to be its key.

        And, for the time after, the removal by `key` of the devices in `lost`, and of former ones again.

        Raises:
            HearthNetError: `not_found` if there is no such person; `unauthorized` if the helpers are others.
        """
        found = self._person(person)
        if found.helpers is None or found.helpers.key != self._author.node_id:
            raise HearthNetError("unauthorized", "these shares are not those of the person's present helpers")
        stay, gone = self._parted(found, lost, ())
        begun = recovery_statements.recovery_begun(
            self._held.community_id,
            person,
            self._author,
            key.node_id,
            base=found.base,
            epoch=found.epoch + 1,
            stay=tuple(stay),
        )
        return begun, tuple(self._removals(found, key, gone))

    def witness(self, recovery: str, now_ms: int) -> CommunityEvent:
        """Sign that the waiting time of a recovery has passed without an objection.

        The author has measured it. It signs for one recovery of a person and epoch only.

        Raises:
            HearthNetError: `not_found` if no such recovery is open; `unauthorized` if the author is no
                witness of it or has signed for another one, or a device of the person objects.
        """
        open_ = self._recovery(recovery)
        own, begun = self._author.node_id, open_.begun
        if own not in open_.witnesses:
            raise HearthNetError("unauthorized", "this node is no witness of that recovery")
        if open_.objected:
            raise HearthNetError("unauthorized", "a device of the person objects to that recovery")
        for other in self._person(begun.person).recoveries:
            if other.begun.epoch == begun.epoch and own in other.witnessed and other.recovery != recovery:
                raise HearthNetError("unauthorized", "this node has signed for another recovery")
        content = recovery_statements.witnessed(self._held.community_id, begun.person, recovery, self._author)
        return self._act(recovery_statements.WITNESSED, content, now_ms)

    def objection(self, recovery: str) -> RecoveryObjected:
        """Return the objection of the author to a recovery of its person.

        Raises:
            HearthNetError: `not_found` if no such recovery is open; `unauthorized` if the author is no
                device of that person.
        """
        begun = self._recovery(recovery).begun
        if not self._held.is_device(self._author.node_id, begun.person):
            raise HearthNetError("unauthorized", "a device of the person objects, and this is none")
        return recovery_statements.objected(self._held.community_id, begun.person, recovery, self._author)

    def _person(self, person: str) -> Person:
        found = self._held.person(person)
        if found is None:
            raise HearthNetError("not_found", f"no person in {self._held.name} has this recovery key")
        return found

    def _recovery(self, recovery: str) -> Recovery:
        for person in self._held.persons:
            for one in person.recoveries:
                if one.recovery == recovery:
                    return one
        raise HearthNetError("not_found", "there is no such recovery, or it is completed or has ended")
