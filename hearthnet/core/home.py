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

    @property
    def config_file(self) -> Path:
        """The settings file, edited by the owner."""
        return self.path / "hearthnet.toml"

    @property
    def standing_grants(self) -> Path:
        """The owner's standing grants for tools (0600)."""
        return self.path / "grants.json"

    @property
    def clients(self) -> Path:
        """The folder of the gateway's clients, one file each (0600)."""
        return self.path / "clients"

    @property
    def outbox(self) -> Path:
        """The folder of calls that wait for the node to run."""
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
        """The root key of the community, if this node founded it (0600)."""
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
        """The link to the home that admitted this one; absent without such a link."""
        return self.path / "community" / "upstream.json"

    @property
    def leaf_ports(self) -> Path:
        """The ports at which other homes reach this one."""
        return self.path / "community" / "ports.json"

    @property
    def seen_contracts(self) -> Path:
        """The digests of the contracts of installed packages, as this node first saw them."""
        return self.path / "contracts.json"

    @property
    def nats(self) -> Path:
        """The folder of the NATS server."""
        return self.path / "nats"

    @property
    def server_config(self) -> Path:
        """The server's configuration, written anew at every start and change of the roster."""
        return self.nats / "server.conf"

    @property
    def jetstream(self) -> Path:
        """The folder in which JetStream stores streams, records and blobs."""
        return self.nats / "jetstream"

    @property
    def services(self) -> Path:
        """The folder that holds one data folder per service."""
        return self.path / "services"

    def service(self, name: str) -> Path:
        """Return the data folder of one service."""
        return self.services / name

    @property
    def logs(self) -> Path:
        """The folder of the log files."""
        return self.path / "logs"

    def log(self, name: str) -> Path:
        """Return the log file of one process of the node: a service, `nats-server` or `up`."""
        return self.logs / f"{name}.log"

    @property
    def run(self) -> Path:
        """The folder of files that exist only while the node runs."""
        return self.path / "run"

    @property
    def lock(self) -> Path:
        """The file that a running supervisor locks with flock and that contains its pid."""
        return self.run / "lock"

    @property
    def state(self) -> Path:
        """The state of the running node (`hearthnet.core.node_state`)."""
        return self.run / "node.json"

    @property
    def links(self) -> Path:
        """The folder of the gateway's one-time links, one file each (0600)."""
        return self.run / "links"


def _user_folder() -> str:
    import platformdirs

    return platformdirs.user_data_dir("hearthnet")
