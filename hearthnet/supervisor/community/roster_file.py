"""`community/roster.json`: written by the supervisor alone, and never losing events."""

from __future__ import annotations

from pathlib import Path

from hearthnet.bus.session import keyring
from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.os.atomic_files import file_errors, write_whole
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity


class RosterFile:
    """The roster of one home on its disk, sealed by its own node."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path = path
        self._identity = identity

    def keep(self, roster: Roster) -> Roster:
        """Add the events of `roster` to the file, durably and atomically; return both merged.

        Errors of a damaged file are passed through, with its name; that file, and one of another community,
        are not overwritten.

        Raises:
            HearthNetError: `unauthorized` for a file of another community; `capacity_exceeded` for a full
                disk, on which the file stays as it was.
        """
        held = self._held()
        if held is not None and held.community_id != roster.community_id:
            raise HearthNetError(
                "unauthorized",
                f"{self._path} became that of another community while the node ran; restart the node",
            )
        if held is not None and roster.lacks(held.heads()):
            roster = rosters.merge(roster, held.events)
        if held is None or held.lacks(roster.heads()):
            with file_errors(self._path):
                content = rosters.encode(rosters.seal(roster, self._identity))
                write_whole(self._path, content, durable=True)
        return roster

    def _held(self) -> Roster | None:
        try:
            return keyring.load_roster(self._path, self._identity.node_id)
        except HearthNetError as error:
            if error.code == "not_found":
                return None
            raise
