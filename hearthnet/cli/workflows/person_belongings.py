"""Corpora, files, runs and muted authors of another person of the home, when that person is removed.

See: docs/persons.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.bus.blobs.metadata import BlobRecord, Hold
from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import HomeStore
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.cli.workflows.run_commands import open_run_store
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state

_NAME: Final = "removal"
_RAG: Final = "rag"
_MARKET: Final = "market"


class Keep(NamedTuple):
    """What of a removed person stays: keys, private corpora with all files, shared ones as they are."""

    keys: bool = False
    private: bool = False
    shared: bool = False


def look(home: Home, name: str) -> dict[str, Any]:
    """Return corpora and files of a person, private ones without their names.

    Raises:
        HearthNetError: With exit status 3 if no node runs; any error of the rag service and the store.
    """
    _check_service(home)
    return asyncio.run(_look(home, name))


def remove_runs(home: Home, name: str) -> int:
    """Remove the runs of a removed person, and return their number.

    Raises:
        HearthNetError: With exit status 3 if no node runs; any error of the store.
    """
    read_node_state(home)
    return asyncio.run(_remove_runs(home, name))


def remove_mutes(home: Home, name: str) -> int:
    """Have the market forget whom a removed person had muted; return the number of authors.

    Raises:
        HearthNetError: `not_found` if the market has run here and does not now; any error of the service.
    """
    if not home.service(_MARKET).exists():
        return 0
    _check_service(home, _MARKET)
    return int(asyncio.run(_call(home, "market.remove_person@1.0", person=name))["mutes_removed"])


def remove(home: Home, name: str, keep: Keep) -> dict[str, Any]:
    """Remove corpora and files of a removed person but those to `keep`; return the counts.

    A call that was cut off is completed by the next one. Raises as `look`.
    """
    _check_service(home)
    return asyncio.run(_remove(home, name, keep))


def _check_service(home: Home, service: str = _RAG) -> None:
    """Check that the node runs with the service, for which a call would wait.

    Raises:
        HearthNetError: With exit status 3 if no node runs; `not_found` if the service does not.
    """
    if not any(one.name == service for one in read_node_state(home).services):
        raise HearthNetError("not_found", f"the service {service} does not run here")


async def _look(home: Home, name: str) -> dict[str, Any]:
    listed = await _call(home, "rag.list_person@1.0", person=name)
    async with await HomeStore.connect(home, _NAME) as store:
        sizes = [entry.size async for entry, _ in _held(store, _principal(home, name))]
    return {**listed, "files": {"count": len(sizes), "size_bytes": sum(sizes)}}


async def _remove_runs(home: Home, name: str) -> int:
    identity, principal = load_identity(home.device_key), _principal(home, name)
    async with open_run_store(home, identity) as store:
        saved = SavedRuns(store, identity, roster_of(home).community_id)
        runs = [one.run for one in (await saved.listing()).runs if one.principal == principal]
        for run in runs:
            await store.erase(run)
    return len(runs)


async def _remove(home: Home, name: str, keep: Keep) -> dict[str, Any]:
    principal = _principal(home, name)
    done = await _call(
        home, "rag.remove_person@1.0", person=name, keep_private=keep.private, keep_shared=keep.shared
    )
    # Only now: the documents of corpora that stay have become the home's own.
    async with await HomeStore.connect(home, _NAME) as held:
        files = [
            entry.name
            async for entry, hold in _held(held, principal)
            if not (keep.shared if hold.shared else keep.private)
        ]
        for cid in files:
            await held.blobs.release(cid, {principal})
    return {**done, "files_removed": len(files)}


async def _held(store: HomeStore, principal: str) -> AsyncIterator[tuple[BlobRecord, Hold]]:
    async for entry, _ in store.blobs.entries():
        for hold in entry.notes.holds:
            if hold.by == principal and not entry.deleted:
                yield entry, hold


async def _call(home: Home, capability: str, **fields: Any) -> dict[str, Any]:
    async with await Bus.connect(home, name=_NAME) as bus:
        body = {"params": {}, "input": fields}
        return dict((await bus.call(capability, body, node=bus.peer.node_id)).output)


def _principal(home: Home, name: str) -> str:
    return f"{load_identity(home.device_key).node_id}/{name}"


def unfinished(name: str, error: HearthNetError) -> str:
    """Return the line for a removal that is to be finished, with the reason."""
    return f"data of {name} is left: {error.message}; later: hearthnet person remove {name}"
