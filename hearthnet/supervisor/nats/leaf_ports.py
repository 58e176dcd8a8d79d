"""The port at which other homes reach this one, the same at every start.

The homes that joined keep `host:port` and nothing else, so a changed port cuts them off
(docs/decisions/0162). The ports that other homes may know are kept in `community/ports.json`, oldest first.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.supervisor.nats.address import DEFAULT_PORT
from hearthnet.supervisor.nats.server_config import ANY_PORT
from hearthnet.trust.community.roster import Roster

MAX_PORTS: Final = 8


class KnownPorts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ports that invites named, oldest first; `configured` is the setting they belong to."""

    configured: int
    ports: tuple[int, ...] = ()


class LeafPorts:
    """The ports to try for the leaf listener, best first, and their storage."""

    def __init__(self, home: Home, roster: Roster, configured: int) -> None:
        """Load the known ports.

        `configured` is `[community] port`: 0 for any, the default port as a preference, else a requirement.
        """
        self._home = home
        self._configured = configured
        self.is_fixed: Final = configured not in (0, DEFAULT_PORT)
        # Without any invite no other home can know a port, and the preferred one can be used.
        invited = len(roster.members) > 1 or bool(roster.invites)
        self.known: Final = self._load() if invited and not self.is_fixed else ()

    @property
    def candidates(self) -> tuple[int, ...]:
        """The ports to try, in this order; the last one is always free unless the port is fixed."""
        if self.is_fixed:
            return (self._configured,)
        preferred = () if self._configured == 0 else (self._configured,)
        return tuple(dict.fromkeys((*self.known, *preferred, ANY_PORT)))

    def in_use_error(self) -> HearthNetError:
        """Return the error for a fixed port that another program uses."""
        return HearthNetError(
            "bad_request",
            f"cannot listen for other homes at port {self._configured}: another program uses it; end that "
            f"program, or set [community] port in {self._home.config_file} to a free one (homes that joined "
            "at the old port then need a new invite: hearthnet invite create)",
        )

    def keep(self, port: int) -> None:
        """Store that the server listens at `port`. Raises OSError."""
        # Keep the oldest if there are too many: most homes know those.
        ports = self.known if port in self.known else (*self.known[: MAX_PORTS - 1], port)
        found = KnownPorts(self._configured, ports)
        if not self.is_fixed and found != self._read():
            write_whole(self._home.leaf_ports, msgspec.json.encode(found) + b"\n", durable=True)

    def news(self, port: int) -> str:
        """Return a line for a person about the choice of `port`, empty for the expected one."""
        if self.known and port not in self.known:
            return (
                f"port {self.known[0]}, at which other homes know this one, is taken; they reach it again "
                f"once that port is free at a start, or by a new invite to port {port} (hearthnet invite "
                "create)"
            )
        if not self.known and self._configured not in (0, port):
            return (
                f"port {self._configured} is taken; other homes reach this one at port {port}, now and at "
                "every later start"
            )
        return ""

    def _load(self) -> tuple[int, ...]:
        known = self._read()
        return known.ports if known is not None and known.configured == self._configured else ()

    def _read(self) -> KnownPorts | None:
        """Return the stored ports; ignore a damaged file, so that the node still starts."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._home.leaf_ports.read_bytes(), type=KnownPorts)
        return None
