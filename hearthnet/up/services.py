"""Which services run here: those that are installed, less those that the settings leave out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

from hearthnet.config import Config
from hearthnet.home import Home
from hearthnet.service.base import GROUP

_RUNNER: Final = "hearthnet.service.run"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A service process: its name and the command that starts it, an absolute path first."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The services to run, and those that are enabled but not installed."""

    specs: tuple[ChildSpec, ...]
    missing: tuple[str, ...]


def installed() -> tuple[str, ...]:
    """The names of the installed services (entry-point group `hearthnet.services`), sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def choose(home: Home, config: Config, available: tuple[str, ...]) -> Chosen:
    """What `[services] enabled` makes of the services that are available."""
    wanted = available if config.services.enabled is None else config.services.enabled
    return Chosen(
        specs=tuple(_spec(home, name) for name in dict.fromkeys(wanted) if name in available),
        missing=tuple(name for name in dict.fromkeys(wanted) if name not in available),
    )


def _spec(home: Home, name: str) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-m", _RUNNER, name, "--home", str(home.path)))
