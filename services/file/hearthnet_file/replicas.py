"""Table of the nodes that advertised which blobs.

See: docs/capabilities.md#fileadvertise10.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hearthnet import HearthNetError

RETENTION_MS: Final = 24 * 3_600_000
MOST_OF_A_NODE: Final = 20_000
MAX_NODES: Final = 8


class Holders:
    """The table, in a file of the service's folder; rows expire after a day. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS holders (cid TEXT, node TEXT, at INTEGER, PRIMARY KEY (cid, node)) "
            "WITHOUT ROWID"
        )

    def record(self, node: str, cids: Sequence[str], now_ms: int) -> int:
        """Record that `node` keeps `cids`, and return the number of different ones.

        Raises:
            HearthNetError: `capacity_exceeded` if the node would have more than `MOST_OF_A_NODE` rows.
        """
        wanted = sorted(set(cids))
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("DELETE FROM holders WHERE at <= ?", (now_ms - RETENTION_MS,))
            self._database.executemany(
                "INSERT OR REPLACE INTO holders VALUES (?, ?, ?)", [(cid, node, now_ms) for cid in wanted]
            )
            (count,) = self._database.execute(
                "SELECT count(*) FROM holders WHERE node = ?", (node,)
            ).fetchone()
            if count > MOST_OF_A_NODE:
                raise HearthNetError(
                    "capacity_exceeded", f"of one node, {MOST_OF_A_NODE} blobs a day are kept in mind"
                )
        return len(wanted)

    def of(self, cid: str, now_ms: int) -> list[str]:
        """Return up to `MAX_NODES` nodes that keep `cid`, the latest advertisement first."""
        query = "SELECT node FROM holders WHERE cid = ? AND at > ? ORDER BY at DESC, node LIMIT ?"
        with self._lock:
            found = self._database.execute(query, (cid, now_ms - RETENTION_MS, MAX_NODES)).fetchall()
        return [node for (node,) in found]

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()
