"""Keys and rosters on disk: checked when read, written once, never overwritten.

See: docs/protocol/identity.md#key-file.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity


def load_identity(path: Path) -> Identity:
    """Load the identity in a key file.

    Raises:
        HearthNetError: `not_found` if there is none; `unauthorized` if other users may read it; `bad_request`
            if it is damaged.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text("ascii")
    except FileNotFoundError as error:
        raise HearthNetError("not_found", f"no key at {path}; `hearthnet up` makes one") from error
    except (OSError, UnicodeDecodeError) as error:
        raise HearthNetError("bad_request", f"cannot read the key {path}: {error}") from error
    if mode & 0o077:
        raise HearthNetError("unauthorized", f"the key {path} can be read by others; run: chmod 600 {path}")
    try:
        return Identity.from_text(text)
    except HearthNetError as error:
        raise HearthNetError(
            "bad_request",
            f"the key {path} {error.message}; put back a copy of it, or move it away for a new identity",
        ) from error


def create_identity(path: Path) -> Identity:
    """Make a new identity and save it under `path` with mode 0600.

    Raises:
        FileExistsError: The file exists.
    """
    identity = Identity.generate()
    write_new(path, identity.to_text().encode("ascii"))
    return identity


def load_roster(path: Path, own: str = "") -> Roster:
    """Load the verified roster in `path`; a seal of the node `own` saves verifying events.

    Raises:
        HearthNetError: `not_found`, `bad_request` or `invalid_signature`, naming the file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise HearthNetError(
            "not_found", f"no roster at {path}; `hearthnet up` founds a community"
        ) from error
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot read the roster {path}: {error}") from error
    try:
        return rosters.decode(data, own)
    except HearthNetError as error:
        raise HearthNetError(
            error.code,
            f"the roster {path} {error.message}; put back a copy, or move it away to found a new community",
        ) from error


def write_new(path: Path, data: bytes) -> None:
    """Write `data` to a new file of mode 0600, durably and atomically.

    Raises:
        FileExistsError: The file exists.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        raise FileExistsError(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
