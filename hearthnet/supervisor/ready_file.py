"""The file that tells scripts that the node is ready (`hearthnet up --ready-file`)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.node_state import NodeState
from hearthnet.supervisor.os.disk import file_errors


class ReadyFile:
    """The file at `path`, which exists only while the node is ready.

    Its content is that of `run/node.json`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def clear(self) -> None:
        """Remove the file of an earlier node.

        Raises:
            HearthNetError: `bad_request` if the file is something else, or no file can be written there.
        """
        with file_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                return
            try:
                msgspec.json.decode(self._path.read_bytes(), type=NodeState)
            except msgspec.DecodeError as error:
                raise HearthNetError(
                    "bad_request",
                    f"{self._path} exists and is no ready-file; name another path with --ready-file",
                ) from error
            self._path.unlink()

    def write(self, state: NodeState) -> None:
        """Write the file atomically."""
        with file_errors(self._path):
            write_whole(self._path, msgspec.json.encode(state) + b"\n")

    def remove(self) -> None:
        """Remove the file if possible."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
