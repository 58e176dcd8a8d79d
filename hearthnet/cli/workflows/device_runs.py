"""The place of a run for a command: this node, or another device of the person."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from hearthnet.agent.devices.other_devices import FoundRun, OtherDevices, own_run
from hearthnet.agent.persistence.saved_runs import SavedRuns, no_run
from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.core.home import Home


@contextlib.asynccontextmanager
async def elsewhere(
    home: Home, saved: SavedRuns, run: str
) -> AsyncIterator[tuple[OtherDevices, FoundRun] | None]:
    """Yield the run where another device of the person has it; None where it is this node's.

    Raises:
        HearthNetError: `not_found` if no device has it.
    """
    own = await own_run(saved, run)
    if own is not None and not own.record.moved_to:
        yield None
    elif not has_other_nodes(home):
        raise no_run(run)
    else:
        async with await Bus.connect(home, name="cli runs") as bus:
            devices = OtherDevices(home, bus)
            yield devices, await devices.find(run)


def has_other_nodes(home: Home) -> bool:
    """Return whether the person of the node in `home` has other nodes."""
    roster = roster_of(home)
    person = roster.person_of(load_identity(home.device_key).node_id)
    return sum(one.kind == "node" for one in roster.devices(person)) > 1
