"""A client of `hearthnet-bus.v2` on the `websockets` package, as another program would write it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from hearthnet.gateway.socket.frames import SUBPROTOCOL
from hearthnet.gateway.socket.hub import Hub
from hearthnet.gateway.socket.protocol import ACK_EVERY, TERMINAL, SocketSettings
from tests.helpers.gateway import Guest, House

Frame = dict[str, Any]


class Line:
    """One connection. `close_code` is there when it has ended."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[Frame] = []
        self.acks = True

    @property
    def close_code(self) -> int | None:
        """How it ended."""
        return self.socket.close_code

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.socket.close_reason or ""

    async def send(self, kind: str, **members: Any) -> None:
        """Sends a frame of this type."""
        await self.socket.send(msgspec.json.encode({"type": kind, **members}).decode())

    async def call(
        self, house: House, guest: Guest | None, capability: str, body: Frame, **more: Any
    ) -> None:
        """Sends a `call` frame, signed where the guest has a key."""
        frame = call_of(house, guest, capability, body, **more)
        await self.socket.send(msgspec.json.encode(frame).decode())

    def send_together(self, *sent: Frame) -> None:
        """Sends frames in one write, so that the gateway finds all of them at once."""
        protocol = self.socket.protocol
        for frame in sent:
            protocol.send_text(msgspec.json.encode(frame))
        self.socket.transport.write(b"".join(protocol.data_to_send()))

    async def next(self) -> Frame | None:
        """The next frame, acknowledged where that is due; None where the connection has ended."""
        try:
            frame: Frame = msgspec.json.decode(await self.socket.recv())
        except ConnectionClosed:
            return None
        self.seen.append(frame)
        if self.acks and frame["seq"] and frame["seq"] % ACK_EVERY == 0:
            with contextlib.suppress(ConnectionClosed):
                await self.send("ack", upto=frame["seq"])
        return frame

    async def until(self, event: str) -> Frame:
        """The first frame of this event that comes."""
        while True:
            frame = await self.next()
            assert frame is not None, (event, self.close_code, self.reason, self.seen[-3:])
            if frame["event"] == event:
                return frame
            assert frame["event"] not in TERMINAL, (event, frame)

    async def rest(self) -> list[Frame]:
        """All frames until the connection ends."""
        while await self.next() is not None:
            pass
        return self.seen

    def cut(self) -> None:
        """Breaks the connection as a lost network does."""
        self.socket.transport.abort()


@contextlib.asynccontextmanager
async def line(
    house: House, guest: Guest | None, *, protocols: tuple[str, ...] = (SUBPROTOCOL,), **options: Any
) -> AsyncIterator[Line]:
    """A connection to the gateway; `guest` shows its key in the handshake."""
    async with connect(
        house.socket_url,
        subprotocols=list(protocols) or None,  # type: ignore[arg-type]
        additional_headers=guest.bearer if guest is not None else None,
        compression=None,
        proxy=None,
        open_timeout=30,
        **options,
    ) as socket:
        yield Line(socket)


@contextlib.contextmanager
def limits(house: House, **given: float) -> Iterator[None]:
    """The gateway with other limits of its sockets for a while (hearthnet/gateway/socket/protocol.py)."""
    sockets = house.gateway.sockets
    before = sockets.settings
    set_limits(sockets, msgspec.structs.replace(before, **given))
    try:
        yield
    finally:
        set_limits(sockets, before)


def set_limits(hub: Hub, settings: SocketSettings) -> None:
    """Replace the limits of all sockets, of open ones too."""
    hub.settings = settings
    hub.channels.linger_seconds, hub.channels.most_of_one = settings.linger_seconds, settings.most_streams
    if hub._timer is not None:
        hub._timer.cancel()
        hub._timer = None
    hub._tick_soon()


def call_of(house: House, guest: Guest | None, capability: str, body: dict[str, Any], **more: Any) -> Frame:
    """A `call` frame, signed where the guest has a key."""
    version = more.pop("version", "1.0")
    return {"type": "call", **house.envelope(capability, body, version, guest, **more)}


def complete(prompt: str) -> dict[str, Any]:
    """A body for the streaming capability of the workshop."""
    return {"params": {"model": "echo"}, "input": {"prompt": prompt}}
