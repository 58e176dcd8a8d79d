"""The admission of request bodies and sockets: who sends is known before it is read, and there is room.

The decision is made when the head of a request is complete, by the protocol of the connection
(`connection_limits.py`), because the server would buffer the beginning of a body before any application sees
the request. `answering` returns the refusal and gives the room back.

See: docs/protocol/gateway.md#bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http import errors
from hearthnet.gateway.http.rate_limits import (
    MOST_BODY_BYTES,
    MOST_WITH_IMAGES,
    WITH_IMAGES,
    address_of,
    is_loopback,
)

if TYPE_CHECKING:
    from hearthnet.gateway.auth.clients import Account, Clients

ADMITTED: Final = "hearthnet.body"
"""The key in a request's scope of its `BodyRoom`, or of the `Refusal` of its body."""
OPENING: Final = "/v1/session"
"""The one route whose body says who asks: it has the code of a one-time link."""
MAX_OPENING_BYTES: Final = 4_096
MAX_SOCKETS: Final = 128
"""Sockets of one client, or of the clients of one other node, by their handshakes."""
MAX_UNKNOWN_SOCKETS: Final = 64
"""Sockets whose handshake does not say who the client is, until their first frame does."""
MAX_UNKNOWN_OF_ADDRESS: Final = 8
"""Those of them of one address other than this computer."""
_DRAINED_BYTES: Final = 65_536
"""A refused body of this size is received and dropped, so that its sender reads the answer and no reset."""
_DRAINED_SECONDS: Final = 1.0
_WAIT_MS: Final = 1_000
_SMALL_BYTES: Final = 65_536
"""A client with nothing under way may always send a body of this size; the number of clients is bounded."""
_LENGTH_DIGITS: Final = 19
"""Digits of a Content-Length; Python refuses to read thousands of them."""


class BodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bodies under way, from the head of the request to the beginning of the answer.

    A body without a declared length counts as the largest one. Those of one client are limited, and all of
    them together; the clients of other nodes count by the node that vouches for them. `owner_bytes` of
    `total_bytes` and `owner_bodies` of `total_bodies` are for the owner of this node alone. `unproved_bytes`
    and `unproved_bodies` are those of an address with tokens of members, which others may have read.
    """

    client_bytes: int = MOST_WITH_IMAGES
    client_bodies: int = 256
    total_bytes: int = 6 * MOST_WITH_IMAGES
    total_bodies: int = 1_024
    owner_bytes: int = 2 * MOST_WITH_IMAGES
    owner_bodies: int = 256
    unproved_bytes: int = 4 * MOST_BODY_BYTES
    unproved_bodies: int = 32


class BodyRoom:
    """The room of one body or socket; `release` gives it back, once."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free: Callable[[], None] | None = free

    def release(self) -> None:
        """Give the room back."""
        free, self._free = self._free, None
        if free is not None:
            free()


class Refusal(msgspec.Struct, frozen=True):
    """The error with which a body is refused; `is_dropped` where it is received for the sake of its sender.

    A client that is known reads the answer and goes on with its connection; so does a sender of a few bytes,
    whose connection is then closed. Any other is closed at once, and may see a reset in place of the answer.
    """

    error: HearthNetError
    is_known: bool
    is_dropped: bool


