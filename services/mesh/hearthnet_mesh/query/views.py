"""The views that SQL can read, with their columns and rows. Pure.

Each is a table of a database that is created for one query and contains nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from hearthnet.contracts import contracts
from hearthnet.core import parse_capability, rfc3339
from hearthnet_mesh.inventory import known_tools
from hearthnet_mesh.snapshot import Snapshot, corpus_of, find_contract, models_of, pairs_of, short, trust_of
from hearthnet_mesh.sources import Gathered
from hearthnet_mesh.trace_queries import WORKED, ObservedCall, runs
from hearthnet_mesh.visibility import Viewer

MOST_ROWS: Final = 5_000
"""Rows of one view."""
LONGEST_TEXT: Final = 4_000
"""Characters of one value."""
LARGEST: Final = (1 << 53) - 1
"""The largest integer that every JSON reader represents exactly."""
Value = str | int | float | None
Row = tuple[Value, ...]

VIEWS: Final[dict[str, tuple[str, ...]]] = {
    "posts": (
        "event_id", "lamport", "author", "category", "title", "body", "location", "tags", "created_at",
        "expires_at",
    ),
    "corpora": ("name", "node", "docs", "chunks", "size_bytes", "language_majority"),
    "documents": ("corpus", "node", "doc_cid", "title", "language", "year", "chunks", "size_bytes"),
    "offers": (
        "capability", "name", "version", "node", "service", "params", "corpus", "model", "trust",
        "max_concurrent", "in_flight",
    ),
    "nodes": ("node", "display_name", "level", "added_at", "online", "last_seen"),
    "calls": (
        "at", "capability", "caller", "provider", "code", "ms", "run", "trace", "bytes_in", "bytes_out",
    ),
    "runs": ("run", "first_at", "last_at", "calls", "failed"),
    "capabilities": (
        "capability", "name", "summary", "stability", "trust_required", "side_effects", "idempotent",
        "timeout_seconds", "offers",
    ),
    "models": ("model", "node", "capability", "ctx", "backend"),
    "language_pairs": ("source", "target", "node"),
    "tools": ("tool", "capability", "side_effects", "description"),
}  # fmt: skip
"""The views and their columns. Booleans are 1 or 0; `params`, `tags` and `location` are JSON."""


class World(msgspec.Struct, frozen=True):
    """The data of the rows; data that no view of a query needs is left empty."""

    snapshot: Snapshot
    viewer: Viewer
    calls: tuple[ObservedCall, ...] = ()
    posts: Gathered = Gathered(())
    corpora: Gathered = Gathered(())
    documents: Gathered = Gathered(())


def rows(view: str, world: World) -> list[Row]:
    """Return up to `MOST_ROWS` rows of one view in a deterministic order."""
    storable = (tuple(map(_value, row)) for row in _ROWS[view](world))
    return sorted(storable, key=_order)[:MOST_ROWS]


def _value(value: Any) -> Value:
    """Return a storable value: texts are cut, too large numbers become None."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT].encode(errors="replace").decode()
    if isinstance(value, int | float) and abs(value) <= LARGEST:
        return int(value) if isinstance(value, bool) else value
    return None


def _order(row: Row) -> tuple[tuple[bool, str, float], ...]:
    """Return a sort key for rows with values of several types."""
    return tuple(
        (value is not None, value, 0.0) if isinstance(value, str) else (value is not None, "", value or 0.0)
        for value in row
    )


def _posts(world: World) -> Iterable[Row]:
    for _, post in world.posts.rows:
        plain = {**post, "location": _json(post["location"]), "tags": _json(post["tags"])}
        yield tuple(plain[column] for column in VIEWS["posts"])


def _listed(view: str, found: Gathered) -> Iterable[Row]:
    for node, item in found.rows:
        yield tuple(node if column == "node" else item.get(column) for column in VIEWS[view])


def _offers(world: World) -> Iterable[Row]:
    for view in world.snapshot.visible(world.viewer):
        capability, offer = view.capability, view.offer
        version = f"{capability.major}.{capability.minor}"
        model = next(iter(models_of(view)), None)
        yield (
            str(capability), capability.name, version, view.node, short(offer.service), _json(view.params),
            corpus_of(view), model, trust_of(view), offer.max_concurrent, offer.in_flight,
        )  # fmt: skip


def _nodes(world: World) -> Iterable[Row]:
    for member in world.snapshot.members():
        about = world.snapshot.manifest(member)
        yield tuple(about["node_id" if column == "node" else column] for column in VIEWS["nodes"])


def _calls(world: World) -> Iterable[Row]:
    for one in world.calls:
        fields = {**msgspec.structs.asdict(one), "at": _moment(one.at), "run": one.run or None}
        yield tuple(fields[column] for column in VIEWS["calls"])


def _runs(world: World) -> Iterable[Row]:
    for run, calls in runs(world.calls).items():
        failed = sum(one.code != WORKED for one in calls)
        yield run, _moment(calls[0].at), _moment(calls[-1].at), len(calls), failed


def _capabilities(world: World) -> Iterable[Row]:
    offered = [view.capability for view in world.snapshot.visible(world.viewer)]
    ids = {str(one) for one in offered} | {contract.id for contract in contracts()}
    for name in ids:
        contract, offers = find_contract(name), sum(str(one) == name for one in offered)
        fields: dict[str, Value] = {"capability": name, "name": parse_capability(name).name, "offers": offers}
        # Without a contract the other columns are empty.
        yield tuple(fields.get(one, getattr(contract, one, None)) for one in VIEWS["capabilities"])


def _models(world: World) -> Iterable[Row]:
    for view in world.snapshot.visible(world.viewer):
        if world.viewer.may_call(view.capability, view.params):
            ctx, backend = view.params.get("ctx"), view.params.get("backend")
            for model in models_of(view):
                yield (
                    model, view.node, str(view.capability), ctx if isinstance(ctx, int) else None,
                    short(backend) if isinstance(backend, str) else None,
                )  # fmt: skip


def _pairs(world: World) -> Iterable[Row]:
    for view in world.snapshot.visible(world.viewer):
        for source, target in pairs_of(view):
            yield source, target, view.node


def _tools(world: World) -> Iterable[Row]:
    for tool in known_tools():
        contract = find_contract(tool.bound_capability or "")
        bound = None if contract is None else contract.id
        yield tool.name, bound, tool.side_effects, tool.description


_ROWS: Final[dict[str, Callable[[World], Iterable[Row]]]] = {
    "posts": _posts,
    "corpora": lambda world: _listed("corpora", world.corpora),
    "documents": lambda world: _listed("documents", world.documents),
    "offers": _offers,
    "nodes": _nodes,
    "calls": _calls,
    "runs": _runs,
    "capabilities": _capabilities,
    "models": _models,
    "language_pairs": _pairs,
    "tools": _tools,
}


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _moment(microseconds: int) -> str:
    """Return a time in UTC, to the second."""
    return rfc3339(microseconds // 1000)
