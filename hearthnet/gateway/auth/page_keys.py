"""Whose the guests of a home are, and the keys of their pages.

A gateway names the key of a page in its tokens, and providers take the page for the person whose device that
key is, at the word of the person's own node (docs/protocol/persons.md#ownership). Anybody can read such a key
in the roster, and one browser may have been another person's before.
"""

from __future__ import annotations

from typing import Final

from hearthnet.bus.session.session import Session
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.home_persons import HomePersons
from hearthnet.trust.authorization.token import OWNER

ANOTHER_PERSON: Final = "another_person"
"""The rule of the error for a page with the key of another person's device."""


class PageKeys:
    """The persons behind the guests of the node `peer`."""

    def __init__(self, peer: Session, persons: HomePersons) -> None:
        self._peer = peer
        self._persons = persons

    def person_at(self, principal: str) -> str:
        """Return the person who is this guest of the node, empty where it is no person."""
        if principal != OWNER:
            somebody = self._persons.find(principal)
            return "" if somebody is None else somebody.person
        owner = self._peer.roster.owner(self._peer.node_id)
        return "" if owner == self._peer.node_id else owner

    def check(self, principal: str, key: str) -> None:
        """Check that the key of a page of this guest is no device of another person.

        Raises:
            HearthNetError: `unauthorized` (`another_person`) if it is.
        """
        holder = self._peer.roster.person_of(key)
        if holder and holder != self.person_at(principal):
            raise HearthNetError(
                "unauthorized",
                "the key of this browser is a device of another person; open the link with another key",
                rule=ANOTHER_PERSON,
            )
