"""The connection to a model's server: keys from the environment, failures as wire codes.

The key is read from its variable at each request, never stored and never logged; if a server repeats it in an
error, it is masked.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.models import error_mapping
from hearthnet.telemetry import names, steps
from hearthnet.telemetry.span import SpanRecord

if TYPE_CHECKING:
    from httpx2 import Response

_CONNECT_SECONDS: Final = 5.0
_SILENCE_SECONDS: Final = 100.0
_KEEPALIVE_SECONDS: Final = 60.0
"""Lifetime of an unused connection, which saves the next request a new one."""
_PORTS: Final = {"http": 80, "https": 443}
_ERROR_BYTES: Final = 65_536
_MOST_BYTES: Final = 64 << 20
"""Maximum size of an answer; a server that never ends one would fill the memory."""

_UNHEARD: Final = "without sending a response"
_HARMLESS_PREFIX: Final = 5
"""Beginnings of a key up to this length reveal nothing."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A request to the server; `url` may be a path alone, `headers` hold no secret."""

    method: str
    url: str
    body: dict[str, Any]
    headers: dict[str, str] = {}


class Signatures(Protocol):
    """A signer of requests, for vendors that require signatures instead of a key."""

    def headers(self, request: HttpRequest, body: bytes) -> dict[str, str]:
        """Return the headers of the signature."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that must not appear in errors and logs."""


class Body:
    """The body of a successful answer, not read yet."""

    def __init__(self, response: Response, name: str) -> None:
        self._response = response
        self._name = name
        self.content_type: str = response.headers.get("content-type", "")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes as they arrive.

        Raises:
            HearthNetError: `internal_error` if they are more than 64 MiB.
        """
        total = 0
        async for data in self._response.aiter_bytes():
            total += len(data)
            if total > _MOST_BYTES:
                raise HearthNetError(
                    "internal_error", f"{self._name}: the server's answer has no end; it was cut"
                )
            yield data


class ModelHttpClient:
    """A connection to one server.

    `header` holds the key's header and its value with {key} in it; `login` is for Basic, `sign` for requests
    that are signed instead.
    """

    def __init__(
        self,
        name: str,
        key_variable: str,
        header: tuple[str, str],
        login: tuple[str, str] | None = None,
        sign: Signatures | None = None,
    ) -> None:
        import httpx2

        self._name = name
        self._variable = key_variable
        self._header = header
        self._sign = sign
        timeout = httpx2.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
        limits = httpx2.Limits(keepalive_expiry=_KEEPALIVE_SECONDS)
        # A redirect would lead the node, with its key's header, wherever the server likes.
        self._client = httpx2.AsyncClient(timeout=timeout, auth=login, limits=limits, follow_redirects=False)

    async def close(self) -> None:
        """Close the connection; running requests end with an error."""
        await self._client.aclose()

    @asynccontextmanager
    async def post(self, request: HttpRequest) -> AsyncGenerator[Body, None]:
        """Send `request` and return the body of a successful answer.

        Inside a call of the mesh it is a step of its trace, sent to the server as `traceparent`.

        Raises:
            HearthNetError: For every failure inside the block, as translated by `failures`.
        """
        key = self._key()
        secrets = [one for one in (key, *(self._sign.secrets if self._sign else ())) if one]
        content = _as_text(request.body).encode("utf-8", "replace") if request.body else None
        headers = {"content-type": "application/json"} if content else {}
        if key:
            headers[self._header[0]] = self._header[1].format(key=key)
        elif self._sign is not None:
            headers |= self._sign.headers(request, content or b"")
        try:
            with _step(request) as step:
                if step is not None:
                    headers["traceparent"] = step.traceparent
                async with self._answered(request, content, headers) as response:
                    _note(step, response.status_code)
                    if not response.is_success:
                        raise await self._failure(response, secrets)
                    yield Body(response, self._name)
        except HearthNetError as error:
            raise _without(secrets, error) from error.__cause__

    @asynccontextmanager
    async def _answered(
        self, request: HttpRequest, content: bytes | None, headers: dict[str, str]
    ) -> AsyncGenerator[Response, None]:
        import httpx2

        name, url = self._name, request.url
        try:
            response = await self._sent(request, content, {**request.headers, **headers})
            try:
                yield response
            finally:
                await response.aclose()
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise error_mapping.unreachable(name, url) from error
        except httpx2.TimeoutException as error:
            raise error_mapping.silent(name, url) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise error_mapping.broken_off(name, url) from error

    async def _sent(self, request: HttpRequest, content: bytes | None, headers: dict[str, str]) -> Response:
        """Return the head of the answer.

        If the server closed an idle connection at that moment, it has not received the request, which is sent
        once more.
        """
        import httpx2

        made = self._client.build_request(request.method, request.url, content=content, headers=headers)
        try:
            return await self._client.send(made, stream=True)
        except httpx2.RemoteProtocolError as error:
            if _UNHEARD not in str(error):
                raise
            return await self._client.send(made, stream=True)

    async def _failure(self, response: Response, secrets: list[str]) -> HearthNetError:
        body = b""
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) >= _ERROR_BYTES:
                break
        for secret in secrets:
            body = body.replace(secret.encode(), b"***")
        return error_mapping.of_status(
            self._name, response.status_code, response.headers, body, self._variable
        )

    def _key(self) -> str:
        if not self._variable:
            return ""
        key = os.environ.get(self._variable, "").strip()
        if not key:
            raise HearthNetError(
                "unauthorized",
                f"{self._name}: set the environment variable {self._variable} to its API key where "
                "`hearthnet up` is started, and start the node again",
            )
        return key


def _step(request: HttpRequest) -> AbstractContextManager[SpanRecord | None]:
    """Record the request as a step, without login and query of its URL, which may hold a key."""
    url = urlsplit(request.url)
    place = url.netloc.rpartition("@")[2]
    found: dict[str, Any] = {
        names.HTTP_METHOD: request.method,
        names.URL_FULL: urlunsplit((url.scheme, place, url.path, "", "")),
        names.SERVER_ADDRESS: url.hostname or "",
        names.SERVER_PORT: url.port or _PORTS.get(url.scheme, 0),
    }
    return steps.client_step(f"{request.method} {place}", found, span=request.method)


def _note(step: SpanRecord | None, status: int) -> None:
    if step is None or step.detail is None:
        return
    step.detail.attributes[names.HTTP_STATUS] = status
    if status >= HTTPStatus.BAD_REQUEST:
        step.detail.attributes[names.ERROR] = str(status)


def _as_text(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _without(secrets: list[str], error: HearthNetError) -> HearthNetError:
    """Mask all keys in the message of the error, and the beginning of one where it was cut."""
    message = error.message
    for key in secrets:
        message = message.replace(key, "***")
        for size in range(len(key) - 1, _HARMLESS_PREFIX, -1):
            message = message.removesuffix(key[:size])
    if message == error.message:
        return error
    return HearthNetError(
        error.code,
        message,
        retry_after_ms=error.retry_after_ms,
        details=error.details,
    )
