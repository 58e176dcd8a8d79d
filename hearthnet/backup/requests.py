"""Requests to the supervisor for the files of one moment, as files in `run/backups`.

    <id>.request    made by the process that makes the backup
    <id>.reply      the files of the moment, or the error
    backup/<id>     the copies, removed by the process that requested them

See: docs/protocol/backup.md#one-moment.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.backup.home_files import FileState, HomeCopy
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home

_REQUEST: Final = ".request"
_REPLY: Final = ".reply"
_ID: Final = re.compile("[0-9A-Z]{26}")


class Request(msgspec.Struct, frozen=True):
    """A request of the process `pid`; the files of `known` need no copy while they are as named."""

    pid: int
    known: dict[str, FileState]


class Reply(msgspec.Struct, frozen=True):
    """The moment, or the error that there is none."""

    moment: HomeCopy | None = None
    code: str = ""
    message: str = ""


def staging(home: Home, request: str) -> Path:
    """Return the folder with the copies for a request."""
    return home.backup / request


def ask(home: Home, known: dict[str, FileState]) -> str:
    """Write a request and return its id."""
    request = ids.new_ulid()
    home.backup_requests.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(
        home.backup_requests / f"{request}{_REQUEST}", msgspec.json.encode(Request(os.getpid(), known))
    )
    return request


def answer(home: Home, request: str) -> HomeCopy | None:
    """Return the moment of a request, None while there is no reply.

    Raises:
        HearthNetError: The error of the supervisor.
    """
    try:
        data = (home.backup_requests / f"{request}{_REPLY}").read_bytes()
    except FileNotFoundError:
        return None
    reply = msgspec.json.decode(data, type=Reply)
    if reply.moment is None:
        raise HearthNetError(reply.code, reply.message)
    return reply.moment


def forget(home: Home, request: str) -> None:
    """Remove a request, its reply and its copies."""
    for suffix in (_REQUEST, _REPLY):
        (home.backup_requests / f"{request}{suffix}").unlink(missing_ok=True)
    shutil.rmtree(staging(home, request), ignore_errors=True)


def forget_all(home: Home) -> None:
    """Remove what interrupted backups left."""
    shutil.rmtree(home.backup_requests, ignore_errors=True)
    try:
        left = [path for path in home.backup.iterdir() if _ID.fullmatch(path.name)]
    except FileNotFoundError:
        return
    for path in left:
        shutil.rmtree(path, ignore_errors=True)


def forget_dead(home: Home) -> None:
    """Remove the requests of processes that were killed, and their copies."""
    try:
        names = [path.name for path in home.backup_requests.iterdir() if path.name.endswith(_REQUEST)]
    except FileNotFoundError:
        return
    for request in (name.removesuffix(_REQUEST) for name in names):
        try:
            os.kill(read(home, request).pid, 0)
        except (ProcessLookupError, msgspec.DecodeError):
            forget(home, request)
        except OSError:
            continue


def waiting(home: Home) -> list[str]:
    """Return the ids of the requests without a reply, the oldest first."""
    try:
        names = {path.name for path in home.backup_requests.iterdir()}
    except FileNotFoundError:
        return []
    wanted = (name.removesuffix(_REQUEST) for name in names if name.endswith(_REQUEST))
    return sorted(each for each in wanted if _ID.fullmatch(each) and f"{each}{_REPLY}" not in names)


def read(home: Home, request: str) -> Request:
    """Return a request.

    Raises:
        OSError: It was withdrawn.
    """
    return msgspec.json.decode((home.backup_requests / f"{request}{_REQUEST}").read_bytes(), type=Request)


def reply(home: Home, request: str, answered: Reply) -> None:
    """Write the reply to a request."""
    write_whole(home.backup_requests / f"{request}{_REPLY}", msgspec.json.encode(answered))
