"""Calls that wait until somebody can answer them (docs/decisions/0125).

    put       on the disk, signed, before it is sent
    deliver   sent with its own client id, as often as needed; gone once there is an answer
              refused for good, or too late: kept with the reason, until a person takes it away
    remove    withdrawn, not while it is being sent

A file a call. Its body was decided on by a person, so that it is sent as it is or not at all: one that was
altered is not sent, and one whose time is over is not sent without asking again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet import ids
from hearthnet.canonical import read_json
from hearthnet.contracts import contracts
from hearthnet.errors import HearthNetError
from hearthnet.home import Home
from hearthnet.trust import signed
from hearthnet.trust.keys import Identity

PURPOSE: Final = "kept call"
PASSING: Final = frozenset({"partition", "timeout", "capacity_exceeded", "rate_limited", "outcome_unknown"})
"""Answers after which the same call may be sent again, and its effect is still one."""
_LOCK_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05
Send = Callable[[str, dict[str, Any]], Awaitable[Any]]


class Kept(signed.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that waits. `time` and `expires` are in milliseconds: when it was decided on, and until when
    that holds.
    """

    id: str
    capability: str
    body: dict[str, Any]
    node: str
    community: str
    time: int
    expires: int
    v: int = 1


class State(msgspec.Struct, frozen=True):
    """A call in the outbox; `code` and `message` say why it will not be sent, empty while it waits."""

    call: Kept
    code: str = ""
    message: str = ""


_KEPT: Final = msgspec.json.Decoder(Kept)


class KeptCalls:
    """The calls that wait in one home."""

    def __init__(self, home: Home, identity: Identity) -> None:
        self._folder = home.outbox
        self._identity = identity

    def put(
        self, capability: str, body: dict[str, Any], *, community: str, now_ms: int, seconds: float
    ) -> Kept:
        """Keeps a call that has a client id, on the disk when this returns, to be sent within `seconds`.

        One with the same client id and another body is refused with `bad_request`.
        """
        client_id = body.get("input", {}).get("client_id")
        if not isinstance(client_id, str) or not ids.is_ulid(client_id):
            raise HearthNetError("bad_request", "only a call with a client_id can be sent later, once")
        call = Kept(
            id=client_id,
            capability=capability,
            body=body,
            node=self._identity.node_id,
            community=community,
            time=now_ms,
            expires=now_ms + int(seconds * 1000),
        )
        path = self._path(client_id)
        if path.exists() and self._read(path).body != body:
            raise HearthNetError("bad_request", f"{client_id} waits for something else; make a new client_id")
        _write(path, signed.sign(call, self._identity, PURPOSE))
        return call

    def states(self, now_ms: int) -> list[State]:
        """All that is there, the oldest first; what cannot be read as it was written is told as such."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(FileNotFoundError):
                found.append(self._state(path, now_ms))
        return found

    async def remove(self, client_id: str) -> None:
        """Takes a call back, or its notice away; waits while it is being sent.

        `not_found` where there is none: it was sent, or never there.
        """
        async with asyncio.timeout(_LOCK_SECONDS):
            while True:
                with self._alone() as alone:
                    if alone:
                        self._drop(client_id)
                        return
                await asyncio.sleep(_PAUSE_SECONDS)

    async def deliver(self, send: Send, clock: Callable[[], int]) -> list[str]:
        """Sends what waits, one after the other, and returns the ids of what was answered.

        Stops where an answer says that it may be sent again; only one process of a home sends at a time.
        """
        done: list[str] = []
        if not self._folder.exists():
            return done
        with self._alone() as alone:
            for state in self.states(clock()) if alone else ():
                if state.code:
                    continue
                try:
                    await send(state.call.capability, state.call.body)
                except HearthNetError as error:
                    if passing(state.call.capability, error):
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
        _sync(self._folder)

    def _refuse(self, client_id: str, error: HearthNetError) -> None:
        reason = {"code": error.code, "message": error.message}
        _write_bytes(self._path(client_id).with_suffix(".why"), msgspec.json.encode(reason))

    def _state(self, path: Path, now_ms: int) -> State:
        try:
            call = self._read(path)
        except HearthNetError as error:
            nothing = Kept(id=path.stem, capability="", body={}, node="", community="", time=0, expires=0)
            return State(nothing, error.code, f"not sent: {error.message}")
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.convert(
                {"call": call, **msgspec.json.decode(path.with_suffix(".why").read_bytes(), type=dict)}, State
            )
        if now_ms > call.expires:
            return State(call, "expired", "not sent: its time is over; if it is still wanted, send it anew")
        return State(call)

    def _read(self, path: Path) -> Kept:
        call = read_json(path.read_bytes(), _KEPT)
        signed.check(call, self._identity.node_id, PURPOSE)
        if call.id != path.stem or call.body.get("input", {}).get("client_id") != call.id:
            raise HearthNetError("invalid_signature", "it lies under the name of another call")
        return call

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process sends or takes back just now; then none does meanwhile."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def passing(capability: str, error: HearthNetError) -> bool:
    """Whether the same call may be sent again later: nobody offers it now, or it is not known what became of
    it.
    """
    nobody = error.code == "not_found" and "not_found" not in contracts().find(capability).errors
    return nobody or error.code in PASSING


def _write(path: Path, call: Kept) -> None:
    _write_bytes(path, msgspec.json.encode(call))


def _write_bytes(path: Path, data: bytes) -> None:
    """The file whole or not at all, and on the disk when this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
