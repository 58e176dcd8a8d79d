"""The export of spans and metrics, by hearthnet.toml first, then the standard variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from hearthnet.core.config import NOWHERE
from hearthnet.core.errors import HearthNetError

_DISABLED: Final = "OTEL_SDK_DISABLED"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_HTTP: Final = "http/protobuf"
_OTLP: Final = "otlp"


class TelemetrySettings(NamedTuple):
    """The signals to export and their endpoint.

    If `endpoint` (`http://host:4318`) is empty, the environment has it. `source` names the setting that
    requested the export.
    """

    traces: bool
    metrics: bool
    endpoint: str
    source: str


def settings(endpoint: str, known: Mapping[str, str] = os.environ) -> TelemetrySettings | None:
    """Return the export requested by `endpoint`, from the settings, or the environment.

    None if nothing is requested.

    Raises:
        HearthNetError: `bad_request` for an unknown exporter or protocol.
    """
    if endpoint == NOWHERE or known.get(_DISABLED, "").strip().lower() == "true":
        return None
    traces = _requested_by(known, "TRACES", endpoint)
    metrics = _requested_by(known, "METRICS", endpoint)
    source = traces or metrics
    return TelemetrySettings(bool(traces), bool(metrics), endpoint, source) if source else None


def _requested_by(known: Mapping[str, str], signal: str, endpoint: str) -> str:
    """Return the name of the setting that requests this signal; empty if none does."""
    exporter = f"OTEL_{signal}_EXPORTER"
    chosen = known.get(exporter, "").strip().lower()
    if chosen == NOWHERE:
        return ""
    if chosen not in ("", _OTLP):
        raise HearthNetError("bad_request", f"{exporter} is {chosen!r}; HearthNet exports by otlp, or none")
    own = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    asking = [name for name in (own, _ENDPOINT) if known.get(name, "").strip()] + [exporter] * bool(chosen)
    source = "[telemetry] endpoint" if endpoint else next(iter(asking), "")
    if source:
        _check_protocol(known, f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")
    return source


def _check_protocol(known: Mapping[str, str], own: str) -> None:
    for name in (own, _PROTOCOL):
        protocol = known.get(name, "").strip().lower()
        if protocol and protocol != _HTTP:
            raise HearthNetError(
                "bad_request", f"{name} is {protocol!r}; HearthNet speaks {_HTTP}, mostly at port 4318"
            )
        if protocol:
            return
