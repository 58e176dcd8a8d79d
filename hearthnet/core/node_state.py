"""The state of a running node, as its supervisor publishes it in `run/node.json`.

The supervisor holds `run/lock` with flock for its lifetime, so that a state file left behind by a power cut
is never mistaken for a running node. The bus reads the server's address from it; the commands read all of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final, Literal

import msgspec

from hearthnet.core.errors import NOT_RUNNING, HearthNetError, Unavailable
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

GATEWAY: Final = "gateway"
"""The gateway's name among the services: the supervisor treats it as one, but it offers nothing on the bus.
"""
_JUST_READY_MS: Final = 1_000
_MISSING: Final = "no node is running in {path}; start one with: hearthnet up"


class DoorAddress(msgspec.Struct, frozen=True):
    """A place where other homes reach the community.

    `address` is `host:port`; `fingerprint` is of the key there (SHA-256 in hexadecimal), empty on loopback.
    """

    address: str
    fingerprint: str = ""


class ServerState(msgspec.Struct, frozen=True):
    """The NATS server; clients connect to `url` (`nats://127.0.0.1:4222`).

    Other homes' servers link to this one, or to its home's door, at `leaf_port`. `address` (`host:port`)
    is the one that invites name first: of an open door, or where there are none of this server or the one to
    which this home links; `fingerprint` is of the key there (SHA-256 in hexadecimal), empty on loopback.
    `doors` are the other open doors. `upstream` is the state of the link to a door or another home, empty
    without one. `preferred_leaf_port` is the configured port if it was in use and `leaf_port` is another one,
    else 0. `announced`: other homes on this network find this one without its address.
    """

    url: str
    port: int
    pid: int
    leaf_port: int = 0
    address: str = ""
    fingerprint: str = ""
    upstream: Literal["", "linked", "lost"] = ""
    preferred_leaf_port: int = 0
    doors: tuple[DoorAddress, ...] = ()
    announced: bool = False

    @property
    def homes(self) -> str:
        """Describe in one line for a person how other homes and this one reach each other."""
        if self.upstream:
            more = f" or {len(self.doors)} more" if self.doors else ""
            return f"{'' if self.upstream == 'linked' else 'not '}linked to the one at {self.address}{more}"
        moved = self.preferred_leaf_port
        notes = [
            f"port {moved} was taken; this one is kept" if moved else "",
            "" if self.fingerprint else "from this computer only; [community] in hearthnet.toml opens it",
            "announced on this network" if self.announced else "",
        ]
        note = "; ".join(note for note in notes if note)
        return f"{self.address} ({note})" if note else self.address


class ServiceState(msgspec.Struct, frozen=True):
    """The state of one service.

    `state` is `starting` until the service reports that it is ready, and `waiting` between a crash and the
    next start; `pid` is None while there is no process. `note` is one line for a person, `offers` are lines
    such as `rag.query@1.0 corpus=system`, `since` is the Unix time in milliseconds at which `state` began.
    `address` is the URL of the gateway, which is started and ended like a service; it is empty for services.
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
    """The state of the node.

    `ready` is true once every service is ready or known not to become so soon. `started_at` is Unix time in
    milliseconds. `telemetry` is the configured endpoint of its processes' spans and metrics. `package_errors`
    are lines for a person about what installed packages bring and the node refuses. `door` is the state of
    the node's door, empty if it has none.
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
    package_errors: tuple[str, ...] = ()
    door: Literal["", "starting", "open"] = ""

    @property
    def gateway_url(self) -> str:
        """The gateway's URL; empty while no gateway listens."""
        return next((service.address for service in self.services if service.name == GATEWAY), "")


def running_pid(home: Home) -> int | None:
    """Return the pid that holds the lock of `home`.

    None if no process holds it; 0 if the holder has not written its pid yet.
    """
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
    """Return the state of the node that runs in `home`.

    Raises:
        HearthNetError: `partition` with exit status 3 if no node runs there or it is still starting.
    """
    pid = running_pid(home)
    if pid is None:
        raise Unavailable(_MISSING.format(path=home.path), exit_status=NOT_RUNNING, rule="no_node")
    with contextlib.suppress(OSError, msgspec.DecodeError):
        state = msgspec.json.decode(home.state.read_bytes(), type=NodeState)
        if state.pid == pid:
            return state
    raise Unavailable(
        f"the node in {home.path} is still starting; try again in a moment",
        exit_status=NOT_RUNNING,
        rule="provider_starting",
    )


def starting_services(home: Home, asked_ms: int = 0) -> list[str]:
    """Return the services of this node that are starting, whose offers are missing so far.

    One that became ready a moment ago, or after `asked_ms` (Unix milliseconds), is included: a find shortly
    before may have missed its offers.
    """
    try:
        services = read_node_state(home).services
    except HearthNetError:
        return []
    lately = min(now_ms(), asked_ms or now_ms()) - _JUST_READY_MS
    return [
        service.name
        for service in services
        if service.name != GATEWAY
        and (
            service.state in ("starting", "waiting") or (service.state == "ready" and service.since > lately)
        )
    ]
