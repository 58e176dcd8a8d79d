"""Metrics of steps other than calls: HTTP requests, answers of models, tools of MCP.

The attributes of a step decide which metric counts it. Labels are those that the conventions require;
attributes with a new value for each call (ids, paths) are on spans alone.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from opentelemetry.metrics import Meter

from hearthnet.telemetry import names
from hearthnet.telemetry.span import Detail, Kind


class _Duration(NamedTuple):
    """A histogram of seconds for the steps of `kind` that have the attribute `mark`."""

    metric: str
    mark: str
    kind: Kind | None
    labels: tuple[str, ...]


_HTTP: Final = (names.HTTP_METHOD, names.HTTP_STATUS, names.ERROR)
_MCP: Final = (names.MCP_METHOD, names.AI_OPERATION, names.AI_TOOL, names.MCP_TRANSPORT, names.ERROR)
_AI: Final = (names.AI_OPERATION, names.AI_PROVIDER, names.AI_MODEL, names.AI_ANSWERED_BY)
_DURATIONS: Final = (
    _Duration(
        names.HTTP_SERVER_SECONDS,
        names.HTTP_METHOD,
        "server",
        (*_HTTP, names.HTTP_ROUTE, names.URL_SCHEME),
    ),
    _Duration(
        names.HTTP_CLIENT_SECONDS,
        names.HTTP_METHOD,
        "client",
        (*_HTTP, names.SERVER_ADDRESS, names.SERVER_PORT),
    ),
    _Duration(names.MCP_SERVER_SECONDS, names.MCP_METHOD, "server", _MCP),
    _Duration(names.MCP_CLIENT_SECONDS, names.MCP_METHOD, "client", _MCP),
    _Duration(names.AI_SECONDS, names.AI_MODEL, None, (*_AI, names.ERROR)),
)
_TOKENS: Final = {names.AI_TOKENS_IN: "input", names.AI_TOKENS_OUT: "output"}
_TOKEN_BOUNDS: Final = tuple(float(4**power) for power in range(14))
"""The bounds in the conventions: 1 to 67 million."""


class Conventional:
    """The instruments of one process."""

    def __init__(self, meter: Meter) -> None:
        self._seconds = {
            one.metric: meter.create_histogram(
                one.metric, "s", explicit_bucket_boundaries_advisory=names.SECONDS
            )
            for one in _DURATIONS
        }
        self._tokens = meter.create_histogram(
            names.AI_TOKENS, "{token}", explicit_bucket_boundaries_advisory=_TOKEN_BOUNDS
        )

    def count(self, detail: Detail, attributes: dict[str, Any], seconds: float) -> None:
        """Count a step that took `seconds` and ended with `attributes`."""
        for one in _DURATIONS:
            if one.mark in attributes and one.kind in (None, detail.kind):
                self._seconds[one.metric].record(seconds, _only(attributes, one.labels))
        for name, kind in _TOKENS.items():
            if name in attributes:
                self._tokens.record(attributes[name], {**_only(attributes, _AI), names.AI_TOKEN_TYPE: kind})


def _only(attributes: dict[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    return {name: attributes[name] for name in wanted if name in attributes}
