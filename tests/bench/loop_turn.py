"""The turn that is measured: four tools called at once, their results, one more word of the model.

The same for all: names, schemas, arguments, results, and what the model says.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.types import ToolDefinition

QUESTION: Final = "What is there to lend, and how do I make rainwater safe?"
ANSWER: Final = "Boil it for a minute; a neighbour lends a filter."
CORPUS: Final = "bench"
SLOW: Final = "slow"
SLOW_SECONDS: Final = 0.05
NAMES: Final = ("search_corpus", "list_corpora", "search_marketplace", "list_marketplace")
CALLS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("c0", "search_corpus", {"query": "make rainwater safe", "k": 3}),
    ("c1", "list_corpora", {}),
    ("c2", "search_marketplace", {"query": "water filter", "k": 5}),
    ("c3", "list_marketplace", {"category": "offer", "tags": ["water"], "limit": 5}),
)
"""Id, tool and arguments of what the model calls."""

CHUNKS: Final[dict[str, Any]] = {
    "chunks": [
        {
            "rank": rank,
            "score": 3.25,
            "text": "Bring the water to a rolling boil and keep it there for a whole minute.",
            "metadata": {"doc_cid": "blake3:" + "0" * 64, "doc_title": "Water", "chunk_id": f"c{rank}"},
        }
        for rank in (1, 2, 3)
    ]
}
CORPORA: Final[dict[str, Any]] = {
    "corpora": [{"name": CORPUS, "docs": 3, "chunks": 40, "size_bytes": 9000, "language_majority": "en"}]
}
POSTS: Final[dict[str, Any]] = {"posts": [], "max_lamport": 7}
RESULTS: Final[dict[str, dict[str, Any]]] = {
    "search_corpus": CHUNKS,
    "list_corpora": CORPORA,
    "search_marketplace": POSTS,
    "list_marketplace": POSTS,
}
META: Final[dict[str, Any]] = {"corpus": CORPUS, "embedding_model": None, "ms": 0}


def declared() -> list[ToolDefinition]:
    """The four tools, as an application declares them."""
    return builtin_tools(NAMES, {"search_corpus": {"corpus": CORPUS}})


def declared_own() -> list[ToolDefinition]:
    """The same four as tools of the application's own process, bound to no capability."""
    return [
        structs.replace(tool, bound_capability=None, bound_version=None, bound_params={})
        for tool in declared()
    ]


def declared_slow() -> list[ToolDefinition]:
    """The one tool that takes 50 ms."""
    return builtin_tools(["search_corpus"], {"search_corpus": {"corpus": SLOW}})


def slow_calls() -> tuple[tuple[str, str, dict[str, Any]], ...]:
    """Four calls of it."""
    return tuple((f"c{number}", "search_corpus", {"query": f"water {number}"}) for number in range(4))
