"""A model behind a URL, whatever its wire: a request from `vendors`, its answer through their decoder."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple

import msgspec

from hearthnet.config import ModelConfig
from hearthnet_llm.backend import FrameStream
from hearthnet_llm.connection import Connection
from hearthnet_llm.frames import Frame
from hearthnet_llm.profile import Profile
from hearthnet_llm.request import ChatRequest, CompleteRequest
from hearthnet_llm.vendors import addresses, openai, profiles, wire
from hearthnet_llm.vendors.calls import Unclosed
from hearthnet_llm.vendors.wire import Heard, HttpRequest, Target

_CTX: Final = 8192


class _Kind(NamedTuple):
    """What a `kind` of the config stands for: a wire, a vendor of it, and where below the URL it is met."""

    wire: str
    vendor: str = ""
    below: str = ""


_KINDS: Final[dict[str, _Kind]] = {
    "openai": _Kind("openai"),
    "ollama": _Kind("openai", "ollama", "/v1"),
}


class Remote:
    """One model of one server."""

    def __init__(self, config: ModelConfig) -> None:
        kind = _KINDS[config.kind]
        url, login = addresses.without_login(config.url)
        self._wire = wire(kind.wire)
        vendor = kind.vendor or profiles.at(url)
        self._target = Target(config.model, addresses.base(url, kind.below), vendor)
        self._profile = Profile(
            model=config.name,
            backend=config.kind,
            ctx=_CTX,
            aliases=(config.model,) if config.model != config.name else (),
            tool_mode="native",
            requires_internet=not addresses.is_near(url),
        )
        header = profiles.vendor(vendor).key
        self._connection = Connection(config.name, config.api_key_env or "", header, login)

    @property
    def profile(self) -> Profile:
        """As `Backend.profile`."""
        return self._profile

    def stream(self, request: ChatRequest) -> FrameStream:
        """As `Backend.stream`."""
        streamed = msgspec.structs.replace(request, stream=True)
        return self._frames(self._wire.encode(streamed, self._target))

    def complete(self, request: CompleteRequest) -> FrameStream:
        """As `Backend.complete`."""
        return self._frames(openai.encode_complete(request, self._target))

    async def close(self) -> None:
        """As `Backend.close`."""
        await self._connection.close()

    async def _frames(self, request: HttpRequest) -> AsyncGenerator[Frame, None]:
        size = len(json.dumps(request.body, ensure_ascii=False))
        async with self._connection.post(request) as body:
            decoder = self._wire.decoder(Heard(self._profile.model, body.content_type, size))
            watch = Unclosed(self._profile.model)
            async with aclosing(body.pieces()) as pieces:
                async for data in pieces:
                    for frame in decoder.feed(data):
                        yield watch.passed(frame)
            for frame in decoder.finish():
                yield watch.passed(frame)
