"""llama.cpp in this process: loading a file with nobody but us able to reach it.

The library insists on an HTTP server. It is given a socket file in a folder only this user may enter, and a
random key; the file is removed as soon as the engine runs, so nobody, this user's other programs included,
can reach the model past us.

Its threads wait for each other spinning for a moment, then asleep: spinning for long costs half the speed
or more as soon as other processes want the cores, and never spinning two thirds of it on idle ones
(docs/models.md).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hearthnet.errors import HearthNetError

if TYPE_CHECKING:
    from xllamacpp import CommonParams, Server

_READ_BYTES: Final = 1 << 20
_SPINNING: Final = ("GOMP_SPINCOUNT", "2000")
_MOST_CORES: Final = 2
_GGUF: Final = b"GGUF"


def library() -> ModuleType:
    """The engine's library, told how to wait before it is loaded; afterwards it would not listen."""
    os.environ.setdefault(*_SPINNING)
    import xllamacpp

    module: ModuleType = xllamacpp
    return module


def checked(path: Path, setting: str) -> Path:
    """The file that the setting of that name names; `not_implemented` where it is missing or no GGUF file."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_GGUF))
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise HearthNetError("not_implemented", f"{setting} {path}: {reason}; mend the config") from error
    if head != _GGUF:
        raise HearthNetError("not_implemented", f"{setting} {path} is no GGUF file; mend the config")
    return path


def opened(file: Path, threads: int, sized: Callable[[CommonParams], None]) -> Server:
    """The model in `file`, in memory; takes about a second, so not for the event loop. `sized` says how much
    it is to hold. `threads` 0: what the computer has, at most 2.

    `not_implemented` where llama.cpp cannot use the file.
    """
    xllamacpp = library()
    _read_ahead(file)
    with tempfile.TemporaryDirectory(prefix="hn-llm-") as folder:
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.cpuparams.n_threads = threads or min(os.cpu_count() or 1, _MOST_CORES)
        params.cpuparams_batch.n_threads = params.cpuparams.n_threads
        params.warmup = False
        params.fit_params = False
        params.verbosity = 0
        sized(params)
        _guard(params, Path(folder) / "engine.sock")
        try:
            server: Server = xllamacpp.Server(params)
        except (RuntimeError, ValueError) as error:
            reason = f"llama.cpp cannot load {file}; it is damaged or of an unknown kind"
            raise HearthNetError("not_implemented", reason) from error
    _wait_until_it_runs(server)
    return server


def _wait_until_it_runs(server: Server) -> None:
    """Returns once the engine's own thread takes work. One that is let go before is told to stop before it
    has begun, does not hear it, and is waited for without end, with Python's lock held.
    """
    server.handle_metrics()


def _read_ahead(file: Path) -> None:
    """Has the system hold `file` in memory: a slow disk is waited for here, where others may run, and not by
    the library, which holds Python's lock while it loads. What cannot be read is for the library to say.
    """
    room = bytearray(_READ_BYTES)
    with contextlib.suppress(OSError), file.open("rb", buffering=0) as data:
        while data.readinto(room):
            pass


def _guard(params: CommonParams, socket: Path) -> None:
    params.hostnames = [str(socket)]
    params.api_keys = [secrets.token_hex(32)]
    params.n_threads_http = 1
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_metrics = True
