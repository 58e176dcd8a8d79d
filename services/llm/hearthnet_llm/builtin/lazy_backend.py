"""The built-in model, offered once its file is validated; earlier calls wait for loading.

Loading holds Python's global lock for up to a second (docs/models.md), in which this process answers no
requests. Queries for its offers wait that long (bus/routing/discovery.py), as do all calls. So loading does
not begin before a call needs the model if other nodes offer one. The file is read first, which may take long
and holds no lock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from hearthnet import HearthNetError
from hearthnet_llm.builtin.backend import BuiltinBackend
from hearthnet_llm.builtin.engine import Engine
from hearthnet_llm.builtin.model_file import ModelLocator
from hearthnet_llm.interface.backend import FrameStream
from hearthnet_llm.interface.frames import PrefillProgress
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message, Named, Tool

_STAGE: Final = "loading"
_WARM: Final = ChatRequest(
    messages=[Message("user", "water")],
    tools=[
        Tool(
            "search_corpus",
            "Searches documents",
            {
                "type": "object",
                "properties": {"query": {"type": "string", "maxLength": 40}},
                "required": ["query"],
                "additionalProperties": False,
            },
        )
    ],
    tool_choice=Named("search_corpus"),
    max_tokens=1,
    temperature=0,
)
"""A warm-up request whose answer is discarded: its examples are those of every search, and stay cached."""


class LazyBackend:
    """A `Backend` before and after its model is loaded.

    Call `load` once, in a task of its own.
    """

    def __init__(self, box: ModelLocator, file: Path) -> None:
        self._box = box
        self._file = file
        self.profile = box.profile(file)
        self._there: asyncio.Future[BuiltinBackend] = asyncio.get_running_loop().create_future()
        self._called = asyncio.Event()
        self.engine: Engine | None = None
        self.warmed = False

    async def until_called(self) -> None:
        """Wait for the first call."""
        await self._called.wait()

    async def load(self) -> None:
        """Load the model, unless `aclose` is called before; an error reaches all waiting calls.

        Raises:
            HearthNetError: `not_implemented` if it cannot be loaded.
        """
        try:
            server = await asyncio.to_thread(self._box.load, self._file)
        except HearthNetError as error:
            if not self._there.cancelled():
                self._there.set_exception(error)
                self._there.exception()  # marked as retrieved, in case no call waits for it
            raise
        if self._there.cancelled():  # closed during loading
            return
        self.engine = Engine(server, self.profile.max_concurrent, self.profile.ctx)
        self._there.set_result(BuiltinBackend(self.engine, self.profile))

    async def warm(self) -> None:
        """Make the engine read the common beginning of searches, unless a call does so."""
        if self._called.is_set():
            return
        with contextlib.suppress(HearthNetError):
            async with aclosing((await self._there).stream(_WARM)) as frames:
                async for _ in frames:
                    if self._called.is_set():
                        return
            self.warmed = True

    def stream(self, request: ChatRequest) -> FrameStream:
        """As `Backend.stream`."""
        return self._when_there(lambda backend: backend.stream(request))

    def complete(self, request: CompleteRequest) -> FrameStream:
        """As `Backend.complete`."""
        return self._when_there(lambda backend: backend.complete(request))

    async def aclose(self) -> None:
        """As `Backend.aclose`."""
        if not self._there.done():
            self._there.cancel()
        elif self.engine is not None:
            await self.engine.close()

    async def _when_there(self, ask: Callable[[BuiltinBackend], FrameStream]) -> FrameStream:
        self._called.set()
        if not self._there.done():
            yield PrefillProgress(_STAGE, 0, 1)
        backend = await asyncio.shield(self._there)
        async with aclosing(ask(backend)) as frames:
            async for frame in frames:
                yield frame
