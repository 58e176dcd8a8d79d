"""The persons of a community and their devices, as the statements in its events say.

Statements prove themselves, so neither the standing of the author nor the place in the order decides about
most of them: which epochs a person has, and what counts of what its keys signed, follows from the set of all.
The one exception is whose a node is. A thief of the node's key must not claim it afterwards, so this is read
from the node's own chain.

See: docs/protocol/persons.md, docs/decisions/0203-persons.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from hearthnet.core import ids
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.history import History
from hearthnet.trust.community.person_statements import (
    MAX_DEVICES,
    DeviceAdded,
    DeviceKind,
    DeviceRemoved,
    PersonKeyed,
)
from hearthnet.trust.community.recoveries import PersonRecoveries, Recovery
from hearthnet.trust.community.recovery_statements import (
    Content,
    HelpersNamed,
    RecoveryBegun,
    RecoveryObjected,
    RecoveryWitnessed,
)

_RECOVERY: Final = 2**53
"""The rank of what the recovery key signs, above that of every epoch."""
_NO_KEY: Final = "the key that signed it is none of that person's"
MAX_FORMER: Final = 24
"""Former devices that never were a member's node: so many of the first and of the last are listed.

A recovery signs each of them out. A thief of the person key adds and removes devices after the owner's.
"""
_SEVERAL: Final = "several"
"""Stands for a person where there are claims of more than one; no key has this form."""


class Device(msgspec.Struct, frozen=True):
    """A device of a person: its key, its name as the person wrote it, and when it was added."""

    key: str
    kind: DeviceKind
    name: str
    added_at: str


class Person(msgspec.Struct, frozen=True):
    """A person: its present person key and epoch, its devices, and those that it had, in order of adding.

    Of those that it had these are all nodes that were members, and the first and last `MAX_FORMER` others.
    `base` is the last epoch that the recovery key has signed, `helpers` names the key that may
    recover the person, and `recoveries` are those that have begun and are not completed.
    """

    person: str
    epoch: int
    key: str
    devices: tuple[Device, ...] = ()
    former: tuple[Device, ...] = ()
    base: int = 0
    helpers: HelpersNamed | None = None
    recoveries: tuple[Recovery, ...] = ()


class _Claim(NamedTuple):
    """A device that a key of the person has added by `event`."""

    event: CommunityEvent
    content: DeviceAdded


class PersonStatements:
    """The statements in `history`, and what follows from them whatever their order and their authors.

    Every member writes them, so each answer is found once, in time that grows with their number.
    """

    def __init__(self, history: History) -> None:
        self._community = history.community_id
        self._previous = {event.hash: event.previous for event in history.events}
        self._epochs: dict[str, dict[int, PersonKeyed]] = {}
        self._claims: dict[str, list[_Claim]] = {}
        self._bases: dict[str, int] = {}
        self._removals: dict[tuple[str, str], list[DeviceRemoved]] = {}
        self._first_claims: dict[str, list[_Claim]] = {}
        self._removal_ranks: dict[tuple[str, str], int] = {}
        about_recoveries: dict[str, list[Content]] = {}
        for event in history.events:
            if event.hash in history.leaps:
                continue
            match event.content:
                case PersonKeyed() as content:
                    held = self._epochs.setdefault(content.person, {})
                    held[content.epoch] = min(content, held.get(content.epoch, content), key=_tie)
                case DeviceAdded() as content:
                    self._claims.setdefault(content.device, []).append(_Claim(event, content))
                case DeviceRemoved() as content:
                    self._removals.setdefault((content.person, content.device), []).append(content)
                case HelpersNamed() | RecoveryBegun() | RecoveryWitnessed() | RecoveryObjected() as content:
                    about_recoveries.setdefault(content.person, []).append(content)
                case _:
                    pass
        self._recoveries: dict[str, PersonRecoveries] = {}
        for person, contents in about_recoveries.items():
            self._add_recoveries(person, contents)

    def _add_recoveries(self, person: str, contents: list[Content]) -> None:
        """Find what `contents` come to, and add the epochs of completed recoveries to the person's."""
        epochs = self._epochs.get(person, {})
        found = self._recoveries[person] = PersonRecoveries(self._community, epochs, contents)
        self._bases[person] = max(epochs, default=0)
        epochs.update(found.completed)

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        """The epoch of each key of each person; that of a key that comes again is its first."""
        found: dict[tuple[str, str], int] = {}
        for person, epochs in self._epochs.items():
            for epoch in sorted(epochs, reverse=True):
                found[person, epochs[epoch].key] = epoch
            found[person, person] = _RECOVERY
        return found

    @cached_property
    def _naming(self) -> dict[tuple[str, str], set[int]]:
        """The epochs of a person that name a device, which is in token form, among those that stay."""
        found: dict[tuple[str, str], set[int]] = {}
        for person, epochs in self._epochs.items():
            for epoch, one in epochs.items():
                for token in one.devices:
                    found.setdefault((person, token), set()).add(epoch)
        return found

    @cached_property
    def _latest(self) -> dict[str, list[int]]:
        """The epochs of each person, the latest first."""
        return {person: sorted(epochs, reverse=True) for person, epochs in self._epochs.items()}

    def people(self) -> list[Person]:
        """Return the persons, without their devices."""
        last = ((person, max(epochs)) for person, epochs in self._epochs.items())
        return [
            Person(person, epoch, self._epochs[person][epoch].key, base=self._bases.get(person, epoch))
            for person, epoch in last
        ]

    def with_recoveries(self, person: Person) -> Person:
        """Return `person`, whose devices are known, with its helpers and open recoveries."""
        found = self._recoveries.get(person.person)
        if found is None:
            return person
        recoveries = found.open({one.key for one in person.devices})
        return msgspec.structs.replace(person, helpers=found.helpers, recoveries=recoveries)

    def flaw(self, content: PersonKeyed | Content) -> str:
        """Return the reason for which a statement about keys does not count; empty if it does."""
        if not isinstance(content, PersonKeyed):
            return self._recoveries[content.person].flaw(content)
        counts = _tie(self._epochs[content.person][content.epoch]) == _tie(content)
        return "" if counts else "that epoch of the person has another key"

    def claims(self, device: str) -> list[_Claim]:
        """Return what keys of persons have signed about `device`, in the order of the events."""
        found = self._claims.get(device, ())
        return [one for one in found if (one.content.person, one.content.key) in self._ranks]

    def is_signed(self, content: DeviceAdded) -> bool:
        """Return whether the key that signed `content` is one of the person's person keys."""
        return (content.person, content.key) in self._ranks

    def stays(self, content: DeviceAdded) -> bool:
        """Return whether each later epoch than that of its key keeps the device."""
        person, rank = content.person, self._ranks[content.person, content.key]
        naming = self._naming.get((person, ids.token_form(content.device)), set())
        # It ends at the first epoch that leaves the device out: after as many steps as epochs name it.
        return next((epoch for epoch in self._latest[person] if epoch not in naming), 0) <= rank

    def removal_flaw(self, content: DeviceRemoved) -> str:
        """Return the reason for which a removal does not count; empty if it does."""
        rank = self._ranks.get((content.person, content.key))
        if rank is None:
            return _NO_KEY
        if self._is_kept_after(content, rank):
            return "a later epoch of the person keeps that device"
        if rank < self._removal_rank(content.person, content.device):
            return "a later key of the person has removed that device"
        first = {one.content.person for one in self._first_of(content.device)}
        return "" if content.person in first else "the device is not that person's"

    def has_added_itself(self, node: str, person: str) -> bool:
        """Return whether `node` was first of this person, by its own event."""
        first = self._first_of(node)
        return any(one.content.person == person and one.content.kind == "node" for one in first)

    def _is_kept_after(self, content: DeviceRemoved, rank: int) -> bool:
        naming = self._naming.get((content.person, ids.token_form(content.device)), ())
        return max(naming, default=0) > rank

    def _removal_rank(self, person: str, device: str) -> int:
        """Return the highest rank of a key whose removal of `device` counts; 0 if there is none."""
        best = self._removal_ranks.get((person, device))
        if best is None:
            best = 0
            for one in self._removals.get((person, device), ()):
                rank = self._ranks.get((person, one.key), 0)
                if rank > best and not self._is_kept_after(one, rank):
                    best = rank
            self._removal_ranks[person, device] = best
        return best

    def is_removed(self, person: str, device: str) -> bool:
        """Return whether a removal of `device` by its person counts."""
        return self._removal_rank(person, device) > 0

    def is_former(self, person: str, device: str) -> bool:
        """Return whether the recovery key or the present person key has removed `device`.

        A key of an earlier epoch may be a thief's, who could add nodes of others and remove them.
        """
        return self._removal_rank(person, device) >= max(self._epochs[person])

    def _first_of(self, device: str) -> list[_Claim]:
        found = self._first_claims.get(device)
        if found is None:
            found = self._first_claims[device] = self._first(self.claims(device))
        return found

    def _first(self, claims: list[_Claim]) -> list[_Claim]:
        """Return those of `claims` to one device that build on none of another person.

        Only those of the node itself, if it has made any.
        """
        claims = [one for one in claims if one.content.kind == "node"] or claims
        if not claims or claims[0].content.kind != "node":
            return [one for one in claims if one.content.person == claims[0].content.person]
        persons = {one.event.hash: one.content.person for one in claims}
        seen = {"": ""}
        return [
            one for one in claims if self._claimed_by(one.event, persons, seen) in ("", one.content.person)
        ]

    def _claimed_by(self, event: CommunityEvent, persons: Mapping[str, str], seen: dict[str, str]) -> str:
        """Return the person of all claims below `event` in its chain; `_SEVERAL`, or empty if there are none.

        `persons` are those of the claims. `seen` has the result for each event and all below it, so that
        many claims in one chain take one walk.
        """
        path, below = list[str](), event.previous
        while below not in seen:
            path.append(below)
            below = self._previous.get(below, "")
        person = seen[below]
        for hash_ in reversed(path):
            own = persons.get(hash_, person)
            person = own if person in ("", own) else _SEVERAL
            seen[hash_] = person
        return person

    def owned(
        self, device: str, nodes: Collection[str], void: Mapping[str, str]
    ) -> tuple[list[_Claim], dict[str, str]]:
        """Return the claims of the one person whose `device` is, and the flaws of the others.

        `nodes` are all that ever were members; the claims in `void` do not count.
        """
        flaws: dict[str, str] = {}
        counting = []
        for one in self._claims[device]:
            if one.event.hash in void:
                continue
            if not self.is_signed(one.content):
                flaws[one.event.hash] = _NO_KEY
            elif one.content.kind != "node" and device in nodes:
                flaws[one.event.hash] = "that key is a node's, which is added by its own event"
            else:
                counting.append(one)
        first = self._first(counting)
        if len({one.content.person for one in first}) > 1:
            first = []
        mine = {one.content.person for one in first}
        for one in counting:
            if one.content.person not in mine:
                flaws[one.event.hash] = (
                    "the device is another person's" if mine else "two persons claim the device"
                )
        return [one for one in counting if one.content.person in mine], flaws

    def devices(self) -> Collection[str]:
        """Return the keys of all devices in statements."""
        return self._claims.keys()


