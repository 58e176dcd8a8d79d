"""The checks that every request passes before any part handles it.

1. Host: a name of this computer, or an address. A page whose name was made to point here (DNS rebinding)
   sends its own name.
2. Origin: where a browser names the page that makes the request, it must be our own page or one of the
   settings. Cookies of the latter are dropped: a browser adds them to a WebSocket that any page opens.
3. A cookie alone changes nothing unless the browser names our own page as the origin.
4. The length of the body is limited, whether or not it is declared.

Responses carry the headers that keep a browser from showing the page inside another, guessing types or
sending referrers. A trace span begins here, so that all calls for a request are in one trace.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http import errors
from hearthnet.gateway.http.rate_limits import MOST_BODY_BYTES, MOST_WITH_IMAGES, WITH_IMAGES
from hearthnet.gateway.http.server_span import READING, server_span

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway

_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
}
_ONCE: Final = frozenset(
    {b"host", b"origin", b"authorization", b"content-type", b"content-encoding", b"content-length"}
)
_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")
"""The header Host (RFC 9110, 7.2), without the parts of a URI that no browser sends."""


class AuthMiddleware:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway
        settings = gateway.config.gateway
        self._origins = re.compile(origin_pattern(settings.origins))
        self._names = _host_names() | {name.lower() for name in (*settings.names, settings.host)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or one WebSocket."""
        receiving = _Limited(scope, receive)
        sending = _Answer(send)
        try:
            self._check(HTTPConnection(scope))
            with server_span(self._gateway.bus.peer.traces, scope, lambda: sending.status):
                await self._app(scope, receiving, sending)
        except Exception as error:
            if sending.ended:
                return
            if sending.begun:
                raise
            # A WebSocket that is not open yet gets an HTTP response, too.
            refusal = errors.response(errors.as_hearthnet_error(error), scope["path"])
            await refusal(scope, receive, sending)

    def _check(self, connection: HTTPConnection) -> None:
        _check_once(connection.scope)
        host = connection.headers.get("host", "")
        if not self._is_ours(host):
            raise HearthNetError(
                "unauthorized",
                f"this is not {host[:100]!r}; open it by its address, or add the name to [gateway] names",
            )
        origin = connection.headers.get("origin")
        if origin is None:
            _check_cookie(connection)
        elif not _is_of(origin, host):
            if self._origins.fullmatch(origin) is None:
                raise HearthNetError(
                    "unauthorized", f"pages from {origin[:100]!r} may not ask here; see [gateway] origins"
                )
            headers = connection.scope["headers"]
            connection.scope["headers"] = [one for one in headers if one[0] != b"cookie"]

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found["address"] or found["name"]).lower()
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return name in self._names


def origin_pattern(origins: Iterable[str]) -> str:
    """Return a regular expression that fully matches the origins of the settings."""
    return "|".join(re.escape(origin).replace(r"\*", ".*") for origin in origins) or r"(?!)"


def _is_of(origin: str, host: str) -> bool:
    """Return whether `origin` is that of `host`, with any scheme: a TLS proxy may be in front."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _check_cookie(connection: HTTPConnection) -> None:
    """Refuse a change by a cookie alone where the browser names no origin."""
    by_cookie = "authorization" not in connection.headers and "cookie" in connection.headers
    if by_cookie and (connection.scope["type"] == "websocket" or connection.scope["method"] not in READING):
        raise HearthNetError("unauthorized", "a cookie counts only for what this gateway's own page asks")


def _check_once(scope: Scope) -> None:
    """Refuse repeated headers of those that identify the client and the content.

    A proxy in between may have used the other one of the two.
    """
    names = [name for name, _ in scope["headers"] if name in _ONCE]
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1).decode("ascii")
        raise HearthNetError("bad_request", f"the header {twice} stands twice in this request")


class _Limited:
    """The body of a request, which raises an error beyond its limit.

    A body with images may be larger if it declares its length; nothing is read of one that declares too much.
    The error is raised inside the application, which applies the form of errors of the path.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        said = Headers(scope=scope).get("content-length", "0")
        self._receive = receive
        self._bytes = 0
        self._declared = int(said) if scope["type"] == "http" and said.isdigit() else 0
        images = scope["path"] == WITH_IMAGES and self._declared > MOST_BODY_BYTES
        self._most = MOST_WITH_IMAGES if images else MOST_BODY_BYTES

    async def __call__(self) -> Message:
        if self._declared > self._most:
            raise _too_large(self._most)
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            if self._bytes > self._most:
                raise _too_large(self._most)
        return message


class _Answer:
    """The sender of a response; adds the common headers that the part has not set."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = self.ended = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        self.begun = True
        await self._send(message)
        self.ended = message["type"] == "http.response.body" and not message.get("more_body", False)


def _too_large(most: int) -> HearthNetError:
    return HearthNetError("payload_too_large", f"a request has {most} bytes at most")


def _host_names() -> set[str]:
    host = socket.gethostname().lower()
    return {"localhost", host, f"{host.partition('.')[0]}.local"}
