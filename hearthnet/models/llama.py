"""llama.cpp in this process: loads a model file that no other program can reach.

The library insists on an HTTP server. It gets a socket file in a folder that only this user may enter, and a
random key; the file is removed as soon as the engine runs, so that no other program, even of this user, can
bypass this process.

Its threads wait for each other spinning for a moment, then asleep: spinning for long costs half the speed or
more as soon as other processes use the cores, and never spinning two thirds of it on idle ones
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

from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from xllamacpp import CommonParams, Server

_READ_BYTES: Final = 1 << 20
_SPINNING: Final = ("GOMP_SPINCOUNT", "2000")
_MOST_CORES: Final = 2
_GGUF: Final = b"GGUF"


def library() -> ModuleType:
    """Import the engine's library; its way of waiting must be set before."""
    os.environ.setdefault(*_SPINNING)
    import xllamacpp

    module: ModuleType = xllamacpp
    return module


def checked(path: Path, setting: str) -> Path:
    """Return the file that the setting of that name names.

    Raises:
        HearthNetError: `not_implemented` if it is missing or not a GGUF file.
    """
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
    """Load the model in `file` into memory; takes about a second, so not for the event loop.

    `sized` sets the capacity in the parameters. `threads` 0 means one per core, at most 2.

    Raises:
        HearthNetError: `not_implemented` if llama.cpp cannot use the file.
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
    """Return once the engine's own thread accepts work.

    A server that is released before does not notice its stop, and waiting for it never ends, with the GIL
    held.
    """
    server.handle_metrics()


def _read_ahead(file: Path) -> None:
    """Read `file`, so that the system caches it.

    Here a slow disk blocks no other thread, while the library holds the GIL as it loads. Errors of reading
    are left for the library to report.
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
