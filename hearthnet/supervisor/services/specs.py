"""The processes of a node: the enabled services that are installed, and the gateway."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hearthnet.core.config import Config
from hearthnet.core.entry_points import scan_entry_points
from hearthnet.core.home import Home
from hearthnet.core.node_state import GATEWAY
from hearthnet.service.hosting.service import GROUP
from hearthnet.supervisor.os.forks import ForkServer
from hearthnet.supervisor.os.log_file import LogFile

_GATEWAY: Final = "hearthnet.gateway.__main__"
_RUNNER: Final = "hearthnet.service.hosting.main"
_PYTHON: Final = (sys.executable, "-P", "-m")
"""-P: nothing is imported from the folder in which the node was started."""
_IMPORTED_BY_ALL: Final = ("nats", "setproctitle")
"""Modules that services import when they start, and their own modules do not."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A service process: its name and the command that starts it, an absolute path first.

    `module` is the module with its arguments, where the process may be forked instead.
    """

    name: str
    command: tuple[str, ...]
    module: tuple[str, ...] = ()


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
    return _python(name, _RUNNER, name, "--home", str(home.path))


def gateway_spec(home: Home) -> ChildSpec:
    """Return the gateway's process."""
    return _python(GATEWAY, _GATEWAY, "--home", str(home.path))


def _python(name: str, *words: str) -> ChildSpec:
    return ChildSpec(name, (*_PYTHON, *words), words)


def fork_server(home: Home, specs: Sequence[ChildSpec]) -> ForkServer | None:
    """Return the fork server for those of `specs` that are modules; None without any, or without Linux."""
    modules = dict.fromkeys(spec.module[0] for spec in specs if spec.module)
    if not modules or sys.platform != "linux":
        return None
    return ForkServer(home.path, (*modules, *_IMPORTED_BY_ALL), LogFile(home.log("fork-server")))
