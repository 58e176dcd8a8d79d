"""The data folder of a node and the names of its files.

See: docs/operations.md#what-lies-where.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOME_VARIABLE: Final = "HEARTHNET_HOME"
FULL_BYTES: Final = 4 * 1024 * 1024
"""Free bytes below which a running node refuses posts: the server does not recover from a failed write."""
ROOM_BYTES: Final = 16 * 1024 * 1024
"""Free bytes that a running node requires to store posts and documents: the largest one and a reserve."""


class _Place:
    """A file or folder at a fixed path in the data folder."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, home: Home, kind: type[Home]) -> Path:
        return home.path / self._path


@dataclass(frozen=True, slots=True)
class Home:
    """The data folder of one node and the names of everything in it.

    Making a `Home` touches no file.
    """

    path: Path

    @classmethod
    def resolve(cls, path: Path | None = None) -> Home:
        """Return the folder `path`, or that of HEARTHNET_HOME, or the default one."""
        named = os.environ.get(HOME_VARIABLE)
        chosen = path or (Path(named) if named else cls.default().path)
        return cls(Path(os.path.abspath(chosen.expanduser())))

    @classmethod
    def default(cls) -> Home:
        """Return the user's data folder for HearthNet, used by a shell without HEARTHNET_HOME."""
        return cls(Path(os.path.abspath(_user_folder())))

    def free_bytes(self) -> int:
        """Return the free bytes on the fuller of the disks that hold the folder and JetStream's.

        Raises:
            OSError: The file system cannot be queried.
        """
        folders = [folder for folder in (self.path, self.jetstream) if folder.exists()]
        return min(shutil.disk_usage(folder).free for folder in folders or [self.path])

    config_file = _Place("hearthnet.toml")
    """The settings file, edited by the owner."""
    standing_grants = _Place("grants.json")
    """The owner's standing grants for tools (0600)."""
    clients = _Place("clients")
    """The folder of the gateway's clients, one file each (0600)."""
    outbox = _Place("outbox")
    """The folder of calls that wait for the node to run."""
    keys = _Place("keys")
    """The folder of the private keys."""
    device_key = _Place("keys/device.key")
    """The node's identity key (0600)."""
    community_key = _Place("keys/community.key")
    """The root key of the community, if this node founded it (0600)."""
    operators = _Place("keys/operators")
    """The folder of the seeds of operators (0600)."""
    roster = _Place("community/roster.json")
    """The signed list of members."""
    upstream = _Place("community/upstream.json")
    """The link to the home that admitted this one; absent without such a link."""
    leaf_ports = _Place("community/ports.json")
    """The ports at which other homes reach this one."""
    seen_contracts = _Place("contracts.json")
    """The digests of the contracts of installed packages, as this node first saw them."""
    nats = _Place("nats")
    """The folder of the NATS server."""
    server_config = _Place("nats/server.conf")
    """The server's configuration, written anew at every start and change of the roster."""
    jetstream = _Place("nats/jetstream")
    """The folder in which JetStream stores streams, records and blobs."""
    services = _Place("services")
    """The folder that holds one data folder per service."""
    logs = _Place("logs")
    """The folder of the log files."""
    run = _Place("run")
    """The folder of files that exist only while the node runs."""
    lock = _Place("run/lock")
    """The file that a running supervisor locks with flock and that contains its pid."""
    state = _Place("run/node.json")
    """The state of the running node (`hearthnet.core.node_state`)."""
    links = _Place("run/links")
    """The folder of the gateway's one-time links, one file each (0600)."""

    def service(self, name: str) -> Path:
        """Return the data folder of one service."""
        return self.services / name

    def log(self, name: str) -> Path:
        """Return the log file of one process of the node: a service, `nats-server` or `up`."""
        return self.logs / f"{name}.log"


def _user_folder() -> str:
    import platformdirs

    return platformdirs.user_data_dir("hearthnet")
