"""The doors of a community: the servers at which the homes' own servers meet.

A trusted member opens a door and closes it by events of its own; others who are trusted may close it, too, as
where its house has burned down. Every home links to the open doors, and the doors link to each other.

See: docs/protocol/community.md#doors, docs/decisions/0221.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError

OPENED: Final = "community.door.opened"
CLOSED: Final = "community.door.closed"
MAX_DOORS: Final = 16
"""Maximum of open doors, each of which every home has in its server's configuration."""

# Written into the configurations of all homes' servers, where any other text could open a block of its own.
_HOST: Final = r"([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
Place = Annotated[str, msgspec.Meta(pattern=rf"^{_HOST}:[1-9][0-9]{{0,4}}\Z")]


class DoorOpened(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A door of the author's, which replaces the one that it had.

    Homes link to `address` and other doors to `route`, both `host:port`; `key` is that of the door's
    certificate, as an id.
    """

    address: Place
    route: Place
    key: str


class DoorClosed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of the door of the node `node_id`."""

    node_id: str


Content = DoorOpened | DoorClosed
CONTENTS: Final[dict[str, type[Content]]] = {OPENED: DoorOpened, CLOSED: DoorClosed}


class Door(msgspec.Struct, frozen=True):
    """An open door of the member `node_id`; `opened_at` is the time by its clock."""

    node_id: str
    address: str
    route: str
    key: str
    opened_at: str


def check_door(content: Content) -> None:
    """Check what an event of a door says by itself.

    Raises:
        HearthNetError: `bad_request` for a key or node id that is none, or a port that is none.
    """
    if isinstance(content, DoorClosed):
        ids.public_key(content.node_id)
        return
    ids.public_key(content.key)
    if any(int(place.rpartition(":")[2]) > 65_535 for place in (content.address, content.route)):
        raise HearthNetError("bad_request", "a port is at most 65535")


class OpenDoors:
    """The doors that are open while events are replayed; `by_node` has them in the order of opening."""

    def __init__(self) -> None:
        self.by_node: dict[str, Door] = {}

    def open(self, door: Door, *, is_trusted: bool) -> str:
        """Open `door` of a member, or return why it does not count."""
        if not is_trusted:
            return "to open a door takes level trusted, which its author did not have"
        if door.node_id not in self.by_node and len(self.by_node) >= MAX_DOORS:
            return f"the community had {MAX_DOORS} open doors; close some"
        self.by_node[door.node_id] = door
        return ""

    def close(self, node: str, *, may_close: bool) -> str:
        """Close the door of `node`, or return why that does not count."""
        if not may_close:
            return "a door is closed by its own node or by a trusted member"
        if self.by_node.pop(node, None) is None:
            return "there is no such open door"
        return ""

    def drop(self, node: str) -> None:
        """Forget the door of a node that is trusted no longer."""
        self.by_node.pop(node, None)
