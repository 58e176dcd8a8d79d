"""llama.cpp in this process, as an asyncio interface.

The engine generates on threads of its own and calls back with one chunk after another. A call occupies one of
`slots` worker threads. The callback appends each chunk to a queue for the event loop, wakes the loop at most
every `WAKE_SECONDS` (the engine's threads use all cores, and a thread beside them delays them all), and
blocks while the queue is full.

A call is cancelled by returning True from the callback: the engine drops the work before its next batch.
Batches are small (`_BATCH` tokens, about 30 ms on 2 idle cores, measured to cost nothing) and each reports
progress, so cancelling also works while a long prompt is read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from hearthnet import HearthNetError
from hearthnet.core import CONTEXT_LENGTH
from hearthnet.models import open_llama

if TYPE_CHECKING:
    from xllamacpp import CommonParams, Server

Chunk = dict[str, Any]
_BATCH: Final = 4
_UNREAD: Final = 64
WAKE_SECONDS: Final = 0.06
_PROMPT_CACHE_MIB: Final = 64


class Engine:
    """One loaded model with `slots` places, each with a context of `ctx` tokens."""

    def __init__(self, server: Server, slots: int, ctx: int) -> None:
        self._server: Server | None = server
        self._workers = ThreadPoolExecutor(slots, "llm-engine")
        self._places = asyncio.Semaphore(slots)
        self.ctx = ctx
        self.busy = 0
        """Number of running calls."""

    def chat(self, body: Chunk) -> AsyncGenerator[list[Chunk], None]:
        """Yield the chunks of one chat completion (OpenAI form), all new ones at a time.

        For each batch of the prompt, a chunk with `prompt_progress` comes first.

        Raises:
            HearthNetError: as for `_failure`.
        """
        return self._run("handle_chat_completions", body)

    def complete(self, body: Chunk) -> AsyncGenerator[list[Chunk], None]:
        """Yield the chunks of one text completion, as `chat` does."""
        return self._run("handle_completions", body)

    async def close(self) -> None:
        """Unload the model; calls must have ended."""
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
            self.busy += 1
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
                self.busy -= 1


class _Relay:
    """Queue of at most `_UNREAD` chunks from an engine thread to the event loop."""

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
        """Run one call to its end, on a worker thread."""
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
        """Return whether to wake the loop: for the first word at once, later after a pause.

        Chunks in between are delivered with the next due one, or at the end.
        """
        first = not self._writing and _has_text(chunk)
        self._writing = self._writing or first
        return first or time.monotonic() - self._woken >= WAKE_SECONDS

    def _wake(self) -> None:
        self._woken = time.monotonic()
        self._loop.call_soon_threadsafe(self._arrived.set)

    async def next(self) -> list[Chunk]:
        """Wait for new chunks and return them in order; an empty list marks the end."""
        while not (self._chunks or self._ended):
            self._arrived.clear()
            await self._arrived.wait()
        chunks = [self._chunks.popleft() for _ in range(len(self._chunks))]
        for _ in chunks:
            self._room.release()
        return chunks

    def cancel(self) -> None:
        """Make the engine drop the call; has no effect after its end."""
        self._cancelled = True
        self._room.release(_UNREAD)


def _has_text(chunk: Chunk) -> bool:
    choice = chunk["choices"][0] if chunk.get("choices") else {}
    return bool(choice.get("text") or choice.get("delta", {}).get("content"))


def load(file: Path, *, slots: int, ctx: int, threads: int) -> Server:
    """Load `file`, as hearthnet/models/llama.py does."""

    def sized(params: CommonParams) -> None:
        params.n_parallel = slots
        params.n_ctx = ctx * slots
        params.n_batch = params.n_ubatch = max(_BATCH, slots)
        params.cache_ram_mib = _PROMPT_CACHE_MIB
        params.force_pure_content_parser = True

    return open_llama(file, threads, sized)


def _failure(error: Any, ctx: int) -> HearthNetError:
    """Return the error for a failure of the engine.

    A fault of the caller is distinguished from an internal one. If the context was exceeded, its size is in
    the details.
    """
    fields = error if isinstance(error, dict) else {"message": str(error)}
    needed = fields.get("n_prompt_tokens")
    if needed is not None:
        return HearthNetError(
            "bad_request",
            f"the context is too long: {needed} tokens, the model takes {ctx}; shorten the messages",
            details={"path": "/input/messages", "rule": CONTEXT_LENGTH, "tokens": needed, "limit": ctx},
        )
    code = "bad_request" if fields.get("code") == 400 else "internal_error"
    return HearthNetError(code, f"llama.cpp: {fields.get('message', 'unknown failure')}")
