"""A model behind a URL: requests are encoded by `vendors`, answers decoded by them.

For Ollama each request states the context to reserve (num_ctx). By default Ollama reserves some 4,096 tokens
for any model, and silently forgets the rest of a longer conversation.

    stated by the config, in the model's own file, or loaded     exactly that size
    only the model's maximum is known                            doubled until the request fits

A size once requested is kept, because each change makes the server load the model again.
"""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Final

import msgspec

from hearthnet.core import ModelConfig
from hearthnet.text import text_weight
from hearthnet_llm.backends import backend_kinds
from hearthnet_llm.backends.backend_kinds import profile_of
from hearthnet_llm.backends.endpoint import connect
from hearthnet_llm.backends.sources import check_sources, schemes_of
from hearthnet_llm.context.token_count import of_request
from hearthnet_llm.interface.backend import FrameStream, Profile
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest
from hearthnet_llm.media import LIMITS, ImageFitter, prepared
from hearthnet_llm.responses import retry_truncated_call, retry_without_tool
from hearthnet_llm.text_tools import backend
from hearthnet_llm.vendors import ollama, openai, wire
from hearthnet_llm.vendors.anthropic.request import longest_answer
from hearthnet_llm.vendors.calls import Unclosed
from hearthnet_llm.vendors.catalog import CatalogEntry
from hearthnet_llm.vendors.wire import HttpRequest, ResponseInfo, Target

_BOUNDED: Final = ("anthropic", "bedrock-anthropic")
"""Protocols that require a limit of the answer."""
_FIRST: Final = 8192
_SLACK: Final = 1.6
"""Tokens are estimated; a model may count this many times more (context/manager.py)."""
_USUAL_ANSWER: Final = 2048
"""Tokens expected of an answer without `max_tokens`."""


class Remote:
    """One model of one server; without a `fitter` it takes no images, as for a test of the server."""

    def __init__(self, config: ModelConfig, fitter: ImageFitter | None = None) -> None:
        self.config = config
        self._wire_name = backend_kinds.wire_of(config)
        self._wire = wire(self._wire_name)
        self._fitter = fitter
        self._schemes = schemes_of(config)
        self._target = backend_kinds.target(config)
        self._window = _ContextWindow(CatalogEntry(config.model))
        self.profile = profile_of(config, CatalogEntry(config.model))
        self._connection = connect(config)
        self._answer: int | None = None
        self._busy = 0
        self._retired = False

    def learn(self, entry: CatalogEntry) -> bool:
        """Update the profile by `entry`; return whether it has changed."""
        if entry.server:
            self._target = backend_kinds.target(self.config, entry.server)
        self._answer = entry.answer
        before, self.profile = self.profile, profile_of(self.config, self._window.learn(entry))
        return before != self.profile

    @property
    def may_try_tools(self) -> bool:
        """False if the config states whether the model has tools; else a failure may teach it."""
        return self.config.tools is None

    def stream(self, request: ChatRequest) -> FrameStream:
        """As `Backend.stream`."""
        if self.profile.tool_mode == "text":
            return backend.stream(request, self.profile.model, self._native)
        return self._native(request)

    def complete(self, request: CompleteRequest) -> FrameStream:
        """As `Backend.complete`."""
        if self._wire_name != "openai":
            return self.stream(openai.as_chat(request))
        return self._once(request)

    async def warm(self) -> None:
        """Prepare the first answer: have the server load the model, or open the connection.

        Raises:
            HearthNetError: the server's error.
        """
        listing = backend_kinds.listing_request(self.config)
        request = ollama.loading(self._sized(None)) if self._is_ollama else listing
        async with self._connection.post(request) as body, aclosing(body.pieces()) as pieces:
            async for _ in pieces:
                pass

    async def aclose(self) -> None:
        """As `Backend.aclose`."""
        await self._connection.close()

    async def retire(self) -> None:
        """Close after the last running call; no new calls may begin."""
        self._retired = True
        if not self._busy:
            await self.aclose()

    def _native(self, request: ChatRequest) -> FrameStream:
        if not request.tools:
            return self._once(request)
        return retry_without_tool.stream(request, self.profile.model, self._called)

    def _called(self, request: ChatRequest) -> FrameStream:
        return retry_truncated_call.stream(request, self.profile.model, self._once)

    async def _once(self, request: ChatRequest | CompleteRequest) -> FrameStream:
        self._busy += 1
        try:
            async with aclosing(self._answered(await self._encoded(request))) as frames:
                async for frame in frames:
                    yield frame
        finally:
            self._busy -= 1
            if self._retired and not self._busy:
                await self.aclose()

    async def _encoded(self, request: ChatRequest | CompleteRequest) -> HttpRequest:
        if isinstance(request, CompleteRequest):
            return openai.encode_complete(request, self._target)
        check_sources(request, self._schemes)
        fitted = await prepared(request, LIMITS[self._wire_name], self._fitter)
        return self._wire.encode(msgspec.structs.replace(fitted, stream=True), self._sized(request))

    def _sized(self, request: ChatRequest | None) -> Target:
        """Return the target with the context to reserve, or the answer's limit, if required."""
        if self._is_ollama:
            ctx = self._window.of(self.profile, self.config.ctx, request)
            return msgspec.structs.replace(self._target, ctx=ctx)
        if request is None or request.max_tokens is not None or self._wire_name not in _BOUNDED:
            return self._target
        most = longest_answer(request, self._target.model, self._answer)
        room = max(self.profile.ctx - _needed(request), self.profile.ctx // 8)
        return msgspec.structs.replace(self._target, answer=min(most, room))

    @property
    def _is_ollama(self) -> bool:
        return self._wire_name == "ollama"

    async def _answered(self, request: HttpRequest) -> FrameStream:
        size = text_weight(json.dumps(request.body, ensure_ascii=False))
        async with self._connection.post(request) as body:
            decoder = self._wire.decoder(ResponseInfo(self.profile.model, size))
            watch = Unclosed(self.profile.model)
            async with aclosing(body.pieces()) as pieces:
                async for data in pieces:
                    for frame in decoder.feed(data):
                        yield watch.passed(frame)
            for frame in decoder.finish():
                yield watch.passed(frame)


class _ContextWindow:
    """The context of one model; `entry` has its server's data."""

    def __init__(self, entry: CatalogEntry) -> None:
        self._entry = entry
        self._asked = 0

    def learn(self, entry: CatalogEntry) -> CatalogEntry:
        """Return the data to use; a context that was loaded by request from here is no limit."""
        ours = self._entry.most and not entry.most and entry.ctx == self._asked
        self._entry = entry.refined(CatalogEntry(entry.name, self._entry.ctx, most=True)) if ours else entry
        return self._entry

    def of(self, profile: Profile, configured: int | None, request: ChatRequest | None) -> int:
        """Return the tokens to request, at most `profile.ctx`; `request` is None for loading only."""
        if configured or not self._entry.most:
            return profile.ctx
        self._asked = min(profile.ctx, max(self._asked, _step(request)))
        return self._asked


def _step(request: ChatRequest | None) -> int:
    """Return the first of 8192, 16384, ... that holds prompt and answer."""
    size = _FIRST
    while request is not None and size < _needed(request) + (request.max_tokens or _USUAL_ANSWER):
        size *= 2
    return size


def _needed(request: ChatRequest) -> int:
    """Return the largest number of tokens that the prompt may take."""
    return round(of_request(request) * _SLACK)
