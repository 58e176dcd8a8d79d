"""The data folder of a node and the names of its files.

See: docs/operations.md#what-lies-where.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
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
    persons = _Place("persons")
    """The folder of the other persons of the home, one folder each (0700), with their keys and limits."""
    clients = _Place("clients")
    """The folder of the gateway's clients, one file each (0600)."""
    sharing = _Place("sharing.json")
    """The terms under which services are shared with other homes (0600)."""
    usage = _Place("usage")
    """The folder of the counts of calls between this home and others (0700)."""
    outbox = _Place("outbox")
    """The folder of calls that wait for the node to run."""
    keys = _Place("keys")
    """The folder of the private keys."""
    device_key = _Place("keys/device.key")
    """The node's identity key (0600)."""
    community_key = _Place("keys/community.key")
    """The root key of the community, if this node founded it (0600)."""
    recovery_key = _Place("keys/recovery.key")
    """The recovery key of the owner (0600), until it lies elsewhere: its public half is the person."""
    person_key = _Place("keys/person.key")
    """The key by which the owner adds and removes devices (0600)."""
    backup_key = _Place("keys/backup.key")
    """The key by which backups name their chunks, and the person's statement for whom they are (0600)."""
    recovery_statements = _Place("community/recovery.json")
    """What keys of a person have signed here, until it is in the community's log."""
    helping = _Place("keys/helping")
    """The folder of the shares that the owner keeps for others, one file for each person (0600)."""
    recovering = _Place("keys/recovering")
    """The folder of a recovery by helpers that was begun here, until it is completed (0600)."""
    operators = _Place("keys/operators")
    """The folder of the seeds of operators (0600)."""
    roster = _Place("community/roster.json")
    """The signed list of members."""
    upstream = _Place("community/upstream.json")
    """The link to the home that admitted this one; absent without such a link."""
    found_addresses = _Place("community/addresses.json")
    """The addresses at which homes were found on the local network."""
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
    backup = _Place("backup")
    """The folder of a backup that is being made, and of what is known of the files of the last one."""
    restored = _Place("restored.json")
    """The mark of a home that was restored from a backup (`hearthnet.core.restore_mark`)."""
    clock = _Place("clock.json")
    """The home's time as it was, and what it has learned of it (`hearthnet.core.times`)."""
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
    backup_requests = _Place("run/backups")
    """The folder by which a backup asks the supervisor for the files of one moment."""
    links = _Place("run/links")
    """The folder of the gateway's one-time links, one file each (0600)."""

    @contextlib.contextmanager
    def changing_statements(self) -> Iterator[Path]:
        """Yield `recovery_statements`, which no other process reads or replaces meanwhile. Raises OSError.

        Commands add to it and the auth service takes from it, so one would overwrite what another has added.
        """
        with self.recovery_statements.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.recovery_statements

    def service(self, name: str) -> Path:
        """Return the data folder of one service."""
        return self.services / name

    def log(self, name: str) -> Path:
        """Return the log file of one process of the node: a service, `nats-server` or `up`."""
        return self.logs / f"{name}.log"


def _user_folder() -> str:
    import platformdirs

    return platformdirs.user_data_dir("hearthnet")
