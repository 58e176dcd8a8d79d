"""The record of refused approvals and standing grants in the audit log.

A forged or misused consent is recorded with its sender, the call, and the failed check. A flood of them is
summarised, so that no caller can fill the log:

    the first few of a caller in a day    an entry each, at once
    more of them                          counted, and written after a minute: one entry per failed check
    still more                            the same, after twice as long each time, up to an hour

`RefusalCounter` is pure; `Refusals` writes its results, for the calls of a service and for the decisions of a
gateway's clients. If the log cannot be written now, an entry is lost; what was refused stays refused.

See: docs/protocol/approvals.md#refusals-on-record, docs/decisions/0074.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from hearthnet.bus.session.session import Session
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.protocol.header import Header
from hearthnet.trust.audit_chain import AuditEntry

WINDOW_MS: Final = 60_000
LONGEST_MS: Final = 60 * 60_000
SINGLE: Final = 8
"""Number of refusals per caller with an entry of their own, in a day."""
DAY_MS: Final = 24 * 60 * 60_000
MOST_CALLERS: Final = 512
"""Maximum of callers counted separately; all further ones are counted together."""
_LONGEST_NAME: Final = 64
_LONGEST_CAPABILITY: Final = 140
_FAREWELL_SECONDS: Final = 2.0
_log: Final = logging.getLogger(__name__)


class ConsentRefused(HearthNetError):
    """An approval or a standing grant that is not valid for the call that names it."""

    arguments_digest = ""

    @classmethod
    def of(cls, error: HearthNetError, arguments_digest: str) -> ConsentRefused:
        """Return `error` as one about the consent to a call with arguments of this digest."""
        refused = cls(error.code, error.message, details=error.details)
        refused.arguments_digest = arguments_digest
        return refused

    @property
    def rule(self) -> str:
        """The failed check: the differing property (trust/authorization/approval.py), else the wire code."""
        return str(self.details.get("rule", self.code))


class Key(NamedTuple):
    """The properties of refusals that are counted together; `caller` may be the principal of a client."""

    caller: str
    rule: str
    code: str


OTHERS: Final = Key("", "others", "unauthorized")


class _Window:
    __slots__ = ("counts", "day_ends", "length", "single", "until")

    def __init__(self, now: int) -> None:
        self.day_ends = now + DAY_MS
        self.length = WINDOW_MS
        self.until = now + WINDOW_MS
        self.single = SINGLE
        self.counts: Counter[Key] = Counter()


class RefusalCounter:
    """The counts of refusals without an entry yet; times are ms of a monotonic clock."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def add(self, key: Key, now: int) -> bool:
        """Count one more refusal; return True if it gets an entry of its own instead."""
        if key.caller not in self._windows and len(self._windows) >= MOST_CALLERS:
            key = OTHERS
        window = self._windows.get(key.caller)
        if window is None:
            window = self._windows[key.caller] = _Window(now)
        if window.single and key != OTHERS:
            window.single -= 1
            return True
        window.counts[key] += 1
        return False

    def pop_due(self, now: int) -> list[tuple[Key, int]]:
        """Return the counts to write now, and forget callers after a day without further refusals."""
        found: list[tuple[Key, int]] = []
        for caller, window in list(self._windows.items()):
            if now < window.until:
                continue
            if window.counts:
                found += window.counts.items()
                window.counts.clear()
                window.length = min(2 * window.length, LONGEST_MS)
            elif now >= window.day_ends:
                del self._windows[caller]
                continue
            window.until = now + window.length
        return found

    def flush(self) -> list[tuple[Key, int]]:
        """Return all counts that are not written yet, and reset them."""
        found = [each for window in self._windows.values() for each in window.counts.items()]
        self._windows.clear()
        return found


class Refusals:
    """The refused consents of one process."""

    def __init__(
        self,
        append: Callable[[AuditEntry], Awaitable[Any]],
        origin: Mapping[str, str],
        named: Literal["caller", "principal"] = "caller",
    ) -> None:
        """Write entries with `append`: with the fields `origin`, and `Key.caller` in the field `named`."""
        self._append = append
        self._origin = dict(origin)
        self._named = named
        self._tally = RefusalCounter()
        self._tasks = TaskSet()

    def record(self, key: Key, describe: Callable[[], dict[str, Any]]) -> asyncio.Task[None] | None:
        """Count one more; return the task that writes an entry of its own, if it gets one.

        `describe` returns the further fields of that entry.
        """
        return self._write(key, 1, describe()) if self._tally.add(key, steady_ms()) else None

    def tick(self) -> None:
        """Write the counts that are due; to be called about once a second, or before each `record`."""
        for key, count in self._tally.pop_due(steady_ms()):
            self._write(key, count, {"call": ""})

    async def close(self) -> None:
        """Write the remaining counts, and stop."""
        for key, count in self._tally.flush():
            self._write(key, count, {"call": ""})
        await self._tasks.finish(_FAREWELL_SECONDS)

    def _write(self, key: Key, count: int, fields: dict[str, Any]) -> asyncio.Task[None]:
        given = {"instance": "", **self._origin, self._named: key.caller, **fields}
        entry = AuditEntry(
            sequence=0,
            previous="",
            time=now_ms(),
            kind="refused",
            code=key.code,
            rule=key.rule,
            count=count,
            **given,
        )
        return self._tasks.start(self._put(entry), "refused consent")

    async def _put(self, entry: AuditEntry) -> None:
        try:
            await self._append(entry)
        except HearthNetError as error:
            _log.error("a refused consent (%s) is not on record: %s", entry.rule, error)


def of_call(peer: Session, header: Header, evidence: bytes | None, arguments_digest: str) -> dict[str, Any]:
    """Return the fields of an entry for a call; `evidence` is the caller's signed frame."""
    token, principal = "", header.sender
    if header.token:
        claims = peer.tokens.claims(header.token)
        token, principal = claims.jti, f"{claims.iss}/{claims.principal}" if claims.principal else claims.iss
    return {
        "call": header.id,
        "capability": header.capability[:_LONGEST_CAPABILITY],
        "principal": principal,
        "token": token,
        "run": header.run[:_LONGEST_NAME],
        "approval": _id_of(header.approval),
        "grant": _id_of(header.grant),
        "use": header.use,
        "digest": arguments_digest,
        "idempotency_key": header.idempotency_key[:_LONGEST_NAME],
        "frame": content_hash(evidence or b""),
    }


def _id_of(consent: Any) -> str:
    """Return the id that a consent states, if it has the form of one."""
    named = consent.get("id") if isinstance(consent, dict) else None
    return named[:_LONGEST_NAME] if isinstance(named, str) else ""
