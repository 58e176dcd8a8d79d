"""The saved runs of the node in a home, for commands that show, decide or resume them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import Store
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.trust.keys import Identity


@contextlib.asynccontextmanager
async def open_run_store(home: Home, identity: Identity) -> AsyncIterator[StoredRuns]:
    """Yield the store of runs, connected at first need; raises as `Store.connect` then."""

    async def connect() -> Store:
        return await Store.connect(home, "runs")

    runs = StoredRuns(connect, identity, DiskGuard(home))
    try:
        yield runs
    finally:
        await runs.close()


@contextlib.asynccontextmanager
async def open_saved_runs(home: Home) -> AsyncIterator[SavedRuns]:
    """Yield the desk for showing runs and deciding about them."""
    read_node_state(home)  # raises if no node runs
    identity = load_identity(home.device_key)
    async with open_run_store(home, identity) as runs:
        yield SavedRuns(runs, identity, roster_of(home).community_id)
