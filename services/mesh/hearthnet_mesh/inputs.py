"""What the five capabilities take (contracts/mesh.*@1.0.json)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["capability", "node", "corpus", "model", "language_pair", "tool"]


class NoParams(msgspec.Struct, frozen=True):
    """There are none."""


class SearchInput(msgspec.Struct, frozen=True):
    """`mesh.search`: at most `limit` things, of one kind or all, that share words with `query`."""

    query: str
    limit: int
    kind: Kind | None = None


class DescribeInput(msgspec.Struct, frozen=True):
    """`mesh.describe`: the thing called so."""

    name: str


class RelationsInput(msgspec.Struct, frozen=True):
    """`mesh.relations`: what is tied to the thing called so, up to `depth` steps away."""

    name: str
    depth: int


class QueryInput(msgspec.Struct, frozen=True):
    """`mesh.query`: one SELECT, the values of its `:names`, and how many rows to return at most."""

    sql: str
    limit: int
    bindings: dict[str, Any] = {}


class NeighboursInput(msgspec.Struct, frozen=True):
    """`mesh.neighbours`: all members, or those who are here now."""

    online_only: bool
