"""Connections of this computer whose other end acknowledges nothing, as the kernel of Linux counts it.

Data without an acknowledgement is sent again after 0.2 s, or the time that the line takes if that is more,
and after twice the time before then. So a count of retransmissions is a time that goes by the delay of the
line. It does not depend on whether a process gets a core, since the other kernel acknowledges for it.

See: docs/operations.md#links-between-homes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""Tables of TCP connections, see proc(5); elsewhere than on Linux there are none."""
RETRANSMISSIONS: Final = 4
"""That many without an acknowledgement, 3 s on a quick line, and the other end counts as silent."""
_ESTABLISHED: Final = "01"
_RETRANSMITTING: Final = "01"


class Peer(NamedTuple):
    """The other end of a connection: its IP address as text, and its port."""

    address: str
    port: int


def silent_peers(tables: Iterable[Path] = TABLES) -> set[Peer]:
    """Return the other ends that have not acknowledged `RETRANSMISSIONS` retransmissions in a row."""
    found = set[Peer]()
    for table in tables:
        # Without a table that can be read there are the server's pings; the node must not end by it.
        with contextlib.suppress(OSError, ValueError):
            found.update(_silent_in(table.read_text("ascii").splitlines()[1:]))
    return found


def _silent_in(rows: Iterable[str]) -> Iterator[Peer]:
    for row in rows:
        _, _, remote, state, _, timer, count, *_ = row.split()
        waits = state == _ESTABLISHED and timer.partition(":")[0] == _RETRANSMITTING
        if waits and int(count, 16) >= RETRANSMISSIONS:
            yield _peer(remote)


def _peer(field: str) -> Peer:
    """Return what a field such as `0100007F:1D4E` says: words in the order of bytes of the machine."""
    words, _, port = field.partition(":")
    raw = b"".join(
        int(words[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(words), 8)
    )
    if len(raw) == 4:
        return Peer(str(IPv4Address(raw)), int(port, 16))
    address = IPv6Address(raw)
    return Peer(str(address.ipv4_mapped or address), int(port, 16))
