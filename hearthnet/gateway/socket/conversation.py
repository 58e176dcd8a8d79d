"""One WebSocket from its handshake to its end: the rules of protocol.py over ASGI.

There are two tasks: the server's own reads the client's frames, and only `_pump` writes. All output is left
where `_pump` finds it (the first answer, the stream or topic that is read, the reason for the close), so
that no frame costs a task or a timer. The hub checks deadlines, for all conversations at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.http.errors import as_hearthnet_error
from hearthnet.gateway.http.sse import ClientGoneError
from hearthnet.gateway.socket import protocol
from hearthnet.gateway.socket.channel import Channel, ChannelWork
from hearthnet.gateway.socket.engine import ABORT, SEND
from hearthnet.gateway.socket.frames import (
    SUBPROTOCOL,
    Ack,
    CallFrame,
    Cancel,
    ClientFrame,
    Confirm,
    Resume,
    Subscribe,
    ToolResult,
    write,
)
from hearthnet.gateway.socket.protocol import Closed, SocketProtocol, SocketState
from hearthnet.gateway.socket.topic import Topic

if TYPE_CHECKING:
    from hearthnet.gateway.socket.hub import Hub

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_VERSION: Final = f"this gateway speaks {SUBPROTOCOL}; name it as the subprotocol"


class Conversation:
    """One socket."""

    def __init__(self, hub: Hub, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.client: Client | None = None
        """The client, once it is known."""
        self.connection = SocketProtocol(hub.settings.max_frame_bytes)
        self.source: Channel | Topic | None = None
        self.work: ChannelWork | None = None
        self._hub = hub
        self._receive = receive
        self._send = send
        self._since = self.traffic_at = self._moved = hub.now
        self._send_texts = scope["extensions"][SEND]["send"]
        self._first: bytes = b""
        self._closing: Closed | None = None
        self._woken = asyncio.Event()
        self._pumping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Handle the connection until one side ends it."""
        if (await self._receive())["type"] != "websocket.connect":
            return
        agreed = SUBPROTOCOL in self.scope.get("subprotocols", ())
        try:
            await self._send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if agreed else None})
        except OSError:
            return
        self._pumping = asyncio.create_task(self._pump(), name="socket")
        try:
            await self._listen(agreed)
        except ClientGoneError:
            pass
        except Closed as closed:
            await self._end(closed)
        finally:
            await self._leave()

    def wake(self) -> None:
        """Note that there is something to send."""
        self._woken.set()

    def replaced(self) -> None:
        """Close, since another socket reads this stream now."""
        self.close(Closed(protocol.REPLACED, "another connection reads this stream on"))

    def close(self, closed: Closed) -> None:
        """Close the connection, unless it is closing already."""
        if self._closing is None:
            self._closing, self._moved = closed, self._hub.now
            self.wake()

    def opened(self, channel: Channel, after: int) -> None:
        """Read `channel` from now on, beginning after the frame `after`."""
        self.connection.opened(after)
        self.source, self.work = channel, channel.work
        self.answer("opened", {"stream": channel.stream, "run": channel.run})
        if channel.ended and after >= channel.seq:
            self.connection.finished()
            self.close(Closed(protocol.END))

    def followed(self, topic: Topic, since: int) -> None:
        """Follow `topic` from now on."""
        self.connection.followed(since)
        self.source = topic
        self.answer("opened", {"topic": topic.name, "seq": topic.seq})

    def answer(self, event: str, data: dict[str, Any]) -> None:
        """Send frame 0."""
        self._first = write(event, data, 0)
        self.wake()

    def look(self, now: float) -> None:
        """Close the connection if the first frame, an acknowledgement or any message is overdue."""
        limits = self._hub.settings
        if self._closing is not None:
            if now - self._moved >= limits.stall_seconds:
                self._abort()
        elif self.connection.state is SocketState.WAITING:
            if now - self._since >= limits.opening_seconds:
                self.close(Closed(protocol.IDLE, f"no first frame in {limits.opening_seconds:g} s"))
        elif self._stalled and now - self._moved >= limits.stall_seconds:
            self.close(Closed(protocol.LIMITS, "frames are not acknowledged; read faster, and resume"))
        elif now - self.traffic_at >= limits.idle_seconds:
            self.close(Closed(protocol.IDLE, f"nothing came or went for {limits.idle_seconds:g} s"))

    async def _listen(self, agreed: bool) -> None:
        if not agreed:
            raise Closed(protocol.VERSION, _VERSION)
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                raise ClientGoneError
            text = message.get("text")
            frame = self.connection.receive(message.get("bytes") or b"" if text is None else text)
            self.traffic_at = self._hub.now
            if frame is not None:
                await self._handle(frame)

    async def _handle(self, frame: ClientFrame) -> None:
        match frame:
            case Ack(upto=upto):
                self._moved = self._hub.now
                if self.source is not None:
                    self.source.acknowledge(upto)
                self.wake()
            case CallFrame() | Resume() | Subscribe():
                await self._hub.open(self, frame)
            case Cancel():
                if self.work is None:
                    raise Closed(protocol.END)
                self.work.cancel()
            case ToolResult() | Confirm():
                await self._answered(frame)

    async def _answered(self, frame: ToolResult | Confirm) -> None:
        """Handle an answer; report an invalid one in a frame and keep the question open."""
        source = self.source
        try:
            if self.work is not None:
                await self.work.handle(frame)
        except HearthNetError as error:
            if isinstance(source, Channel):
                about = frame.confirmation_id if isinstance(frame, Confirm) else frame.tool_call_id
                source.put("refused", {"about": about[:100], **as_hearthnet_error(error).to_body()})

    @property
    def _stalled(self) -> bool:
        return (
            self.connection.state in (SocketState.STREAMING, SocketState.FOLLOWING)
            and self.connection.room <= 0
        )

    async def _pump(self) -> None:
        """Send all output until the close."""
        with contextlib.suppress(OSError):
            while True:
                await self._woken.wait()
                self._woken.clear()
                if self._first:
                    first, self._first = self._first, b""
                    await self._send_texts([first])
                if self._closing is None:
                    await self._send_frames()
                if self._closing is not None:
                    closing = self._closing
                    await self._send(
                        {"type": "websocket.close", "code": closing.code, "reason": closing.reason}
                    )
                    return

    async def _send_frames(self) -> None:
        connection, source = self.connection, self.source
        while source is not None and connection.state in (SocketState.STREAMING, SocketState.FOLLOWING):
            frames = source.take(connection.seq, connection.room)
            if not frames:
                return
            for seq, event, _ in frames:
                connection.sent(event, seq)
            # An acknowledgement may come before this returns.
            await self._send_texts([frame.text for frame in frames])
            if self._closing is not None:
                return
            self.traffic_at = self._moved = self._hub.now
            if connection.ended:
                self.close(Closed(protocol.END))

    async def _end(self, closed: Closed) -> None:
        """Send the close, and wait until a client that reads has received it."""
        self.close(closed)
        if self._pumping is not None:
            await asyncio.wait({self._pumping})

    async def _leave(self) -> None:
        if self.source is not None:
            self.source.detach(self, self._hub.now)
        pumping = self._pumping
        if pumping is not None:
            pumping.cancel()
            await asyncio.wait({pumping})

    def _abort(self) -> None:
        """Cut the connection of a client that does not even receive the close."""
        self.scope["extensions"][ABORT]["abort"]()
