"""A model behind a URL: sends what `outgoing` makes, feeds what comes to `incoming`."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hearthnet.config import ModelConfig
from hearthnet.errors import HearthNetError
from hearthnet_llm.backend import FrameStream
from hearthnet_llm.frames import Frame
from hearthnet_llm.openai_compatible.incoming import Incoming
from hearthnet_llm.openai_compatible.outgoing import chat_body, complete_body
from hearthnet_llm.profile import Profile
from hearthnet_llm.request import ChatRequest, CompleteRequest
from hearthnet_llm.vendors import failures
from hearthnet_llm.vendors.sse import EventLines

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_CTX: Final = 8192
_CONNECT_SECONDS: Final = 5.0
_SILENCE_SECONDS: Final = 100.0
_ERROR_BYTES: Final = 65_536
_DONE: Final = "[DONE]"


class OpenAICompatible:
    """One model of one server. The key is read from its environment variable at each request and kept
    nowhere.
    """

    def __init__(self, config: ModelConfig) -> None:
        import httpx2

        self._config = config
        self._base = _base(config)
        self._profile = Profile(
            model=config.name,
            backend=config.kind,
            ctx=_CTX,
            aliases=(config.model,) if config.model != config.name else (),
            tool_mode="native",
            requires_internet=not _near(self._base),
        )
        timeout = httpx2.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
        self._client: AsyncClient = httpx2.AsyncClient(timeout=timeout)

    @property
    def profile(self) -> Profile:
        """As `Backend.profile`."""
        return self._profile

    def stream(self, request: ChatRequest) -> FrameStream:
        """As `Backend.stream`."""
        return self._frames("/chat/completions", chat_body(request, self._config.model))

    def complete(self, request: CompleteRequest) -> FrameStream:
        """As `Backend.complete`."""
        return self._frames("/completions", complete_body(request, self._config.model))

    async def close(self) -> None:
        """As `Backend.close`."""
        await self._client.aclose()

    async def _frames(self, path: str, body: dict[str, Any]) -> AsyncGenerator[Frame, None]:
        incoming = Incoming(self._config.name, len(json.dumps(body, ensure_ascii=False)))
        async with (
            self._post(self._base + path, body) as response,
            aclosing(self._chunks(response)) as chunks,
        ):
            async for chunk in chunks:
                for frame in incoming.feed(chunk):
                    yield frame
        if not incoming.finished:
            raise HearthNetError("internal_error", f"{self._config.name}: the server stopped in mid-answer")
        for frame in incoming.end():
            yield frame

    @asynccontextmanager
    async def _post(self, url: str, body: dict[str, Any]) -> AsyncIterator[Response]:
        """A successful answer whose body is still to be read; every failure comes out as `failures` has
        it.
        """
        import httpx2

        try:
            async with self._client.stream("POST", url, json=body, headers=self._key()) as response:
                if response.status_code != 200:
                    raise await self._failure(response)
                yield response
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise failures.unreachable(self._config.name, url) from error
        except httpx2.TimeoutException as error:
            raise failures.silent(self._config.name, url) from error
        except httpx2.HTTPError as error:
            raise failures.broken_off(self._config.name, url) from error

    async def _failure(self, response: Response) -> HearthNetError:
        body = b""
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) >= _ERROR_BYTES:
                break
        variable = self._config.api_key_env or ""
        if key := os.environ.get(variable, ""):
            body = body.replace(key.encode(), b"***")
        return failures.of_status(self._config.name, response.status_code, response.headers, body, variable)

    async def _chunks(self, response: Response) -> AsyncGenerator[dict[str, Any], None]:
        """The JSON objects of the answer, whether it is a stream or one object after all."""
        if "event-stream" not in response.headers.get("content-type", "event-stream"):
            yield self._object(bytes(await response.aread()).decode("utf-8", "replace"))
            return
        lines = EventLines()
        async for data in response.aiter_bytes():
            for chunk in self._objects(lines.feed(data)):
                yield chunk
        for chunk in self._objects(lines.end()):
            yield chunk

    def _objects(self, events: Iterator[str]) -> Iterator[dict[str, Any]]:
        return (self._object(event) for event in events if event.strip() not in ("", _DONE))

    def _object(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise HearthNetError("internal_error", f"{self._config.name}: the server answered no JSON object")
        return value

    def _key(self) -> dict[str, str]:
        variable = self._config.api_key_env
        if not variable:
            return {}
        key = os.environ.get(variable, "")
        if not key:
            raise HearthNetError(
                "unauthorized", f"{self._config.name}: set the environment variable {variable} to its API key"
            )
        return {"Authorization": f"Bearer {key}"}


def _base(config: ModelConfig) -> str:
    """The URL that the paths are appended to; Ollama's speaks OpenAI's wire below /v1."""
    url = config.url.rstrip("/")
    if config.kind == "ollama" and not url.endswith("/v1"):
        return f"{url}/v1"
    return url.removesuffix("/chat/completions")


def _near(url: str) -> bool:
    """Whether the server is on this computer or in its own network."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".lan", ".home.arpa"))
