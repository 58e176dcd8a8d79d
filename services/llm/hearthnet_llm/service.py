"""The llm service (capabilities.md, "llm"): one offer per model, streamed or in one piece.

Models behind URLs are offered at once. The model in the box is loaded before the service says it is ready;
where its file is missing or damaged the service says so in its note, goes on without it, and looks every 2
s whether that has changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from typing import Any, ClassVar, Final

from hearthnet.config import ModelConfig
from hearthnet.errors import HearthNetError
from hearthnet.service import Call, NodeContext, Offer, Reply, Service, Stream, capability
from hearthnet_llm.answer import Answer
from hearthnet_llm.backend import Backend, FrameStream
from hearthnet_llm.builtin.backend import BuiltinBackend
from hearthnet_llm.builtin.box import Box
from hearthnet_llm.builtin.engine import Engine
from hearthnet_llm.builtin.model_file import Seen
from hearthnet_llm.conversation import check
from hearthnet_llm.frames import Done, to_event
from hearthnet_llm.request import ChatRequest, CompleteRequest, ModelParams

_log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 2.0
_STEPS: Final = 2


class LlmService(Service):
    """Language models, for everyone in the community who may ask."""

    name: ClassVar[str] = "llm"

    def __init__(self) -> None:
        super().__init__()
        self._connected: list[Backend] = []
        self._boxed: Backend | None = None
        self._waiting: asyncio.Task[None] | None = None

    async def start(self, node: NodeContext) -> None:
        """Connects the models of the config and loads the one in the box."""
        config = node.config.llm
        self._connected = [_connect(model) for model in config.models]
        if config.builtin or config.model_file:
            box = Box(config, node.data / "model-checked.json")
            seen = box.look()
            if not await self._load(box, node):
                self._waiting = asyncio.create_task(
                    self._wait_for_model(box, node, seen), name="wait for model"
                )
        elif not self._connected:
            self.note = "no model: set llm.builtin, or add [[llm.models]] to hearthnet.toml"

    def offers(self) -> list[Offer]:
        """llm.chat and llm.complete for each model."""
        return [offer for backend in self._models for offer in _offers(backend)]

    async def stop(self) -> None:
        """Lets go of all models."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])
        for backend in self._models:
            await backend.close()

    @capability("llm.chat@2.0")
    async def chat(self, call: Call[ModelParams, ChatRequest], stream: Stream) -> Reply:
        """Continues a conversation."""
        backend = self._choose(call.params)
        check(call.input, backend.profile)
        answer = await relay(call, stream, Answer(backend.profile), backend.stream(call.input))
        return Reply(output=answer.output, meta=answer.meta())

    @capability("llm.complete@1.0")
    async def complete(self, call: Call[ModelParams, CompleteRequest], stream: Stream) -> Reply:
        """Continues a text."""
        backend = self._choose(call.params)
        answer = await relay(call, stream, Answer(backend.profile, calls=False), backend.complete(call.input))
        return Reply(output={"text": answer.text}, meta=answer.meta())

    @property
    def _models(self) -> list[Backend]:
        """Those that a person connected come first: what is in the box is there to try things out."""
        return [*self._connected, *([self._boxed] if self._boxed is not None else [])]

    def _choose(self, params: ModelParams) -> Backend:
        """The first model that has the name, or the first of all; `not_found` says which names there are."""
        for backend in self._models:
            names = (backend.profile.model, *backend.profile.aliases)
            if params.model is None or params.model in names:
                return backend
        known = [backend.profile.model for backend in self._models]
        message = f"no model {params.model!r} here; there is {', '.join(known) or 'none'}"
        raise HearthNetError("not_found", message, details={"path": "/params/model", "nearest": known})

    async def _load(self, box: Box, node: NodeContext) -> bool:
        """Whether the model in the box is there now; if not, the note says why."""
        try:
            node.progress("checking the model", 0, _STEPS)
            file = await asyncio.to_thread(box.check)
            node.progress("loading the model", 1, _STEPS)
            server, profile = await asyncio.to_thread(box.load, file)
        except HearthNetError as error:
            self.note = error.message
            _log.warning("%s", error.message)
            return False
        self._boxed = BuiltinBackend(Engine(server, profile.max_concurrent, profile.ctx), profile)
        self.note = None
        return True

    async def _wait_for_model(self, box: Box, node: NodeContext, seen: Seen | None) -> None:
        """Looks until the file is another one than `seen`, and can be loaded."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = await asyncio.to_thread(box.look)
            if now == seen:
                continue
            seen = now
            loaded = await self._load(box, node)
            self.offers_changed()
            if loaded:
                return


def _connect(model: ModelConfig) -> Backend:
    from hearthnet_llm.remote import Remote

    return Remote(model)


def _offers(backend: Backend) -> list[Offer]:
    profile = backend.profile
    places = profile.max_concurrent
    return [
        Offer(capability="llm.chat@2.0", params=profile.chat_params(), max_concurrent=places),
        Offer(capability="llm.complete@1.0", params=profile.complete_params(), max_concurrent=places),
    ]


async def relay(call: Call[Any, Any], stream: Stream, answer: Answer, frames: FrameStream) -> Answer:
    """Hands each frame on as it comes. A caller who cancels hears `done` with stop reason cancelled."""
    started = time.monotonic()
    try:
        async with aclosing(frames) as work:
            async for frame in work:
                answer.feed(frame)
                if not isinstance(frame, Done):
                    await stream.send(*to_event(frame))
    except asyncio.CancelledError:
        if call.remaining() > 0:
            await stream.end("done", {**answer.meta(), "ms": int((time.monotonic() - started) * 1000)})
        raise
    return answer
