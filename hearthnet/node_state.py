"""The state of a running node, as its supervisor publishes it in `run/node.json`.

The supervisor holds `run/lock` with flock for as long as it lives, so that a state file left behind by a
power cut is never taken for a running node. Readers: the bus (where is the server) and the commands.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final, Literal

import msgspec

from hearthnet.errors import NOT_RUNNING, HearthNetError
from hearthnet.home import Home

GATEWAY: Final = "gateway"
"""The name of the gateway among the services: it is one to the supervisor, and offers nothing on the bus."""
_MISSING: Final = "no node is running in {path}; start one with: hearthnet up"


class ServerState(msgspec.Struct, frozen=True):
    """The NATS server: `url` is what clients connect to (`nats://127.0.0.1:4222`).

    Other homes' servers link to this one at `leaf_port`. `address` (`host:port`) is where an invite sends
    those who join: to this server, or to the one that this home links to itself; `fingerprint` is of that
    server's key (SHA-256 in hexadecimal), empty on loopback. `upstream` says how the link to another home
    is, empty where there is none to be. `preferred_leaf_port` is the port of the settings where that was
    taken and `leaf_port` is another one, else 0.
    """

    url: str
    port: int
    pid: int
    leaf_port: int = 0
    address: str = ""
    fingerprint: str = ""
    upstream: Literal["", "linked", "lost"] = ""
    preferred_leaf_port: int = 0

    @property
    def homes(self) -> str:
        """One line for a person: how other homes and this one reach each other."""
        if self.upstream:
            return f"{'' if self.upstream == 'linked' else 'not '}linked to the one at {self.address}"
        moved = self.preferred_leaf_port
        notes = [
            f"port {moved} was taken; this one is kept" if moved else "",
            "" if self.fingerprint else "from this computer only; [community] in hearthnet.toml opens it",
        ]
        said = "; ".join(note for note in notes if note)
        return f"{self.address} ({said})" if said else self.address


class ServiceState(msgspec.Struct, frozen=True):
    """One service.

    `starting` until it says that it is ready; `waiting` after a crash, until its next start; `pid` is None
    while there is no process. `note` is one line for a person, `offers` are lines such as
    `rag.query@1.0 corpus=system`, `since` is the Unix time in milliseconds at which `state` began. `address`
    is the URL of the gateway, which is started and ended like a service; of services it is empty.
    """

    name: str
    pid: int | None
    state: Literal["starting", "ready", "waiting", "stopped"]
    restarts: int
    note: str | None
    offers: tuple[str, ...]
    since: int
    address: str = ""


class NodeState(msgspec.Struct, frozen=True):
    """The node. `ready`: every service is, or is known not to become so soon; `started_at`: Unix ms.

    `telemetry` is where its processes send spans and metrics, as it stands in the settings.
    """

    pid: int
    node_id: str
    display_name: str
    version: str
    server: ServerState
    services: tuple[ServiceState, ...]
    started_at: int
    ready: bool
    telemetry: str = ""

    @property
    def gateway_url(self) -> str:
        """Where the gateway listens; empty where there is none, or not at the moment."""
        return next((service.address for service in self.services if service.name == GATEWAY), "")


def running_pid(home: Home) -> int | None:
    """The pid that holds the lock of `home`, None where nobody does; 0 while it has not written it."""
    try:
        descriptor = os.open(home.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Shared, so that two readers do not take each other for the supervisor, who holds it exclusively.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(descriptor, 32).strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(descriptor)
    return None


def read_node_state(home: Home) -> NodeState:
    """The state of the node that runs in `home`; `partition`, exit status 3, where none runs, or not yet."""
    pid = running_pid(home)
    if pid is None:
        raise HearthNetError("partition", _MISSING.format(path=home.path), exit_status=NOT_RUNNING)
    with contextlib.suppress(OSError, msgspec.DecodeError):
        state = msgspec.json.decode(home.state.read_bytes(), type=NodeState)
        if state.pid == pid:
            return state
    raise HearthNetError(
        "partition",
        f"the node in {home.path} is still starting; try again in a moment",
        exit_status=NOT_RUNNING,
    )
