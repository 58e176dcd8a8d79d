"""Tools that every home answers: which corpora there are, and a search in all of them. Pure.

Rows of other homes name their corpus as `manuals@Kitchen`, by which it is searched alone. What they say is
theirs: a home can add rows of its own, and push out none of another.

See: docs/tools.md#asking-everybody, docs/decisions/0213.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from hearthnet.agent.tools.providers import home_of
from hearthnet.agent.tools.toolbox import SEARCH, BoundTool
from hearthnet.bus.calls.gathering import Gathered
from hearthnet.bus.routing.named_homes import COPY_OF, with_home
from hearthnet.trust.community.roster import Roster

LIST: Final = "rag.list_corpora"
MOST_CORPORA: Final = 100
"""Corpora of another home in a list."""
_USUAL_PASSAGES: Final = 5


def is_for_everybody(tool: BoundTool, body: Mapping[str, Any]) -> bool:
    """Return whether a call of `tool` is for every home that can answer it."""
    if tool.provider or tool.composed:
        return False
    corpus = body["params"].get("corpus")
    return tool.contract.name == LIST or (tool.contract.name == SEARCH and corpus is None)


def merged(name: str, body: Mapping[str, Any], found: Gathered, peer: Any) -> dict[str, Any]:
    """Return what all homes answered to the capability `name`, as one output that names missing homes.

    Raises:
        HearthNetError: No home has answered; the error of the first one asked.
    """
    if not found.replies:
        raise found.error(name)
    own, roster = peer.identity.node_id, peer.roster
    if name == LIST:
        output: dict[str, Any] = {"corpora": _corpora(found, own, roster)}
    else:
        output = {"chunks": _passages(found, peer, body["input"].get("k", _USUAL_PASSAGES))}
    # Their reasons are left out: they are words of others, and may name what is private here.
    missing = {home_of(peer, one.node): one.state.replace("_", " ") for one in found.missing}
    lines = [f"{home}: {state}" for home, state in missing.items()]
    return {**output, "missing": lines} if lines else output


def _corpora(found: Gathered, own: str, roster: Roster) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for reply in found.replies:
        node, listed = reply.provider, reply.output["corpora"]
        listed = listed if node == own else listed[:MOST_CORPORA]
        rows += [{**row, "name": _named(row["name"], node, own, roster)} for row in listed]
    return rows


def _passages(found: Gathered, peer: Any, most: int) -> list[dict[str, Any]]:
    """Return the best passages: of each home as many, since scores of several searches say nothing.

    A home's own are in turns of its corpora: with many corpora it has no more places than with one.
    """
    own, roster = peer.identity.node_id, peer.roster
    by_home: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for one in found.providers:
        for reply in one.replies:
            corpus = _named(one.body["params"]["corpus"], reply.provider, own, roster)
            home = reply.meta.get(COPY_OF)
            of = {"corpus": corpus} if home is None else {"corpus": corpus, COPY_OF: home_of(peer, home)}
            placed = enumerate({**chunk, **of} for chunk in reply.output["chunks"][:most])
            by_home.setdefault(reply.provider, []).extend(placed)
    turns = [
        (turn, chunk)
        for placed in by_home.values()
        for turn, (_, chunk) in enumerate(sorted(placed, key=itemgetter(0)))
    ]
    best = [chunk for _, chunk in sorted(turns, key=itemgetter(0))[:most]]
    return [{**chunk, "rank": rank} for rank, chunk in enumerate(best, start=1)]


def _named(corpus: str, node: str, own: str, roster: Roster) -> str:
    return corpus if node == own else with_home(corpus, node, roster)
