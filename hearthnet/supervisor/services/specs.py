"""The processes of a node: the enabled services that are installed, and the gateway."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from hearthnet.core.config import Config
from hearthnet.core.entry_points import scan_entry_points
from hearthnet.core.home import Home
from hearthnet.core.node_state import GATEWAY
from hearthnet.service.hosting.service import GROUP

_GATEWAY: Final = "hearthnet.gateway"
_RUNNER: Final = "hearthnet.service.hosting.main"
_PYTHON: Final = (sys.executable, "-P", "-m")
"""-P: nothing is imported from the folder in which the node was started."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A service process: its name and the command that starts it, an absolute path first."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServiceSelection:
    """The services to run, and those that are enabled but not installed."""

    specs: tuple[ChildSpec, ...]
    missing: tuple[str, ...]


def installed() -> tuple[str, ...]:
    """Return the names of the installed services (entry-point group `hearthnet.services`).

    They are sorted.
    """
    return tuple(dict.fromkeys(entry.point.name for entry in scan_entry_points().of(GROUP)))


def choose(home: Home, config: Config, available: tuple[str, ...]) -> ServiceSelection:
    """Return the available services that the settings enable, and the gateway if enabled."""
    gateway = (gateway_spec(home),) if config.gateway.enabled else ()
    enabled = available if config.services.enabled is None else config.services.enabled
    return ServiceSelection(
        specs=(*(_spec(home, name) for name in dict.fromkeys(enabled) if name in available), *gateway),
        missing=tuple(name for name in dict.fromkeys(enabled) if name not in available),
    )


def _spec(home: Home, name: str) -> ChildSpec:
    return ChildSpec(name, (*_PYTHON, _RUNNER, name, "--home", str(home.path)))


def gateway_spec(home: Home) -> ChildSpec:
    """Return the gateway's process."""
    return ChildSpec(GATEWAY, (*_PYTHON, _GATEWAY, "--home", str(home.path)))
