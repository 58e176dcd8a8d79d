"""Inputs of the five capabilities (contracts/mesh.*@1.0.json)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["capability", "node", "corpus", "model", "language_pair", "tool"]


class SearchInput(msgspec.Struct, frozen=True):
    """Input of `mesh.search`: at most `limit` things, of one kind or all, found by words."""

    query: str
    limit: int
    kind: Kind | None = None


class DescribeInput(msgspec.Struct, frozen=True):
    """Input of `mesh.describe`: the name of a thing."""

    name: str


class RelationsInput(msgspec.Struct, frozen=True):
    """Input of `mesh.relations`: the name of a thing, and the largest distance in steps."""

    name: str
    depth: int


class QueryInput(msgspec.Struct, frozen=True):
    """Input of `mesh.query`: one SELECT, the values of its `:names`, and the limit of rows."""

    sql: str
    limit: int
    bindings: dict[str, Any] = {}


class NeighboursInput(msgspec.Struct, frozen=True):
    """Input of `mesh.neighbours`: all members, or those online."""

    online_only: bool
