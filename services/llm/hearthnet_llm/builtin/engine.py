"""llama.cpp in this process, seen from asyncio.

The engine generates on threads of its own and calls back with one chunk after another. A call holds one of
`slots` worker threads; the callback puts each chunk where the event loop finds it, wakes the loop at most
every `WAKE_SECONDS` (the engine's threads take all cores, and who runs beside them has them wait for each
other), and waits while too many lie there.
Returning True from the callback is how a call is cancelled: the engine drops the work before its next
batch. Batches are small (`_BATCH` tokens, about 30 ms on 2 idle cores, measured to cost nothing) and each
reports progress, so this holds while a long prompt is read, too.

Its threads wait for each other spinning for a moment, then asleep: spinning for long costs half the speed
or more as soon as other processes want the cores, and never spinning two thirds of it on idle ones
(docs/models.md).

The engine insists on an HTTP server. It is given a socket file in a folder only this user may enter, and a
random key; the file is removed as soon as the engine runs, so nobody, this user's other programs included,
can reach the model past us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

from hearthnet.errors import HearthNetError

if TYPE_CHECKING:
    from xllamacpp import CommonParams, Server

Chunk = dict[str, Any]
_BATCH: Final = 4
_UNREAD: Final = 64
WAKE_SECONDS: Final = 0.06
_PROMPTS_KEPT_MIB: Final = 64
_MOST_CORES: Final = 2
_READ_BYTES: Final = 1 << 20
_SPINNING: Final = ("GOMP_SPINCOUNT", "2000")


class Engine:
    """One loaded model with `slots` places, each with a context of `ctx` tokens."""

    def __init__(self, server: Server, slots: int, ctx: int) -> None:
        self._server: Server | None = server
        self._workers = ThreadPoolExecutor(slots, "llm-engine")
        self._places = asyncio.Semaphore(slots)
        self._busy = 0
        self.ctx = ctx

    def chat(self, body: Chunk) -> AsyncGenerator[list[Chunk], None]:
        """The chunks of one chat completion (OpenAI form), as many at a time as have come since; before, for
        each batch that was read, one with `prompt_progress`. Errors as `_failure`.
        """
        return self._run("handle_chat_completions", body)

    def complete(self, body: Chunk) -> AsyncGenerator[list[Chunk], None]:
        """The chunks of one text completion, likewise."""
        return self._run("handle_completions", body)

    @property
    def busy(self) -> int:
        """How many calls are with the engine now."""
        return self._busy

    async def close(self) -> None:
        """Unloads the model; calls must have ended."""
        self._workers.shutdown(wait=False)
        self._server = None

    async def _run(
        self, method: Literal["handle_chat_completions", "handle_completions"], body: Chunk
    ) -> AsyncGenerator[list[Chunk], None]:
        if self._server is None:
            raise HearthNetError("capacity_exceeded", "the model is being unloaded", retry_after_ms=1000)
        async with self._places:
            handle: Callable[..., None] = getattr(self._server, method)
            relay = _Relay(asyncio.get_running_loop())
            asked = {**body, "stream": True, "return_progress": True}
            work = self._workers.submit(relay.fill, handle, asked)
            self._busy += 1
            try:
                while chunks := await relay.next():
                    failed = chunks.pop() if "error" in chunks[-1] else None
                    if chunks:
                        yield chunks
                    if failed is not None:
                        raise _failure(failed["error"], self.ctx)
            finally:
                relay.cancel()
                await asyncio.shield(asyncio.wrap_future(work))
                self._busy -= 1


class _Relay:
    """Chunks on their way from the engine's thread to the event loop; at most `_UNREAD` of them lie here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._chunks: deque[Chunk] = deque()
        self._room = threading.Semaphore(_UNREAD)
        self._arrived = asyncio.Event()
        self._woken = 0.0
        self._writing = False
        self._ended = False
        self._cancelled = False

    def fill(self, handle: Callable[..., None], body: Chunk) -> None:
        """Runs one call to its end, on a worker thread."""
        try:
            handle(body, self._put)
        except (ValueError, RuntimeError) as error:
            self._chunks.append({"error": {"code": 400, "message": str(error)}})
        finally:
            self._ended = True
            self._wake()

    def _put(self, chunk: Chunk) -> bool:
        if not self._room.acquire(blocking=False):
            self._wake()
            self._room.acquire()
        if not self._cancelled:
            self._chunks.append(chunk)
            if self._is_due(chunk):
                self._wake()
        return self._cancelled

    def _is_due(self, chunk: Chunk) -> bool:
        """Whether the loop is woken for it: for the first word at once, else after a pause. What lies here
        meanwhile goes with the next one, and with the end.
        """
        first = not self._writing and _has_text(chunk)
        self._writing = self._writing or first
        return first or time.monotonic() - self._woken >= WAKE_SECONDS

    def _wake(self) -> None:
        self._woken = time.monotonic()
        self._loop.call_soon_threadsafe(self._arrived.set)

    async def next(self) -> list[Chunk]:
        """What has come since, in order; nothing after the last."""
        while not (self._chunks or self._ended):
            self._arrived.clear()
            await self._arrived.wait()
        chunks = [self._chunks.popleft() for _ in range(len(self._chunks))]
        for _ in chunks:
            self._room.release()
        return chunks

    def cancel(self) -> None:
        """Makes the engine drop the call; harmless when it has ended."""
        self._cancelled = True
        self._room.release(_UNREAD)


def _has_text(chunk: Chunk) -> bool:
    choice = chunk["choices"][0] if chunk.get("choices") else {}
    return bool(choice.get("text") or choice.get("delta", {}).get("content"))


def library() -> ModuleType:
    """The engine's library, told how to wait before it is loaded; afterwards it would not listen."""
    os.environ.setdefault(*_SPINNING)
    import xllamacpp

    module: ModuleType = xllamacpp
    return module


def load(file: Path, *, slots: int, ctx: int, threads: int) -> Server:
    """Loads `file`; takes about a second, so not for the event loop. `threads` 0: what the computer has, at
    most 2.

    `not_implemented` where llama.cpp cannot use the file.
    """
    xllamacpp = library()
    _read_ahead(file)
    with tempfile.TemporaryDirectory(prefix="hn-llm-") as folder:
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        _size(params, slots, ctx, threads or min(os.cpu_count() or 1, _MOST_CORES))
        _guard(params, Path(folder) / "engine.sock")
        try:
            server = xllamacpp.Server(params)
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


def _size(params: CommonParams, slots: int, ctx: int, threads: int) -> None:
    params.n_parallel = slots
    params.n_ctx = ctx * slots
    params.n_batch = params.n_ubatch = max(_BATCH, slots)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = _PROMPTS_KEPT_MIB
    params.warmup = False
    params.fit_params = False
    params.force_pure_content_parser = True
    params.verbosity = 0


def _guard(params: CommonParams, socket: Path) -> None:
    params.hostnames = [str(socket)]
    params.api_keys = [secrets.token_hex(32)]
    params.n_threads_http = 1
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_metrics = True


def _failure(error: Any, ctx: int) -> HearthNetError:
    """`bad_request` for what the caller can mend (the size of the context with it), else `internal_error`."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    needed = fields.get("n_prompt_tokens")
    if needed is not None:
        return HearthNetError(
            "bad_request",
            f"the context is too long: {needed} tokens, the model takes {ctx}; shorten the messages",
            details={"path": "/input/messages", "tokens": needed, "limit": ctx},
        )
    code = "bad_request" if fields.get("code") == 400 else "internal_error"
    return HearthNetError(code, f"llama.cpp: {fields.get('message', 'unknown failure')}")
