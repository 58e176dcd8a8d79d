"""Where a node keeps its files: the data folder and the names in it.

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
"""With less than this free, a running node takes no posts: the server would not get over the failed write."""
ROOM_BYTES: Final = 16 * 1024 * 1024
"""What has to be free for a running node to keep posts and documents, the largest with some to spare."""


@dataclass(frozen=True, slots=True)
class Home:
    """The data folder of one node and the names of everything in it. Making a `Home` touches no file."""

    path: Path

    @classmethod
    def resolve(cls, path: Path | None = None) -> Home:
        """The folder given, else the one in HEARTHNET_HOME, else the user's data folder for HearthNet."""
        named = os.environ.get(HOME_VARIABLE)
        chosen = path or (Path(named) if named else cls.default().path)
        return cls(Path(os.path.abspath(chosen.expanduser())))

    @classmethod
    def default(cls) -> Home:
        """The user's data folder for HearthNet: what a shell without HEARTHNET_HOME takes."""
        return cls(Path(os.path.abspath(_user_folder())))

    def free_bytes(self) -> int:
        """What is free on the fuller of the disks that hold the folder and JetStream's; raises OSError."""
        folders = [folder for folder in (self.path, self.jetstream) if folder.exists()]
        return min(shutil.disk_usage(folder).free for folder in folders or [self.path])

    @property
    def config_file(self) -> Path:
        """The file a person edits."""
        return self.path / "hearthnet.toml"

    @property
    def standing_grants(self) -> Path:
        """What the owner has granted to tools for a while (0600)."""
        return self.path / "grants.json"

    @property
    def clients(self) -> Path:
        """The folder of the gateway's clients, one file each (0600)."""
        return self.path / "clients"

    @property
    def outbox(self) -> Path:
        """Folder of calls that wait for the node."""
        return self.path / "outbox"

    @property
    def keys(self) -> Path:
        """The folder of the private keys."""
        return self.path / "keys"

    @property
    def device_key(self) -> Path:
        """The node's identity key (0600)."""
        return self.keys / "device.key"

    @property
    def community_key(self) -> Path:
        """The root key of the community, where this node founded it (0600)."""
        return self.keys / "community.key"

    @property
    def operators(self) -> Path:
        """The folder of the seeds of operators (0600)."""
        return self.keys / "operators"

    @property
    def roster(self) -> Path:
        """The signed list of members."""
        return self.path / "community" / "roster.json"

    @property
    def upstream(self) -> Path:
        """How this home reaches the one that took it in; absent where it is on its own."""
        return self.path / "community" / "upstream.json"

    @property
    def leaf_ports(self) -> Path:
        """The ports at which other homes know this one."""
        return self.path / "community" / "ports.json"

    @property
    def nats(self) -> Path:
        """The folder of the NATS server."""
        return self.path / "nats"

    @property
    def server_config(self) -> Path:
        """The server's configuration, written anew at every start and whenever the roster changes."""
        return self.nats / "server.conf"

    @property
    def jetstream(self) -> Path:
        """The folder where JetStream keeps streams, records and blobs."""
        return self.nats / "jetstream"

    @property
    def services(self) -> Path:
        """The folder that holds one data folder per service."""
        return self.path / "services"

    def service(self, name: str) -> Path:
        """The data folder of one service."""
        return self.services / name

    @property
    def logs(self) -> Path:
        """The folder of the log files."""
        return self.path / "logs"

    def log(self, name: str) -> Path:
        """The log file of one process of the node: a service, `nats-server` or `up`."""
        return self.logs / f"{name}.log"

    @property
    def run(self) -> Path:
        """The folder of what only a running node has."""
        return self.path / "run"

    @property
    def lock(self) -> Path:
        """Held with flock, and naming the pid, for as long as a supervisor runs here."""
        return self.run / "lock"

    @property
    def state(self) -> Path:
        """The state of the running node (`hearthnet.node_state`)."""
        return self.run / "node.json"

    @property
    def links(self) -> Path:
        """The folder of the gateway's one-time links, one file each (0600)."""
        return self.run / "links"


def _user_folder() -> str:
    import platformdirs

    return platformdirs.user_data_dir("hearthnet")
