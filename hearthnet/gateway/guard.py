"""What every request passes before any part sees it.

1. Host: a name of this computer, or an address. A page whose name was made to point here (DNS rebinding)
   comes under its own name.
2. Origin: where a browser says from which page it asks, that is our own page, or one of the settings.
3. A cookie alone changes nothing unless the browser says that our own page asks.
4. The body has a limit, known or not.

Answers carry the headers that keep a browser from showing the page inside another, guessing types or telling
others where it was. One step of a trace begins here, so that what is called for a request is one trace.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hearthnet.errors import HearthNetError
from hearthnet.gateway import errors
from hearthnet.gateway.limits import MOST_BODY_BYTES, MOST_WITH_IMAGES, WITH_IMAGES

if TYPE_CHECKING:
    from hearthnet.gateway.app import Gateway

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
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


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway
        settings = gateway.config.gateway
        self._origins = frozenset(settings.origins)
        self._names = _own_names() | {name.lower() for name in (*settings.names, settings.host)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request or one WebSocket."""
        receiving = _Limited(receive)
        sending = _Answer(send)
        try:
            self._check(HTTPConnection(scope))
            receiving.check(scope)
            with self._traced(scope):
                await self._app(scope, receiving, sending)
        except Exception as error:
            if sending.ended:
                return
            if sending.begun:
                raise
            await _refuse(scope, receive, sending, errors.known(error))

    def _check(self, connection: HTTPConnection) -> None:
        _check_once(connection.scope)
        host = connection.headers.get("host", "")
        if not self._is_ours(host):
            raise HearthNetError(
                "unauthorized",
                f"this is not {host[:100]!r}; open it by its address, or add the name to [gateway] names",
            )
        origin = connection.headers.get("origin")
        own = origin is not None and urlsplit(origin).netloc.lower() == host.lower()
        if origin is not None and not own and origin not in self._origins:
            raise HearthNetError(
                "unauthorized", f"pages from {origin[:100]!r} may not ask here; see [gateway] origins"
            )
        by_cookie = "authorization" not in connection.headers and "cookie" in connection.headers
        changes = connection.scope["type"] == "websocket" or connection.scope["method"] not in _SAFE
        if by_cookie and changes and not own:
            raise HearthNetError("unauthorized", "a cookie counts only for what this gateway's own page asks")

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return name in self._names

    @contextlib.contextmanager
    def _traced(self, scope: Scope) -> Iterator[None]:
        """What is asked of the mesh for a request is one trace, found under the path that was asked."""
        if scope["type"] == "http" and scope["method"] in _SAFE:
            yield
            return
        with self._gateway.bus.peer.traces.run(f"gateway {scope['path'][:100]}", ""):
            yield


def _check_once(scope: Scope) -> None:
    """Of what decides who asks and how, there is one: of two, somebody in between may have read the other."""
    names = [name for name, _ in scope["headers"] if name in _ONCE]
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1).decode("ascii")
        raise HearthNetError("bad_request", f"the header {twice} stands twice in this request")


class _Limited:
    """A request's body, which ends with an error where it goes on for too long."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0
        self._most = MOST_BODY_BYTES

    def check(self, scope: Scope) -> None:
        """Refuses a body that says itself that it is too large; one that says its length may hold images."""
        said = Headers(scope=scope).get("content-length", "0")
        if scope["type"] != "http" or not said.isdigit() or int(said) <= MOST_BODY_BYTES:
            return
        if scope["path"] == WITH_IMAGES:
            self._most = MOST_WITH_IMAGES
        if int(said) > self._most:
            raise _too_large(self._most)

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            if self._bytes > self._most:
                raise _too_large(self._most)
        return message


class _Answer:
    """What is sent, with the headers that all answers have, unless the part has set its own."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = self.ended = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        self.begun = True
        await self._send(message)
        self.ended = message["type"] == "http.response.body" and not message.get("more_body", False)


def _too_large(most: int) -> HearthNetError:
    return HearthNetError("payload_too_large", f"a request has {most} bytes at most")


async def _refuse(scope: Scope, receive: Receive, send: Send, error: HearthNetError) -> None:
    """Tells the client; a WebSocket that is not open yet is answered as a request would be."""
    await errors.response(error)(scope, receive, send)


def _own_names() -> set[str]:
    host = socket.gethostname().lower()
    return {"localhost", host, f"{host.partition('.')[0]}.local"}
