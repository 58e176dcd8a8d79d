"""Members by their names and ids for people: a name, a short id, a full id.

A display name is foreign text: it is shown with hidden characters as codes, and found by its shown or its
true form. An id always means its node, even if another node uses it as its name.

See: docs/protocol/identity.md#text-forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hearthnet.cli.output.suggest import ambiguous, unknown
from hearthnet.cli.output.text import one_line, shorten
from hearthnet.core import ids
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.trust.community.roster import Roster

NAME_WIDTH: Final = 40
_ID_BEHIND: Final = re.compile(r" \(ed25519:[A-Z2-7]{4}(?:-[A-Z2-7]{4}){3}\)$")


class KnownMember(NamedTuple):
    """A node and the name under which it is shown."""

    node_id: str
    display_name: str

    @property
    def name(self) -> str:
        """The display name, fit for a terminal."""
        return display_name(self.display_name)

    def __str__(self) -> str:
        from hearthnet.trust.community.names import with_id

        return with_id(self.name, self.node_id)


def roster_of(home: Home) -> Roster:
    """Return the roster in `home`, which a running node keeps up to date.

    Raises as `load_identity` and `load_roster`.
    """
    from hearthnet.bus.session.keyring import load_identity, load_roster

    return load_roster(home.roster, load_identity(home.device_key).node_id)


def members(roster: Roster) -> list[KnownMember]:
    """Return the present members of the community."""
    return [KnownMember(member.node_id, roster.shown_name(member.node_id)) for member in roster.members]


def display_name(display_name: str) -> str:
    """Return a display name for a terminal: one line of at most 40 characters, `-` if empty.

    The id behind a name that others look like is not counted, and never cut.
    """
    name = display_name.strip()
    behind = _ID_BEHIND.search(name)
    end = behind.group() if behind else ""
    return shorten(one_line(name.removesuffix(end)), NAME_WIDTH) + end or "-"


def principal_name(principal: str, roster: Roster | None = None) -> str:
    """Return a principal for people: its name in `roster`, else its short id; after the name of a guest."""
    node, _, guest = principal.partition("/")
    shown = roster.shown_name(node) if roster is not None else ""
    name = display_name(shown) if shown else ids.short_id(node)
    return f"{one_line(guest)} of {name}" if guest else name


def resolve_member(text: str, known: Sequence[KnownMember]) -> KnownMember:
    """Return the node with a full id, a short id or a unique display name `text`.

    Raises:
        HearthNetError: `not_found` if there is none, with the nearest names; `bad_request` if several have
            that name, with their ids.
    """
    from hearthnet.trust.community.names import nodes_called

    name = text.strip()
    for shown in ({one.node_id: one.display_name for one in known}, {one.node_id: one.name for one in known}):
        nodes = nodes_called(name, shown)
        if len(nodes) == 1:
            return next(one for one in known if one.node_id == nodes[0])
        if nodes:
            raise ambiguous("member", name, [ids.short_id(node) for node in nodes], alt=nodes)
    raise unknown("member", name, [one.name for one in known], "there is nobody")