class Persons:
    """The persons of a community as of one state of its members.

    `nodes` are all that ever were members, `revoked` those that are none any more; `void` are the events that
    do not count. `flaws` has the reason for each event about devices that does not count either. `ended` are
    the keys of pages, phones and programs that were devices and are none any more.
    """

    def __init__(
        self,
        statements: PersonStatements,
        nodes: Collection[str],
        revoked: Collection[str],
        void: Mapping[str, str],
    ) -> None:
        self.flaws: dict[str, str] = {}
        self.owners: dict[str, str] = {}
        self.devices: dict[str, str] = {}
        self.ended: set[str] = set()
        current: dict[str, list[_Claim]] = {}
        former: dict[str, list[_Claim]] = {}
        for device in statements.devices():
            claims, flaws = statements.owned(device, nodes, void)
            self.flaws.update(flaws)
            for one in [claim for claim in claims if statements.stays(claim.content)][:1] or claims[:1]:
                person, is_staying = one.content.person, statements.stays(one.content)
                is_present = is_staying and not statements.is_removed(person, device)
                if is_present and device not in revoked:
                    current.setdefault(person, []).append(one)
                    continue
                if one.content.kind != "node":
                    self.ended.add(device)
                if is_present or statements.is_former(person, device):
                    former.setdefault(person, []).append(one)
        self._nodes = nodes
        people = (self._person(one, current, former) for one in statements.people())
        self.people = {one.person: statements.with_recoveries(one) for one in people}

    def _person(
        self, bare: Person, current: dict[str, list[_Claim]], former: dict[str, list[_Claim]]
    ) -> Person:
        has, had = _ordered(current.get(bare.person, ())), _ordered(former.get(bare.person, ()))
        others = [one for one in had if one.content.device not in self._nodes]
        dropped = {one.event.hash for one in others[MAX_FORMER:-MAX_FORMER]}
        had = [one for one in had if one.event.hash not in dropped]
        self.owners.update(
            (one.content.device, bare.person) for one in (*has, *had) if one.content.kind == "node"
        )
        self.devices.update((one.content.device, bare.person) for one in has[:MAX_DEVICES])
        return msgspec.structs.replace(
            bare, devices=tuple(map(_device, has[:MAX_DEVICES])), former=tuple(map(_device, had))
        )


def _ordered(claims: Collection[_Claim]) -> list[_Claim]:
    return sorted(claims, key=lambda one: one.event.order)


def _device(claim: _Claim) -> Device:
    content = claim.content
    return Device(content.device, content.kind, content.name, claim.event.wall_clock)


def _tie(content: PersonKeyed) -> tuple[str, tuple[str, ...]]:
    """Return what decides between statements about one epoch, of which the smallest counts."""
    return content.key, content.devices
