"""Telemetry: entries for all calls, and spans and metrics by OpenTelemetry if configured.

OpenTelemetry itself is an extra, `hearthnet[telemetry]`, and imported only if spans or metrics are exported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.core.errors import HearthNetError
from hearthnet.core.lazy_import import lazy
from hearthnet.telemetry.settings import TelemetrySettings, settings

if TYPE_CHECKING:
    from hearthnet.telemetry.exporter import Exporter, Gauges
    from hearthnet.telemetry.steps import describe as describe_span
    from hearthnet.telemetry.steps import traceparent
else:
    __getattr__ = lazy(__name__, {"hearthnet.telemetry.steps": "describe_span=describe traceparent"})

__all__ = [
    "describe_span",
    "traceparent",
]


def check(endpoint: str) -> None:
    """Check that this installation can export to `endpoint` and as the environment says.

    Raises:
        HearthNetError: `bad_request` if it cannot.
    """
    wanted = settings(endpoint)
    if wanted is not None:
        _load(wanted)


def start(
    endpoint: str, service: str, node: str, instance: str, in_flight: Gauges, dropped: Gauges
) -> Exporter | None:
    """Return the exporter of a process with the name `service`; None if nothing is exported.

    `in_flight` and `dropped` return, by side, the number of running calls and of dropped frames.

    Raises:
        HearthNetError: As `check`.
    """
    wanted = settings(endpoint)
    if wanted is None:
        return None
    return _load(wanted)(wanted, service, node, instance, in_flight, dropped)


def _load(wanted: TelemetrySettings) -> type[Exporter]:
    try:
        from hearthnet.telemetry.exporter import Exporter
    except ImportError as error:
        raise HearthNetError(
            "bad_request",
            f"{wanted.source} asks for OpenTelemetry, which is not installed ({error.name}); install it: "
            "pip install 'hearthnet[telemetry]', or set endpoint = \"none\" under [telemetry]",
        ) from error
    return Exporter
