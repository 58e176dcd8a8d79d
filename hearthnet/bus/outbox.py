"""Calls that wait until a provider is available (docs/decisions/0125).

    put       on the disk, signed, before it is sent
    deliver   sent with its own client id, as often as needed; deleted after an answer
              refused finally, or too late: kept with the reason, until a person removes it
    remove    withdrawn, not while it is being sent

One file per call. A person decided on its body, so it is sent unchanged or not at all: an altered call is not
sent, nor is an expired one without a new decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import sync_folder, write_whole
from hearthnet.core.home import Home
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity

PURPOSE: Final = "kept call"
RETRYABLE: Final = frozenset({"partition", "timeout", "capacity_exceeded", "rate_limited", "outcome_unknown"})
"""Answers after which the same call may be sent again, with one effect at most."""
_LOCK_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05
Send = Callable[[str, dict[str, Any]], Awaitable[Any]]


class QueuedCall(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that waits.

    `time` and `expires` are in milliseconds: the time of the decision, and the end of its validity.
    """

    id: str
    capability: str
    body: dict[str, Any]
    node: str
    community: str
    time: int
    expires: int
    v: int = 1


class OutboxState(msgspec.Struct, frozen=True):
    """A call in the outbox; `code` and `message` are the refusal, empty while it waits."""

    call: QueuedCall
    code: str = ""
    message: str = ""


_DECODER: Final = msgspec.json.Decoder(QueuedCall)


class Outbox:
    """The calls that wait in one home."""

    def __init__(self, home: Home, identity: Identity) -> None:
        self._folder = home.outbox
        self._identity = identity
        self._not_before: dict[str, int] = {}
        """When calls that were refused with `rate_limited` are sent again, in ms."""

    def put(
        self, capability: str, body: dict[str, Any], *, community: str, now_ms: int, seconds: float
    ) -> QueuedCall:
        """Store a call with a client id, durably, to be sent within `seconds`.

        Raises:
            HearthNetError: `bad_request` without a client id, and where one of that id waits with another
                capability or body.
        """
        client_id = body.get("input", {}).get("client_id")
        if not isinstance(client_id, str) or not ids.is_ulid(client_id):
            raise HearthNetError("bad_request", "only a call with a client_id can be sent later, once")
        call = QueuedCall(
            id=client_id,
            capability=capability,
            body=body,
            node=self._identity.node_id,
            community=community,
            time=now_ms,
            expires=now_ms + int(seconds * 1000),
        )
        path = self._path(client_id)
        if path.exists() and ((waiting := self._read(path)).capability, waiting.body) != (capability, body):
            raise HearthNetError("bad_request", f"{client_id} waits for something else; make a new client_id")
        _write(path, msgspec.json.encode(signed_document.sign(call, self._identity, PURPOSE)))
        return call

    def states(self, now_ms: int) -> list[OutboxState]:
        """Return all calls, the oldest first; damaged ones with the error as refusal."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(FileNotFoundError):
                found.append(self._state(path, now_ms))
        return found

    async def remove(self, client_id: str) -> None:
        """Withdraw a call, or delete its refusal; wait while it is being sent.

        Raises:
            HearthNetError: `not_found` if there is none: it was sent, or never stored.
        """
        async with asyncio.timeout(_LOCK_SECONDS):
            while True:
                with self._alone() as alone:
                    if alone:
                        self._drop(client_id)
                        return
                await asyncio.sleep(_PAUSE_SECONDS)

    async def deliver(self, send: Send, clock: Callable[[], int]) -> list[str]:
        """Send the waiting calls in order, and return the ids of the answered ones.

        Stops at an answer after which the call may be sent again, but for `rate_limited` with a time, before
        which it is left out. Only one process of a home sends at a time.
        """
        done: list[str] = []
        if not self._folder.exists():
            return done
        with self._alone() as alone:
            for state in self.states(clock()) if alone else ():
                if state.code or clock() < self._not_before.get(state.call.id, 0):
                    continue
                try:
                    await send(state.call.capability, state.call.body)
                except HearthNetError as error:
                    if error.code == "rate_limited" and error.retry_after_ms is not None:
                        self._not_before[state.call.id] = clock() + error.retry_after_ms
                        continue
                    if is_retryable(state.call.capability, error):
                        break
                    self._refuse(state.call.id, error)
                else:
                    self._drop(state.call.id)
                    done.append(state.call.id)
        return done

    def _path(self, client_id: str) -> Path:
        return self._folder / f"{client_id}.json"

    def _drop(self, client_id: str) -> None:
        if not ids.is_ulid(client_id) or not self._path(client_id).exists():
            raise HearthNetError(
                "not_found", f"no call {client_id} waits; it was sent, or withdrawn: hearthnet outbox list"
            )
        self._path(client_id).unlink()
        self._path(client_id).with_suffix(".why").unlink(missing_ok=True)
        sync_folder(self._folder)

    def _refuse(self, client_id: str, error: HearthNetError) -> None:
        reason = {"code": error.code, "message": error.message}
        _write(self._path(client_id).with_suffix(".why"), msgspec.json.encode(reason))

    def _state(self, path: Path, now_ms: int) -> OutboxState:
        try:
            call = self._read(path)
        except HearthNetError as error:
            nothing = QueuedCall(
                id=path.stem, capability="", body={}, node="", community="", time=0, expires=0
            )
            return OutboxState(nothing, error.code, f"not sent: {error.message}")
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.convert(
                {"call": call, **msgspec.json.decode(path.with_suffix(".why").read_bytes(), type=dict)},
                OutboxState,
            )
        if now_ms > call.expires:
            return OutboxState(
                call, "expired", "not sent: its time is over; if it is still wanted, send it anew"
            )
        return OutboxState(call)

    def _read(self, path: Path) -> QueuedCall:
        call = read_json(path.read_bytes(), _DECODER)
        signed_document.check(call, self._identity.node_id, PURPOSE)
        if call.id != path.stem or call.body.get("input", {}).get("client_id") != call.id:
            raise HearthNetError("invalid_signature", "it lies under the name of another call")
        return call

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Yield whether this process holds the lock on sending and withdrawing."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def is_retryable(capability: str, error: HearthNetError) -> bool:
    """Return whether the same call may be sent again.

    It may if no process offers it now, or its effect is unknown.
    """
    nobody = error.code == "not_found" and "not_found" not in contracts().find(capability).errors
    return nobody or error.code in RETRYABLE


def _write(path: Path, data: bytes) -> None:
    """Write the file atomically and durably."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, data, durable=True)
    sync_folder(path.parent)
