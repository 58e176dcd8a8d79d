"""The mesh's inventory, as a list of searchable things. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import msgspec

from hearthnet import OfferView, ToolDefinition
from hearthnet.agent import builtin_tools
from hearthnet_mesh.schemas import Kind
from hearthnet_mesh.snapshot import Snapshot, contract_of, corpus_of, models_of, pairs_of, short
from hearthnet_mesh.visibility import Viewer

_WORD: Final = re.compile(r"[^\W_]+")
_LONGEST_SUMMARY: Final = 300
_MOST_WORDS: Final = 32
_STEM: Final = 4
"""Letters from which on the beginning of a word matches the word."""


class Item(msgspec.Struct, frozen=True):
    """One thing; `node` is the node that has it, or None."""

    kind: Kind
    name: str
    node: str | None
    summary: str


def items(snapshot: Snapshot, viewer: Viewer) -> list[Item]:
    """Return everything that `viewer` may see, once for each node that has it."""
    views = snapshot.visible(viewer)
    found = dict.fromkeys(item for view in views for item in _of(view, viewer))
    nodes = [
        Item("node", one.node_id, one.node_id, _about(snapshot, one.node_id)) for one in snapshot.members()
    ]
    offered = {view.capability.name for view in views}
    tools = [
        Item("tool", tool.name, None, short(tool.description, _LONGEST_SUMMARY))
        for tool in known_tools()
        if tool.bound_capability in offered
    ]
    return [*found, *nodes, *tools]


@cache
def known_tools() -> tuple[ToolDefinition, ...]:
    """Return the built-in tools."""
    return tuple(builtin_tools())


def search(found: Iterable[Item], query: str, kind: Kind | None, limit: int) -> dict[str, Any]:
    """Return the output of `mesh.search`: things that share words with `query`, best first.

    The order is deterministic.
    """
    words = list(dict.fromkeys(_words(query)))[:_MOST_WORDS]
    rated = [(_score(item, query, words), item) for item in found if kind in (None, item.kind)]
    rated = [(score, item) for score, item in rated if score > 0]
    rated.sort(key=lambda one: (-one[0], one[1].kind, one[1].name, one[1].node or ""))
    best = [msgspec.to_builtins(item) | {"score": score} for score, item in rated[:limit]]
    return {"items": best, "truncated": len(rated) > limit}


def _of(view: OfferView, viewer: Viewer) -> Iterator[Item]:
    """Yield the things that one offer provides."""
    contract = contract_of(view)
    about = "" if contract is None else contract.summary
    yield Item("capability", str(view.capability), view.node, about)
    if not viewer.may_call(view.capability, view.params):
        return
    corpus = corpus_of(view)
    if corpus is not None:
        yield Item("corpus", short(corpus), view.node, "A collection of documents to search with rag.query.")
    for model in models_of(view):
        yield Item("model", model, view.node, f"A language model, called with {view.capability}.")
    for source, target in pairs_of(view):
        yield Item("language_pair", f"{source}-{target}", view.node, f"Translates from {source} to {target}.")


def _about(snapshot: Snapshot, node: str) -> str:
    member = snapshot.roster.member(node)
    name = "" if member is None else f"{short(snapshot.roster.shown_name(node))}, {member.level}"
    return f"{name}, {'here now' if node in snapshot.online() else 'not here now'}"


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _score(item: Item, query: str, words: list[str]) -> float:
    """Return 1 for the thing's own name, else the share of the query in its name and summary."""
    name = item.name.casefold()
    if query.strip().casefold() in (name, name.partition("@")[0]):
        return 1.0
    named, summary = set(_words(item.name)), set(_words(item.summary))
    found = [max(_fit(word, named), 0.6 * _fit(word, summary), 0.4 * (len(word) >= _STEM and word in name))
             for word in words]  # fmt: skip
    return round(0.99 * sum(found) / len(found), 3) if found else 0.0


def _fit(word: str, words: set[str]) -> float:
    """Return 1 if `words` has `word`, 0.8 if it has another form of it, else 0."""
    if word in words:
        return 1.0
    alike = (one for one in words if min(len(one), len(word)) >= _STEM)
    return 0.8 if any(one.startswith(word) or word.startswith(one) for one in alike) else 0.0
