"""The present person key, fetched from another node.

A recovery replaces the person key at one node. The others need the new one first when they add or remove a
device, and get it from a node that has it, sealed for them.

See: docs/protocol/persons.md#recovery.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.trust.community.persons import Person
    from hearthnet.trust.keys import Identity

_CALL: Final = "community.device.key@1.0"


def renew(home: Home) -> None:
    """Replace the person key in `home` if it is not the present one and another node hands that over.

    The node in `home` has to run. If no other node answers, the old key stays, and the command that needs it
    is refused.
    """
    from hearthnet.bus.session.keyring import load_identity

    roster, own = roster_of(home), load_identity(home.device_key)
    person = roster.person(roster.person_of(own.node_id))
    if person is None or not home.person_key.exists():
        return
    if load_identity(home.person_key).node_id == person.key:
        return
    key = on_bus(home, lambda bus: _fetched(bus, own, person))
    if key is not None:
        write_whole(home.person_key, key.to_text().encode("ascii"), durable=True)


async def _fetched(bus: Bus, own: Identity, person: Person) -> Identity | None:
    """Return the present key of `person` from the first of its other nodes that has it."""
    from hearthnet.trust.community.invites import InviteText
    from hearthnet.trust.keys import Identity

    for one in person.devices:
        if one.kind != "node" or one.key == own.node_id:
            continue
        with contextlib.suppress(HearthNetError):
            reply = await bus.call(_CALL, {"params": {}, "input": {}}, node=one.key)
            sealed = ids.unb64(str(reply.output["sealed"]))
            data = own.open_from(one.key, InviteText.key_purpose, sealed)
            key = Identity.from_text(data.decode("ascii", "replace"))
            if key.node_id == person.key:
                return key
    return None