class BodyGate:
    """The bodies under way of one gateway."""

    def __init__(self, clients: Clients, limits: BodyLimits | None = None) -> None:
        self._clients = clients
        self._limits = limits or BodyLimits()
        self._bytes: Counter[str] = Counter()
        self._bodies: Counter[str] = Counter()
        self._sockets: Counter[str] = Counter()

    def admit(self, scope: Scope) -> bool:
        """Decide about the body of a request by its head; return whether it is to be read.

        The room or the refusal is put into `scope`. A request without a body is left to its route.
        """
        length = declared_length(scope)
        if length == 0:
            return True
        client = ""
        try:
            if len(Headers(scope=scope).get("content-length", "")) > _LENGTH_DIGITS:
                raise HearthNetError("bad_request", f"Content-Length has at most {_LENGTH_DIGITS} digits")
            if scope["path"] == OPENING and scope["method"] == "POST":
                _check_opening(length)
                return True
            account = self._known(HTTPConnection(scope))
            client = account.key
            scope[ADMITTED] = self._room(scope, length, account)
        except HearthNetError as error:
            is_short = (
                length is not None and length <= _DRAINED_BYTES and "expect" not in Headers(scope=scope)
            )
            # A copy: the frames of the traceback hold what was received with the head, up to 256 KiB.
            copy = HearthNetError.from_body(error.to_body())
            scope[ADMITTED] = Refusal(copy, bool(client), bool(client) or is_short)
            return False
        return True

    def _known(self, connection: HTTPConnection) -> Account:
        try:
            return self._clients.account(connection)
        except HearthNetError:
            self._clients.limits.wrong(address_of(connection))
            raise

    def _room(self, scope: Scope, length: int | None, account: Account) -> BodyRoom:
        images = scope["path"] == WITH_IMAGES and length is not None and account.is_proved
        most = MOST_WITH_IMAGES if images else MOST_BODY_BYTES
        _check_length(length, most)
        size = most if length is None else length
        self._check_room(account, size)
        self._bytes[account.key] += size
        self._bodies[account.key] += 1
        return BodyRoom(partial(self._freed, account.key, size))

    def _check_room(self, account: Account, size: int) -> None:
        limits, client = self._limits, account.key
        own_bodies = limits.client_bodies if account.is_proved else limits.unproved_bodies
        own_bytes = limits.client_bytes if account.is_proved else limits.unproved_bytes
        if self._bodies[client] >= own_bodies or self._bytes[client] + size > own_bytes:
            raise HearthNetError(
                "rate_limited",
                f"this client has {self._bodies[client]} requests of {self._bytes[client]} bytes under way; "
                "wait for an answer",
                retry_after_ms=_WAIT_MS,
            )
        if account.is_proved and not self._bodies[client] and size <= _SMALL_BYTES:
            return
        bodies = limits.total_bodies - (0 if account.is_owner else limits.owner_bodies)
        most = limits.total_bytes - (0 if account.is_owner else limits.owner_bytes)
        if self._bodies.total() >= bodies or self._bytes.total() + size > most:
            raise HearthNetError(
                "capacity_exceeded", "too much is sent to this gateway now", retry_after_ms=_WAIT_MS
            )

    def _freed(self, client: str, size: int) -> None:
        self._bytes[client] -= size
        self._bodies[client] -= 1
        if self._bodies[client] <= 0:
            del self._bodies[client], self._bytes[client]

    def admit_socket(self, scope: Scope) -> bool:
        """Decide about a WebSocket by its handshake; return whether that says who the client is.

        The room or the refusal is put into `scope`. Wrong keys are counted where they are used.
        """
        connection, client = HTTPConnection(scope), ""
        with contextlib.suppress(HearthNetError):
            client = self._clients.account(connection).key
        address = address_of(connection)
        places = {client: MAX_SOCKETS if client else MAX_UNKNOWN_SOCKETS}
        if not client and not is_loopback(address):
            places[f"nobody at {address}"] = MAX_UNKNOWN_OF_ADDRESS
        if any(self._sockets[place] >= most for place, most in places.items()):
            error = HearthNetError("capacity_exceeded", "too many sockets are open", retry_after_ms=_WAIT_MS)
            scope[ADMITTED] = Refusal(error, is_known=False, is_dropped=False)
            return bool(client)
        self._sockets.update(places.keys())
        scope[ADMITTED] = BodyRoom(partial(self._socket_freed, tuple(places)))
        return bool(client)

    def _socket_freed(self, places: tuple[str, ...]) -> None:
        self._sockets.subtract(places)
        for place in places:
            if self._sockets[place] <= 0:
                del self._sockets[place]


def declared_length(scope: Scope) -> int | None:
    """Return the length of a request's body by its head, 0 for none; None where it is not declared."""
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return None
    said = headers.get("content-length", "0")
    is_length = said.isascii() and said.isdigit() and len(said) <= _LENGTH_DIGITS
    return int(said) if is_length else None


def release(scope: Scope) -> None:
    """Give back the room of a request, if it has any."""
    room = scope.get(ADMITTED)
    if isinstance(room, BodyRoom):
        room.release()


def answering(app: ASGIApp) -> ASGIApp:
    """Return `app` for requests with bodies.

    One whose body is refused is answered with the refusal. The room of any other is given back when its
    answer begins, that of a socket by its connection.
    """

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            release(scope)
            await send(message)

        admitted, is_http = scope.get(ADMITTED), scope["type"] == "http"
        if isinstance(admitted, Refusal):
            answer = errors.response(admitted.error, scope["path"])
            if not admitted.is_known:
                if admitted.is_dropped:
                    await _drain(receive)
                answer.headers["connection"] = "close"
            await answer(scope, receive, send)
            return
        if not is_http or admitted is None:
            await app(scope, receive, send)
            return
        try:
            await app(scope, receive, sent)
        finally:
            release(scope)

    return handle


async def _drain(receive: Receive) -> None:
    """Wait until a body that is dropped has come."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAINED_SECONDS):
            while (await receive()).get("more_body"):
                pass


def _check_opening(length: int | None) -> None:
    if length is None:
        raise HearthNetError("bad_request", "state the length of this body (Content-Length)")
    _check_length(length, MAX_OPENING_BYTES)


def _check_length(length: int | None, most: int) -> None:
    if length is not None and length > most:
        raise HearthNetError("payload_too_large", f"a request has {most} bytes at most")
