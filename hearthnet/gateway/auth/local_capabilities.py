"""The offers of this node that have no installed contract: tools that its owner added."""

from __future__ import annotations

from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.trust.authorization.token import whole_server

PREFIX: Final = "experimental."
MOST_BYTES: Final = 560
"""Bytes of such names in one token of 2,048 bytes, beside all capabilities with installed contracts."""


class LocalCapabilities:
    """The names of these offers, from the state that the supervisor publishes.

    The state is read again when it has changed.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen = (0, 0)
        self._names: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, ...]:
        """Return the names, servers first, as many as fit into a token; none where no node runs.

        An MCP server is one name for all its tools.
        """
        try:
            status = self._home.state.stat()
        except OSError:
            return ()
        seen = (status.st_ino, status.st_mtime_ns)
        if seen != self._seen:
            self._seen, self._names = seen, self._read()
        return self._names

    def _read(self) -> tuple[str, ...]:
        try:
            services = read_node_state(self._home).services
        except HearthNetError:
            return ()
        lines = [line for service in services for line in service.offers if line.startswith(PREFIX)]
        found, left = [], MOST_BYTES
        entries = {_entry(line.partition("@")[0]) for line in lines}
        # One entry for all tools of an MCP server comes before the single capabilities of packages.
        for name in sorted(entries, key=lambda entry: (not entry.endswith("*"), entry)):
            left -= len(name) + 3  # quotes and comma
            if left >= 0:
                found.append(name)
        return tuple(found)


def _entry(name: str) -> str:
    """Return the entry of a scope for a capability: its whole server, where it has one."""
    whole = f"{name.rpartition('.')[0]}.*"
    return name if whole_server(whole) is None else whole
