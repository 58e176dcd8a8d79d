"""The authors whom persons of this home have muted: in a file of this home, and in no event.

The processes of the service share the file. It is no view: the choices are in no event. A damaged file is put
aside, and an empty one takes its place.

See: docs/market.md#muting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from hearthnet import Call, HearthNetError, NodeContext
from hearthnet.core import now_ms, rfc3339
from hearthnet_market.database import locked, unreadable
from hearthnet_market.schemas import MuteInput

_log = logging.getLogger(__name__)
MOST_MUTED: Final = 500
"""Authors that one person can mute."""
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS muted (
      by TEXT NOT NULL, author TEXT NOT NULL, person TEXT NOT NULL, at INTEGER NOT NULL,
      PRIMARY KEY (by, author)
    ) STRICT, WITHOUT ROWID"""
Principals = Callable[[str], frozenset[str]]
"""Returns the principals whose posts belong to the owner of a principal, or to a person."""


class Muted(NamedTuple):
    """A muted author: the principal that was named, its person at that time or "", and the time in ms."""

    author: str
    person: str
    at: int

    def principals(self, principals: Principals) -> frozenset[str]:
        """Return the authors of posts who are meant: the devices of the person by now."""
        return principals(self.person or self.author)

    def shown(self, principals: Principals) -> dict[str, Any]:
        """Return the author in the form in which `market.list` returns it."""
        author, _, guest = self.author.partition("/")
        nodes = [author] if guest else sorted(one for one in self.principals(principals) if "/" not in one)
        return {
            "author": author,
            **({"guest": guest} if guest else {}),
            "nodes": [one for one in nodes if one != self.person or one == author],
            "at": rfc3339(self.at),
        }


class Mutes:
    """The muted authors of each person of the home; persons are named by their principals.

    Every method blocks for as long as SQLite does; callers run them in a thread.
    """

    def __init__(self, path: Path) -> None:
        """Open the file at `path`, or create it; a damaged one is put aside."""
        self._lock = threading.Lock()
        with locked(path):
            self.are_lost = not _is_sound(path)
            if self.are_lost:
                _log.error("%s is damaged and put aside: no author is muted any more", path)
                path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
                path.replace(path.with_name(f"{path.name}.damaged"))
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
            self._database.execute("PRAGMA secure_delete = ON")
            self._database.execute(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def of(self, by: str) -> list[Muted]:
        """Return the authors whom `by` has muted, in the order in which this was done."""
        sql = "SELECT author, person, at FROM muted WHERE by = ? ORDER BY at, author"
        with self._lock:
            return [Muted(*row) for row in self._database.execute(sql, (by,))]

    def mute(self, by: str, muted: Muted, principals: Principals) -> None:
        """Mute an author for `by`, unless that is so already.

        Raises:
            HearthNetError: `capacity_exceeded` if `by` has muted `MOST_MUTED` authors.
        """
        before = self.of(by)
        if any(muted.author in one.principals(principals) for one in before):
            return
        if len(before) >= MOST_MUTED:
            raise HearthNetError(
                "capacity_exceeded",
                f"one person mutes at most {MOST_MUTED} authors; see: hearthnet market list --muted",
            )
        with self._lock:
            self._database.execute("INSERT OR IGNORE INTO muted VALUES (?, ?, ?, ?)", (by, *muted))

    def unmute(self, by: str, author: str, principals: Principals) -> None:
        """Take back what mutes `author` for `by`, whichever device of its person was named then."""
        meant = [one.author for one in self.of(by) if author in {one.author, *one.principals(principals)}]
        with self._lock:
            self._database.executemany(
                "DELETE FROM muted WHERE by = ? AND author = ?", [(by, one) for one in meant]
            )

    def forget(self, by: str) -> int:
        """Delete all that `by` has muted, and return the number."""
        with self._lock:
            return self._database.execute("DELETE FROM muted WHERE by = ?", (by,)).rowcount


def _is_sound(path: Path) -> bool:
    """Return whether the file can be read, or is not there yet."""
    with contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
        try:
            return bool(database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
        except sqlite3.DatabaseError as error:
            if not unreadable(error):
                raise
            return False


class Muting:
    """Muted authors as calls decide and see them.

    The owner is one person at the command line and at all pages.
    """

    def __init__(self, node: NodeContext, mutes: Mutes) -> None:
        self._node = node
        self._mutes = mutes
        self.are_lost = mutes.are_lost

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._mutes.close)

    async def decide(self, call: Call[Any, MuteInput]) -> None:
        """Mute the author that the caller names, or take that back.

        Raises:
            HearthNetError: `unauthorized` if the caller is no person of this home; `bad_request` if it is the
                author; as `Mutes.mute`.
        """
        if not self._node.is_of_home(call):
            raise HearthNetError("unauthorized", "each person mutes at home, with a key of their own")
        member, principal = call.input.author, call.input.principal
        author = member if principal in self._principals(member) else principal
        by = self._person(call)
        if author in self._node.principals_of(call) | self._principals(by):
            raise HearthNetError(
                "bad_request",
                "cannot mute oneself; name another author",
                details={"path": "/input/author", "rule": "self"},
            )
        if call.input.muted:
            owner = self._node.bus.peer.roster.owner(author)
            muted = Muted(author, owner if owner != author else "", now_ms())
            await asyncio.to_thread(self._mutes.mute, by, muted, self._principals)
        else:
            await asyncio.to_thread(self._mutes.unmute, by, author, self._principals)

    async def left_out(self, call: Call[Any, Any]) -> frozenset[str]:
        """Return the authors whose posts the caller does not see."""
        muted = await self._muted_by(call)
        return frozenset[str]().union(*(one.principals(self._principals) for one in muted))

    async def shown(self, call: Call[Any, Any]) -> list[dict[str, Any]]:
        """Return the authors whom the caller has muted, in the form in which `market.list` returns them.

        None for a client without a key, to which the owner may have given the name of another person.
        """
        if not self._node.is_of_home(call):
            return []
        return [one.shown(self._principals) for one in await self._muted_by(call)]

    async def forget(self, person: str) -> int:
        """Delete all that a removed person of the home has muted, and return the number."""
        return await asyncio.to_thread(self._mutes.forget, f"{self._node.identity.node_id}/{person}")

    async def _muted_by(self, call: Call[Any, Any]) -> list[Muted]:
        # Of another home's callers nothing is kept here, and a guest there may have the name of one of here.
        if call.caller != self._node.identity.node_id:
            return []
        return await asyncio.to_thread(self._mutes.of, self._person(call))

    def _person(self, call: Call[Any, Any]) -> str:
        own = self._node.identity.node_id
        return own if call.principal in self._principals(own) else call.principal

    def _principals(self, principal: str) -> frozenset[str]:
        return self._node.bus.peer.roster.principals(principal)
