"""The llm service: offers of each model, for streams and for single replies.

Models behind URLs are offered while their servers answer, and follow the settings at run time
(backends/pool.py). The built-in model is offered once its file is validated and is loaded after
that: at once if it is the only model, else at the first call (builtin/lazy_backend.py). If the file is
missing, damaged or cannot be loaded, the note gives the reason, the service runs without it, and the file is
checked every 2 s.

See: docs/models.md#what-is-offered-and-when.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from hearthnet import Bus, Call, HearthNetError, NodeContext, Offer, Reply, Service, Stream, capability
from hearthnet.bus import record_path
from hearthnet.core import ConfigFollower, LlmConfig, TaskSet
from hearthnet.models import FileStamp
from hearthnet_llm import spans
from hearthnet_llm.backends import probe
from hearthnet_llm.backends.failover import Failover, capable_backends, named_backends, warmed
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.backends.pool import Pool
from hearthnet_llm.backends.probe import ProbeCache, ProbeRequest
from hearthnet_llm.backends.scripted import Scripted
from hearthnet_llm.builtin.lazy_backend import LazyBackend
from hearthnet_llm.builtin.model_file import ModelLocator
from hearthnet_llm.context.manager import Contexts
from hearthnet_llm.interface.backend import Backend, FrameStream, Profile
from hearthnet_llm.interface.caller import with_caller
from hearthnet_llm.interface.frames import Continued, Done, to_event
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, ModelParams
from hearthnet_llm.interface.validation import check
from hearthnet_llm.responses.response_builder import ResponseBuilder, is_expected
from hearthnet_llm.responses.tool_calls import ToolCallRequest, make
from hearthnet_llm.threads import Threads

_log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.5
"""Time that a start waits for servers; those that answer later are offered later."""
_RELOAD_SECONDS: Final = 6.0
_NONE: Final = (
    "no model: set llm.builtin, or add one with `hearthnet models add` ([[llm.models]] in hearthnet.toml)"
)


class LlmService(Service):
    """Language models, for all permitted members of the community."""

    name: ClassVar[str] = "llm"
    _memory: ProbeCache
    _pool: Pool
    _settings: ConfigFollower[LlmConfig]
    _threads: Threads
    _node: NodeContext
    _home: Path
    _bus: Bus

    def __init__(self) -> None:
        super().__init__()
        self._boxed: LazyBackend | None = None
        self._box: ModelLocator | None = None
        self._box_note = ""
        self._contexts = Contexts()
        self._scripted: list[Scripted] = []
        self._seen: FileStamp | None = None
        self._following: TaskSet | None = None

    async def start(self, node: NodeContext) -> None:
        """Find the configured models and validate the built-in one, which is not loaded yet."""
        config = node.config.llm
        self._memory = ProbeCache(node.data / "models-learned.json")
        self._node = node
        self._pool = Pool(self._memory, self._renew)
        self._settings = ConfigFollower(node.home, "the models", lambda config: config.llm)
        self._threads = Threads(node.data)
        self._home = node.home.path
        self._bus = node.bus
        self._use(config)
        if config.builtin or config.model_file:
            self._box = ModelLocator(config, node.data / "model-checked.json")
        await self._pool.settle(SETTLE_SECONDS)
        if self._box is not None:
            node.progress("checking the model", 0, 1)
            await self._look_into_box(self._box)
        self._following = TaskSet()
        self._following.start(self._follow_settings(), "follow settings")
        self._following.start(self._threads.follow(), "follow threads")
        self._renew()

    async def opened(self) -> None:
        """Load the built-in model, or watch for its file.

        If there are other models, it is loaded at its first call.
        """
        while self._box is not None:
            if self._boxed is not None:
                if self._pool.there or self._scripted:
                    await self._boxed.until_called()
                await self._load(self._boxed)
            if self._boxed is not None:
                await self._boxed.warm()
                return
            await asyncio.sleep(LOOK_SECONDS)
            await self._other_file(self._box)

    def offers(self) -> list[Offer]:
        """Offer llm.chat and llm.complete for each available model, and the other capabilities."""
        own = [
            Offer(capability=name)
            for name in ("llm.models.check@1.0", "llm.models.reload@1.0", "llm.tools.call@1.0")
        ]
        return [*own, *(offer for backend in self._models for offer in _offers(backend.profile))]

    async def stop(self) -> None:
        """Close all models."""
        if self._following is not None:
            await self._following.close()
            await self._pool.close()
            await self._threads.close()
        if self._boxed is not None:
            await self._boxed.aclose()

    @capability("llm.chat@2.0")
    async def chat(self, call: Call[ModelParams, ChatRequest], stream: Stream) -> Reply:
        """Continue a conversation."""
        turn = await self._threads.whole(call.principal, call.input)
        with turn.places():
            backends = capable_backends(self._named(call.params), call.params, turn.request)
            check(turn.request, backends[0].profile)
            answer = ResponseBuilder(backends[0].profile, expected=is_expected(turn.request.messages))
            request = with_caller(turn.request, call, self._node)
            with spans.answered("chat", answer, request):
                await relay(call, stream, answer, self._frames(backends, answer, request))
        if turn.request.max_tokens == 0:
            return Reply(output=answer.output, meta=answer.meta())
        if turn.request.tools:
            record_path(answer.tool_path)
        answer.thread_length = await self._threads.keep(turn, answer.message)
        return Reply(output=answer.output, meta=answer.meta())

    @capability("llm.complete@1.0")
    async def complete(self, call: Call[ModelParams, CompleteRequest], stream: Stream) -> Reply:
        """Continue a text."""
        backends = capable_backends(self._named(call.params), call.params, None)
        answer = ResponseBuilder(backends[0].profile, calls=False)
        frames = self._failover(backends, answer).first(lambda backend: backend.complete(call.input))
        with spans.answered("text_completion", answer, call.input):
            await relay(call, stream, answer, _continued(frames))
        return Reply(output={"text": answer.text}, meta=answer.meta())

    @capability("llm.tools.call@1.0")
    async def call_tool(self, call: Call[Any, ToolCallRequest]) -> Reply:
        """Carry out one tool call for the caller."""
        return await make(self._bus, call)

    @capability("llm.models.check@1.0")
    async def check_models(self, call: Call[Any, ProbeRequest]) -> Reply:
        """Check a server with the environment of this node."""
        checked = await probe.check(call.input, self._memory)
        return Reply(output=msgspec.to_builtins(checked), meta={})

    @capability("llm.models.reload@1.0")
    async def reload_models(self, call: Call[Any, Any]) -> Reply:
        """Read the settings now, and reply after the models were probed."""
        self._use(self._settings.read())
        await self._pool.settle(_RELOAD_SECONDS)
        self._renew()
        models = [
            {"name": remote.config.name, "backend": remote.config.kind, "there": there, "problem": problem}
            for remote, there, problem in self._pool.states
        ]
        return Reply(output={"models": models, "problem": self._settings.problem}, meta={})

    @property
    def _models(self) -> list[Backend]:
        """The available models; configured ones precede the built-in one, which is for trials."""
        boxed = [self._boxed] if self._boxed is not None else []
        return [*self._pool.there, *self._scripted, *boxed]

    def _named(self, params: ModelParams) -> list[Backend]:
        return named_backends(self._models, params, self._pool.away)

    def _failover(self, backends: list[Backend], answer: ResponseBuilder) -> Failover:
        return Failover(backends, answer.by, self._failed, self._toolless, self._contexts.stream)

    def _frames(self, backends: list[Backend], answer: ResponseBuilder, request: ChatRequest) -> FrameStream:
        failover = self._failover(backends, answer)
        if request.max_tokens != 0:
            return failover.chat(request)
        return failover.first(lambda backend: warmed(backend, request, failover.answer))

    def _failed(self, backend: Backend, error: HearthNetError) -> None:
        if isinstance(backend, Remote):
            self._pool.failed(backend, error)

    def _toolless(self, backend: Backend) -> bool:
        if not isinstance(backend, Remote) or not backend.may_try_tools:
            return False
        self._pool.learn_tools(backend, tools=False)
        return True

    async def _follow_settings(self) -> None:
        async for config in self._settings.changes():
            self._use(config)

    def _use(self, config: LlmConfig | None) -> None:
        """Use the models of the settings from now on; None leaves them unchanged."""
        if config is not None:
            self._pool.use(config.models)
            self._scripted = [Scripted(one, self._home) for one in config.scripted]
        self._renew()

    def _renew(self) -> None:
        """Update the note and the offers."""
        away = [problem for problem in self._pool.away.values() if problem]
        notes = [note for note in (self._settings.problem, self._box_note, *dict.fromkeys(away)) if note]
        lacking = not self._pool.configured and not self._scripted and self._box is None
        self.note = "; ".join(notes) or (_NONE if lacking else None)
        self.offers_changed()

    async def _look_into_box(self, box: ModelLocator) -> None:
        """Offer the built-in model if its file is valid, else set the note."""
        self._seen = await asyncio.to_thread(box.look)
        try:
            self._boxed = LazyBackend(box, await asyncio.to_thread(box.check))
            self._box_note = ""
        except HearthNetError as error:
            self._boxed, self._box_note = None, error.message
            _log.warning("%s", error.message)

    async def _load(self, boxed: LazyBackend) -> None:
        """Load the model; if that fails, withdraw its offer and set the note."""
        try:
            await boxed.load()
        except HearthNetError as error:
            self._boxed, self._box_note = None, error.message
            _log.warning("%s", error.message)
            self._renew()

    async def _other_file(self, box: ModelLocator) -> None:
        """Examine the file again if it differs from the one examined last."""
        if await asyncio.to_thread(box.look) != self._seen:
            await self._look_into_box(box)
            self._renew()


def _offers(profile: Profile) -> list[Offer]:
    places = profile.max_concurrent
    return [
        Offer(capability="llm.chat@2.0", params=profile.chat_params(), max_concurrent=places),
        Offer(capability="llm.complete@1.0", params=profile.complete_params(), max_concurrent=places),
    ]


async def _continued(frames: FrameStream) -> FrameStream:
    """Yield the frames of a continued text only.

    Sealed thoughts and calls are dropped; they occur if the text had to be sent as a conversation.
    """
    async with aclosing(frames) as work:
        async for frame in work:
            if isinstance(frame, Done):
                called = frame.stop_reason == "tool_calls"
                yield msgspec.structs.replace(frame, stop_reason="end") if called else frame
            elif isinstance(frame, Continued):
                yield frame


async def relay(call: Call[Any, Any], stream: Stream, answer: ResponseBuilder, frames: FrameStream) -> None:
    """Send each frame as it comes, with a notice if the answer is empty.

    A caller that cancels receives `done` with stop reason cancelled.
    """
    started = time.monotonic()
    try:
        async with aclosing(frames) as work:
            async for frame in work:
                answer.feed(frame)
                if not isinstance(frame, Done):
                    await stream.send(*to_event(frame))
                elif answer.empty is not None and call.input.max_tokens != 0:
                    await stream.send(*to_event(answer.empty))
    except asyncio.CancelledError:
        if call.remaining() > 0:
            await stream.end("done", {**answer.meta(), "ms": int((time.monotonic() - started) * 1000)})
        raise
