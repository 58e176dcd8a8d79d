"""The operators of a home: people who inspect its services with NATS tools.

`keys/operators/NAME.nk` is an operator: the seed of its login, in the form that every NATS client reads.
The login is valid as long as the file exists (docs/operations.md).
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.supervisor.os.disk import file_errors, make_folder
from hearthnet.trust.keys import Login

LOOK_SECONDS: Final = 0.5
_SUFFIX: Final = ".nk"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_SEED: Final = re.compile(rb"SU[A-Z2-7]{56}\s*")
_log = logging.getLogger(__name__)


class Operator(NamedTuple):
    """One operator, and the file that holds the seed of its login."""

    name: str
    login: Login
    seed_file: Path


def create(home: Home, name: str) -> Operator:
    """Create an operator.

    Raises:
        HearthNetError: `bad_request` for an invalid name, or the name of an existing operator.
    """
    _check(name)
    path, login = _file(home, name), Login(secrets.token_bytes(32))
    make_folder(path.parent)
    with file_errors(path):
        try:
            _write(path, login.seed + b"\n")
        except FileExistsError as error:
            raise HearthNetError(
                "bad_request",
                f"there is an operator {name} already, with its seed in {path}; take another name, or remove "
                f"it first: hearthnet operator remove {name}",
            ) from error
    return Operator(name, login, path)


def remove(home: Home, name: str) -> None:
    """Remove an operator and its login.

    Raises:
        HearthNetError: `not_found` if there is no such operator.
    """
    path = _file(home, name)
    with file_errors(path):
        if not _NAME.fullmatch(name) or not path.exists():
            raise HearthNetError("not_found", f"there is no operator {name[:80]!r}")
        path.unlink()


def names(home: Home) -> list[str]:
    """Return the names of all operators, including those with damaged files."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in _files(home))


def read(home: Home, tell: Callable[[str], None]) -> list[Operator]:
    """Return the operators of `home` by name; `tell` receives a line for each invalid file."""
    found: dict[str, Operator] = {}
    for name in names(home):
        try:
            operator = _load(name, _file(home, name))
        except HearthNetError as error:
            tell(error.message)
        else:
            # A server refuses a configuration that names a login twice.
            found.setdefault(operator.login.public, operator)
    return list(found.values())


class Operators:
    """The operators of a running home; `logins` are the logins that are valid now."""

    def __init__(self, home: Home, news: Callable[[str], None]) -> None:
        self._home = home
        self._news = news
        self._reported: set[str] = set()
        self._files_state = self._look()
        self.logins: tuple[str, ...] = self._read()

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `logins` has changed; until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            state = self._look()
            if state != self._files_state:
                self._files_state, self.logins = state, self._read()
                changed()

    def _read(self) -> tuple[str, ...]:
        return tuple(operator.login.public for operator in read(self._home, self._report))

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            _log.error("%s", text)
            self._news(text)

    def _look(self) -> list[tuple[str, int, int, int]]:
        """Return a value that changes when an operator is made, removed or altered."""
        looked = []
        for path in _files(self._home):
            try:
                status = path.stat()
            except OSError:
                continue
            looked.append((path.name, status.st_ino, status.st_mtime_ns, status.st_mode))
        return sorted(looked)


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise HearthNetError(
            "bad_request",
            f"{name[:80]!r} is no name of an operator; use up to 32 small letters, digits, - and _, the "
            "first one a letter or digit",
        )


def _file(home: Home, name: str) -> Path:
    return home.operators / f"{name}{_SUFFIX}"


def _files(home: Home) -> list[Path]:
    """Return the files of operators; others, such as incomplete ones, have other names."""
    try:
        entries = list(home.operators.iterdir())
    except OSError:
        return []
    return [path for path in entries if path.suffix == _SUFFIX and _NAME.fullmatch(path.stem)]


def _write(path: Path, data: bytes) -> None:
    """Write a new file of mode 0600 atomically; raises `FileExistsError` if there is one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _load(name: str, path: Path) -> Operator:
    again = f"make a new one: hearthnet operator remove {name}, then create"
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_bytes()
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot read {path}: {error.strerror}") from error
    if mode & 0o077:
        raise HearthNetError("unauthorized", f"{path} can be read by others; run: chmod 600 {path}")
    login = _login(text)
    if login is None:
        raise HearthNetError("bad_request", f"{path} holds no seed of an operator; {again}")
    return Operator(name, login, path)


def _login(text: bytes) -> Login | None:
    """Return the login of the seed `text`; None for a malformed or altered seed."""
    if not _SEED.fullmatch(text):
        return None
    seed = text.strip()
    login = Login(base64.b32decode(seed + b"======")[2:34])
    return login if login.seed == seed else None
