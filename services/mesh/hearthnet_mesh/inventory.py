"""What there is, as a list of things that can be searched: the mesh's inventory. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import msgspec

from hearthnet.bus.registry import OfferView
from hearthnet.tools.builtin import builtin_names, builtin_tools
from hearthnet.tools.types import ToolDefinition
from hearthnet_mesh.inputs import Kind
from hearthnet_mesh.known import Snapshot, contract_of, corpus_of, models_of, pairs_of, short
from hearthnet_mesh.sight import Viewer

_WORD: Final = re.compile(r"[^\W_]+")
_LONGEST_SUMMARY: Final = 300
_MOST_WORDS: Final = 32
_STEM: Final = 4
"""From so many letters on the beginning of a word stands for it."""


class Item(msgspec.Struct, frozen=True):
    """One thing. `node` has it, None where it is of no node."""

    kind: Kind
    name: str
    node: str | None
    summary: str


def items(snapshot: Snapshot, viewer: Viewer) -> list[Item]:
    """Everything that `viewer` may know of, each once for each node that has it."""
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
    """The tools that HearthNet brings."""
    return tuple(builtin_tools(builtin_names()))


def search(found: Iterable[Item], query: str, kind: Kind | None, limit: int) -> dict[str, Any]:
    """The output of `mesh.search`: what shares words with `query`, best first, always in the same order."""
    words = list(dict.fromkeys(_words(query)))[:_MOST_WORDS]
    rated = [(_score(item, query, words), item) for item in found if kind in (None, item.kind)]
    rated = [(score, item) for score, item in rated if score > 0]
    rated.sort(key=lambda one: (-one[0], one[1].kind, one[1].name, one[1].node or ""))
    best = [msgspec.to_builtins(item) | {"score": score} for score, item in rated[:limit]]
    return {"items": best, "truncated": len(rated) > limit}


def _of(view: OfferView, viewer: Viewer) -> Iterator[Item]:
    """What one offer says there is."""
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
    name = "" if member is None else f"{short(member.display_name)}, {member.level}"
    return f"{name}, {'here now' if node in snapshot.online() else 'not here now'}"


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _score(item: Item, query: str, words: list[str]) -> float:
    """1 for the thing's own name, else how much of the query stands in its name and summary."""
    name = item.name.casefold()
    if query.strip().casefold() in (name, name.partition("@")[0]):
        return 1.0
    named, said = set(_words(item.name)), set(_words(item.summary))
    found = [max(_fit(word, named), 0.6 * _fit(word, said), 0.4 * (len(word) >= _STEM and word in name))
             for word in words]  # fmt: skip
    return round(0.99 * sum(found) / len(found), 3) if found else 0.0


def _fit(word: str, words: set[str]) -> float:
    """1 where `word` is there, a bit less where another form of it is."""
    if word in words:
        return 1.0
    alike = (one for one in words if min(len(one), len(word)) >= _STEM)
    return 0.8 if any(one.startswith(word) or word.startswith(one) for one in alike) else 0.0
