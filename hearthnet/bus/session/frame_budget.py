"""Budgets for the frames of other nodes, charged before a frame is opened or its signature verified.

A process hears whatever another node publishes to it, and opening a frame costs its reader ten times what
repeating it costs its sender. So each node has a budget for each family of subjects, and what exceeds it is
dropped after one look at the subject, whose sender the server guarantees. Frames of this node are not
counted.

See: docs/protocol/admission.md#frame-budgets, docs/decisions/0200.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Final

from hearthnet.core import ids
from hearthnet.core.rate_limits import TokenBucket
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.times import steady_ms
from hearthnet.protocol.frame import MAX_FOREIGN_BYTES

_log = logging.getLogger(__name__)
UNIT_BYTES: Final = 16_384
"""A frame is one unit, and so is each 16 KiB of it, which take about as long to decrypt and to parse."""
_TOKEN: Final = 43
"""Characters of a node in a subject."""


class FrameBudget:
    """The budget of each other node for frames on `hn.<family>` to this process of node `own`.

    `burst` units at once and `per_second` in the long run; without `burst` their number has no limit. Frames
    that this process did not request have up to `MAX_FOREIGN_BYTES`. `account` returns whose budget a node
    uses, where it is not its own: keys of invites cost nothing (`Roster.account`).
    """

    __slots__ = ("_account", "_bucket", "_drop_log", "_family", "_most_bytes", "_own", "_sender", "dropped")

    def __init__(
        self,
        own: str,
        family: str,
        burst: int,
        per_second: int,
        account: Callable[[str], str] = lambda node: node,
    ) -> None:
        start = len(f"hn.{family}.")
        self._own = ids.token_form(own)
        self._family = family
        self._account = account
        self._most_bytes = sys.maxsize if family == "rep" else MAX_FOREIGN_BYTES
        self._sender = slice(start, start + _TOKEN)
        self._bucket = TokenBucket(burst, per_second) if burst else None
        self._drop_log = RationedLog(_log)
        self.dropped = 0
        """The number of frames that were dropped unread."""

    def admits(self, subject: str, size: int) -> bool:
        """Charge a frame of `size` bytes to the sender in its subject; False if it must be dropped."""
        sender = subject[self._sender]
        if sender == self._own:
            return True
        now = steady_ms()
        if size <= self._most_bytes and (
            self._bucket is None
            or self._bucket.take(self._account(ids.PREFIX + sender), 1 + size // UNIT_BYTES, now)
        ):
            return True
        self.dropped += 1
        self._drop_log.write(
            "%s sends more or larger %s frames than are read; %d were dropped unread so far",
            sender[:8],
            self._family,
            self.dropped,
        )
        return False

    def charge(self, subject: str, units: int) -> None:
        """Charge work that was found inside a frame that was admitted."""
        sender = subject[self._sender]
        if sender != self._own and self._bucket is not None:
            self._bucket.spend(self._account(ids.PREFIX + sender), units, steady_ms())

    def refund(self, subject: str, size: int) -> None:
        """Give back the charge of a frame that this process had requested."""
        self.charge(subject, -1 - size // UNIT_BYTES)
