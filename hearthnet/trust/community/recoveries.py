"""The recoveries by helpers in a community's events: which have begun, and which are completed.

The roster is a function of events and knows no time. So a recovery is not completed by the waiting time of
whoever reads it: an objection in time and one that a thief makes later could not be told apart, and each
node would decide for itself. It is completed by the words of witnesses, who measure the time by their own
clocks.

    begun --> witnessed by three of those named --> completed, as an epoch of the person
      |
      +--> ended: the recovery key has signed since, other helpers are named, or its epoch is there

See: docs/protocol/persons.md#helpers, docs/decisions/0208-recovery-by-helpers.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

import msgspec

from hearthnet.core import ids
from hearthnet.trust.community.person_statements import PersonKeyed
from hearthnet.trust.community.recovery_statements import (
    REQUIRED_WITNESSES,
    Content,
    HelpersNamed,
    RecoveryBegun,
    RecoveryObjected,
    RecoveryWitnessed,
    recovery_id,
)


class Recovery(msgspec.Struct, frozen=True):
    """A recovery that has begun and may be completed: its announcement, and what nodes say of it.

    `witnesses` are the nodes that may witness it. `objected` are the devices of the person that object; no
    witness signs then.
    """

    recovery: str
    begun: RecoveryBegun
    wait_seconds: int
    witnesses: tuple[str, ...]
    witnessed: tuple[str, ...]
    objected: tuple[str, ...]


class PersonRecoveries:
    """What statements about the recoveries of one person come to, beside the epochs of its recovery key."""

    def __init__(
        self, community: str, epochs: Mapping[int, PersonKeyed], contents: Iterable[Content]
    ) -> None:
        self._epochs = sorted(epochs)
        self._named: dict[int, HelpersNamed] = {}
        self._begun: dict[str, RecoveryBegun] = {}
        self._witnessed: dict[str, set[str]] = {}
        self._objected: dict[str, set[str]] = {}
        self._community = community
        for content in contents:
            match content:
                case HelpersNamed():
                    known = self._named.get(content.number, content)
                    self._named[content.number] = min(content, known, key=_tie)
                case RecoveryBegun():
                    self._begun[recovery_id(community, content)] = content
                case RecoveryWitnessed():
                    self._witnessed.setdefault(content.recovery, set()).add(content.key)
                case _:
                    self._objected.setdefault(content.recovery, set()).add(content.key)

    @property
    def helpers(self) -> HelpersNamed | None:
        """The statement that names the present helpers."""
        return self._named[max(self._named)] if self._named else None

    @cached_property
    def _of_key(self) -> dict[str, tuple[HelpersNamed, int]]:
        """For each helpers' key its last statement, and the last epoch that it may begin (-1: any)."""
        found: dict[str, tuple[HelpersNamed, int]] = {}
        until = -1
        for number in sorted(self._named, reverse=True):
            named = self._named[number]
            found.setdefault(named.key, (named, until))
            until = named.epoch if until < 0 else min(until, named.epoch)
        return found

    @cached_property
    def completed(self) -> dict[int, PersonKeyed]:
        """The epochs of completed recoveries, none of which is an epoch of the recovery key."""
        found: dict[int, PersonKeyed] = {}
        for recovery, begun in self._begun.items():
            if self._begun_flaw(begun) or len(self._words(recovery, begun)) < REQUIRED_WITNESSES:
                continue
            keyed = PersonKeyed(
                person=begun.person, epoch=begun.epoch, key=begun.key, devices=begun.devices, signature=""
            )
            found[begun.epoch] = min(keyed, found.get(begun.epoch, keyed), key=_keyed_tie)
        return found

    def open(self, devices: Collection[str]) -> tuple[Recovery, ...]:
        """Return the recoveries that witnesses may complete; `devices` are the person's now."""
        helpers, present = self.helpers, max((*self._epochs, *self.completed), default=0)
        found = []
        for recovery, begun in sorted(self._begun.items()):
            if helpers is None or begun.helpers != helpers.key or begun.epoch <= present:
                continue
            if self._begun_flaw(begun):
                continue
            witnesses = tuple(map(ids.from_token_form, helpers.witnesses))
            objected = sorted(self._objected.get(recovery, set()).intersection(devices))
            words = tuple(sorted(self._words(recovery, begun)))
            found.append(Recovery(recovery, begun, helpers.wait_seconds, witnesses, words, tuple(objected)))
        return tuple(found)

    def flaw(self, content: Content) -> str:
        """Return the reason for which a statement does not count; empty if it does."""
        match content:
            case HelpersNamed():
                counts = _tie(self._named[content.number]) == _tie(content)
                return "" if counts else "that number names other helpers of the person"
            case RecoveryBegun():
                return self._begun_flaw(content)
            case _:
                return self._word_flaw(content)

    def _word_flaw(self, content: RecoveryWitnessed | RecoveryObjected) -> str:
        begun = self._begun.get(content.recovery)
        if begun is None or self._begun_flaw(begun):
            return "there is no such recovery that counts"
        is_witness = content.key in self._words(content.recovery, begun)
        if isinstance(content, RecoveryWitnessed) and not is_witness:
            return "its author is no witness of that recovery"
        return ""

    def _begun_flaw(self, begun: RecoveryBegun) -> str:
        named, until = self._of_key.get(begun.helpers, (None, -1))
        if named is None:
            return "the key that signed it is none of the person's helpers"
        if 0 <= until < begun.epoch:
            return "the person has named other helpers since"
        place = bisect_right(self._epochs, begun.base)
        if not place or self._epochs[place - 1] != begun.base:
            return "it builds on an epoch that the recovery key has not signed"
        if place < len(self._epochs) and self._epochs[place] <= begun.epoch:
            return "the recovery key has signed since"
        return ""

    def _words(self, recovery: str, begun: RecoveryBegun) -> set[str]:
        """Return the witnesses named for the key of `begun`, which counts, that have signed."""
        named, _ = self._of_key[begun.helpers]
        signed = self._witnessed.get(recovery, set())
        return signed.intersection(map(ids.from_token_form, named.witnesses))


def _tie(content: HelpersNamed) -> tuple[str, int, int, tuple[str, ...]]:
    """Return what decides between statements with one number, of which the smallest counts."""
    return content.key, content.epoch, content.wait_seconds, content.witnesses


def _keyed_tie(content: PersonKeyed) -> tuple[str, tuple[str, ...]]:
    return content.key, content.devices
