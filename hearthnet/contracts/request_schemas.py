"""Schemas of the tools that a request defines, compiled within the bounds of schemas from outside. No I/O.

Whoever may ask a model defines tools, and the process that serves the request compiles and applies their
schemas: 9 KB of patterns took 4.4 s and 307 MB, and a refused value with 1.5 KB of references 52 s and
2.2 GB. Authors of tools know nothing of our bounds, so that what is beyond them is left out, not refused.

See: docs/contracts.md#schemas-that-providers-supply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hearthnet.contracts.schema import SchemaCheck, compile_schema
from hearthnet.contracts.supplied_schema import MAX_PATTERNS, MAX_VALUES, Bounds, self_contained
from hearthnet.core.errors import HearthNetError

_MAX_PATTERNS: Final = 16 * MAX_PATTERNS
"""Maximum number of patterns that are compiled for all tools of one request."""
_MAX_COPIED: Final = 4 * MAX_VALUES
"""Maximum number of values in copies of their schemas."""


class RequestSchemas:
    """Compiles the schemas of the tools of one request; the bounds are for all of them together."""

    def __init__(self) -> None:
        self._patterns = _MAX_PATTERNS
        self._values = _MAX_COPIED

    def compile(self, schema: Mapping[str, Any]) -> SchemaCheck:
        """Compile `schema`, or where it exceeds the bounds a copy that accepts more (`self_contained`).

        Raises:
            HearthNetError: `bad_request` if it is no JSON Schema or a reference leads nowhere; with `rule`
                `size` if the copy would have too many values or levels.
        """
        bounds = Bounds()
        try:
            bounds.check(schema)
            if bounds.patterns <= self._patterns:
                self._patterns -= bounds.patterns
                return compile_schema(schema, bounds.weight)
        except HearthNetError:
            pass  # the copy is without what is beyond the bounds, and is refused for anything else
        copy, bounds = self._copy(schema), Bounds()
        bounds.check(copy)
        self._values -= bounds.values
        return compile_schema(copy, bounds.weight)

    def _copy(self, schema: Mapping[str, Any]) -> Any:
        """Return a copy, for which as many patterns are charged as may have been compiled for it."""
        patterns, values = min(MAX_PATTERNS, self._patterns), max(0, min(MAX_VALUES, self._values))
        self._patterns -= patterns
        try:
            return self_contained(schema, max_patterns=patterns, max_values=values)
        except HearthNetError as error:
            if error.rule != "schema":
                raise
            self._values -= values
            raise HearthNetError("bad_request", error.message, rule="size") from error
