"""A problem that a check reports, and what the checks look at."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.core.config import Config
    from hearthnet.core.node_state import NodeState
    from hearthnet.trust.community.roster import Roster

Severity = Literal["fault", "warning"]
LOG_LINE: Final = 200


class Problem(msgspec.Struct, frozen=True):
    """One problem: a `fault` keeps something from working, a `warning` may be meant that way.

    `check` is the name of the check, such as `keys.device`; `cause` and `remedy` are texts for a person.
    """

    check: str
    severity: Severity
    cause: str
    remedy: str


class Examined:
    """A home under examination, each part read once; a part that is damaged is None.

    `now_ms` is the time of the examination, Unix milliseconds.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.now_ms = now_ms()

    @functools.cached_property
    def config(self) -> Config | None:
        """The settings."""
        from hearthnet.core.config_loader import load_config

        with contextlib.suppress(HearthNetError):
            return load_config(self.home)
        return None

    @functools.cached_property
    def node(self) -> NodeState | None:
        """The state of the node, if it runs and has written it."""
        from hearthnet.core.node_state import read_node_state

        with contextlib.suppress(HearthNetError):
            return read_node_state(self.home)
        return None

    @functools.cached_property
    def roster(self) -> Roster | None:
        """The roster, verified."""
        from hearthnet.bus.session.keyring import load_identity, load_roster

        with contextlib.suppress(HearthNetError):
            return load_roster(self.home.roster, load_identity(self.home.device_key).node_id)
        return None


Check = Callable[[Examined], Iterator[Problem]]


def fault(check: str, cause: str, remedy: str) -> Problem:
    """Return a fault."""
    return Problem(check, "fault", cause, remedy)


def warning(check: str, cause: str, remedy: str) -> Problem:
    """Return a warning."""
    return Problem(check, "warning", cause, remedy)


def of_error(check: str, error: HearthNetError, remedy: str = "") -> Problem:
    """Return the fault that an error describes, in the form `cause; remedy` of messages for people."""
    cause, _, advice = error.message.partition("; ")
    return fault(check, cause, remedy or advice or "look into the logs: hearthnet logs up")
