"""What is told of calls to those who watch: entries, and OpenTelemetry where it is set up.

OpenTelemetry itself is an extra, `hearthnet[telemetry]`, and imported only where spans or metrics are
exported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthnet.errors import HearthNetError
from hearthnet.telemetry.settings import Settings, settings

if TYPE_CHECKING:
    from hearthnet.telemetry.exporter import Exporter, Gauges


def check(endpoint: str) -> None:
    """Raises `bad_request` where `endpoint` or the environment wants what this installation cannot do."""
    wanted = settings(endpoint)
    if wanted is not None:
        _load(wanted)


def start(
    endpoint: str, service: str, node: str, instance: str, in_flight: Gauges, dropped: Gauges
) -> Exporter | None:
    """The exporter of a process that is called `service`; None where nothing is exported. Errors as `check`.

    `in_flight` and `dropped` say by side how many calls are on their way and frames were dropped.
    """
    wanted = settings(endpoint)
    if wanted is None:
        return None
    return _load(wanted)(wanted, service, node, instance, in_flight, dropped)


def _load(wanted: Settings) -> type[Exporter]:
    try:
        from hearthnet.telemetry.exporter import Exporter
    except ImportError as error:
        raise HearthNetError(
            "bad_request",
            f"{wanted.source} asks for OpenTelemetry, which is not installed ({error.name}); install it: "
            "pip install 'hearthnet[telemetry]', or set endpoint = \"none\" under [telemetry]",
        ) from error
    return Exporter
