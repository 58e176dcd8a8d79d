"""All checks, in the order in which they run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from hearthnet.cli.workflows.diagnosis import home_files, network, programs, running_node
from hearthnet.cli.workflows.diagnosis.problem import Check, Examined, Problem, warning
from hearthnet.core.home import Home

_log: Final = logging.getLogger(__name__)
CHECKS: Final[tuple[Check, ...]] = (
    home_files.folder,
    home_files.settings,
    home_files.disk,
    home_files.keys,
    home_files.roster,
    home_files.community_version,
    home_files.upstream,
    home_files.clock,
    home_files.backups,
    programs.server_program,
    programs.services,
    programs.version,
    programs.builtin_model,
    programs.environment,
    network.ports,
    network.gateway_certificate,
    network.own_address,
    network.link,
    network.announcement,
    running_node.is_running,
    running_node.server,
    running_node.services,
    running_node.gateway,
    running_node.bus,
)


def diagnose(home: Home) -> Iterator[Problem]:
    """Yield the problems of a home as they are found."""
    examined = Examined(home)
    for check in CHECKS:
        try:
            yield from check(examined)
        except Exception as error:  # of whatever kind: the other checks are wanted all the more
            _log.exception("the check %s failed", check.__name__)
            yield warning(
                f"doctor.{check.__name__}",
                f"this check failed: {type(error).__name__}: {error}",
                "report it, with what hearthnet doctor --json prints",
            )
