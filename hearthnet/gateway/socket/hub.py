"""All sockets of a gateway: first frames, streams, topics and deadlines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, WebSocketRoute

from hearthnet.agent.runtime.driver import Outcome
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.http.errors import STATUS, as_hearthnet_error
from hearthnet.gateway.runs.calls import CallBody, MeshCall, is_question, run_or_call, with_client_id
from hearthnet.gateway.runs.run import FollowUp, NewRun, RunRequest
from hearthnet.gateway.socket import protocol
from hearthnet.gateway.socket.channel import Channel, Channels
from hearthnet.gateway.socket.conversation import Conversation, Receive, Scope, Send
from hearthnet.gateway.socket.engine import KNOWN
from hearthnet.gateway.socket.frames import CallFrame, First, Resume, Subscribe
from hearthnet.gateway.socket.protocol import Closed, SocketSettings
from hearthnet.gateway.socket.topic import Feeds, Topic
from hearthnet.gateway.socket.work import CallWork, RunWork

if TYPE_CHECKING:
    from hearthnet.gateway.context import Gateway

PATH: Final = "/v1/socket"
_UNAUTHORIZED: Final = 401
_FULL: Final = frozenset({"capacity_exceeded", "rate_limited"})


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the one route of this part."""
    settings = SocketSettings(idle_seconds=gateway.config.gateway.idle_close_seconds)
    gateway.sockets = Hub(gateway, settings)
    return [WebSocketRoute(PATH, gateway.sockets)]


class Hub:
    """The WebSocket part of one gateway; an ASGI application for its route."""

    def __init__(self, gateway: Gateway, settings: SocketSettings) -> None:
        self.settings = settings
        self.channels = Channels(settings.linger_seconds, settings.most_streams)
        self.now = 0.0
        """The loop's time at the last check of the deadlines."""
        self.topics: dict[tuple[str, str], Topic] = {}
        self.conversations: set[Conversation] = set()
        self.feeds = Feeds(gateway)
        self._gateway = gateway
        self._closing: set[asyncio.Task[None]] = set()
        self.runs: set[asyncio.Task[Outcome]] = set()
        """The driven runs; they continue while no socket follows them."""
        self._timer: asyncio.TimerHandle | None = None
        self._checked_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one WebSocket."""
        self._tick_soon()
        conversation = Conversation(self, scope, receive, send)
        self.conversations.add(conversation)
        try:
            await conversation.run()
        finally:
            self.conversations.discard(conversation)
            self._left(conversation)

    async def open(self, conversation: Conversation, frame: First) -> None:
        """Handle a first frame; frame 0 of the answer is `opened` or `error`."""
        try:
            client = await self._authenticated(conversation, frame)
            self._gateway.limits.opened(client.account)
            conversation.client = client
            conversation.scope["extensions"][KNOWN]["known"]()
            match frame:
                case CallFrame():
                    await self._call(conversation, client, frame)
                case Resume():
                    await self._resume(conversation, client, frame)
                case Subscribe():
                    self._subscribe(conversation, client, frame)
        except Exception as error:
            _refuse(conversation, as_hearthnet_error(error))

    def _left(self, conversation: Conversation) -> None:
        client = conversation.client
        if client is not None:
            self._gateway.limits.closed(client.account)
            if isinstance(conversation.source, Topic):
                self.feeds.left(conversation.source.name, client)

    async def close(self) -> None:
        """Close every socket and stream when the gateway ends."""
        for conversation in list(self.conversations):
            conversation.close(Closed(protocol.GOING_AWAY, "the gateway ends; come back and resume"))
        if self._timer is not None:
            self._timer.cancel()
        for channel in self.channels:
            self.channels.drop(channel)
            self._let_go(channel)
        for run in self.runs:
            run.cancel()
        if self.runs:
            await asyncio.wait(set(self.runs))
        await asyncio.gather(*self._closing, *(topic.close() for topic in self.topics.values()))

    async def _authenticated(self, conversation: Conversation, frame: First) -> Client:
        connection = HTTPConnection(conversation.scope)
        clients = self._gateway.clients
        shown = (
            "authorization" in connection.headers
            or clients.cookie in connection.cookies
            or clients.is_bearer(frame.token)
        )
        client = await clients.from_request(connection, frame.token) if shown else None
        if client is None or isinstance(frame, CallFrame):
            client = clients.from_envelope(frame.envelope(), client)
        return client

    async def _call(self, conversation: Conversation, client: Client, frame: CallFrame) -> None:
        gateway = self._gateway
        call = CallBody(frame.capability, frame.body, frame.version, frame.timeout_ms or None)
        request = await run_or_call(gateway.bus, gateway.runs, client, call)
        if is_question(request):
            gateway.clients.count_question(client)
        if isinstance(request, NewRun):
            await self._run(conversation, client, request)
            return
        contract = request.contract
        body = with_client_id(contract, request.body, frame.request_id)
        contract.check_request(body)
        sent = MeshCall(contract, body, gateway.clients.token(client), request.timeout_seconds)
        if contract.side_effects and contract.stream_schema is not None:
            raise HearthNetError("not_implemented", f"{contract.id} is not called from here; use a tool run")
        channel = self.channels.open(client.principal, client.payer, sums_up=contract.has_event("token"))
        channel.work = CallWork(channel, gateway.bus, client, sent)
        _read(conversation, channel, 0)

    async def _resume(self, conversation: Conversation, client: Client, frame: Resume) -> None:
        if frame.stream:
            _read(conversation, self.channels.find(frame.stream, client.principal), frame.after)
        elif (under_way := self.channels.of_run(frame.run, client.principal)) is not None:
            _read(conversation, under_way, 0)
        else:
            await self._run(conversation, client, FollowUp(frame.run))

    async def _run(self, conversation: Conversation, client: Client, request: RunRequest) -> None:
        """Drive a new or a saved run; it continues while no socket follows it."""
        channel = self.channels.open(client.principal, client.payer, sums_up=True)
        channel.work = behind = RunWork(self._gateway.runs, client, channel)
        try:
            task = await behind.begin(request)
        except BaseException:
            self.channels.drop(channel)
            raise
        self.runs.add(task)
        task.add_done_callback(self.runs.discard)
        _read(conversation, channel, 0)

    def _subscribe(self, conversation: Conversation, client: Client, frame: Subscribe) -> None:
        key = frame.topic, self.feeds.owner_of(frame.topic, client)
        topic = self.topics.get(key)
        if topic is None:
            topic = self.topics[key] = Topic(frame.topic, self.feeds.open(frame.topic, client))
        topic.attach(conversation)
        conversation.followed(topic, frame.since_seq or 0)

    def _tick_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self.now = loop.time()
            self._timer = loop.call_later(self.settings.tick_seconds, self._tick)

    def _tick(self) -> None:
        """Check all deadlines, as long as there are any."""
        self._timer = None
        self.now = now = asyncio.get_running_loop().time()
        for conversation in list(self.conversations):
            conversation.look(now)
        if now - self._checked_at >= self.settings.check_seconds:
            self._checked_at = now
            self._shut_out()
        for channel in self.channels.sweep(now):
            self._let_go(channel)
        linger = self.settings.linger_seconds
        for key, topic in list(self.topics.items()):
            if topic.left_at is not None and now - topic.left_at >= linger:
                del self.topics[key]
        if self.conversations or self.channels or self.topics:
            self._tick_soon()

    def _shut_out(self) -> None:
        """Close the sockets of clients that are no longer admitted."""
        clients = {one.client.id: one.client for one in self.conversations if one.client is not None}
        found = self._gateway.clients.shut_out(clients.values())
        for conversation in self.conversations if found else ():
            error = found.get(conversation.client.id) if conversation.client is not None else None
            if error is not None:
                conversation.close(Closed(protocol.NOT_AUTHENTICATED, error.message))

    def _let_go(self, channel: Channel) -> None:
        if channel.work is not None:
            closing = asyncio.create_task(channel.work.close(), name=f"close {channel.stream}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _read(conversation: Conversation, channel: Channel, after: int) -> None:
    channel.attach(conversation, after)
    conversation.opened(channel, after)


def _refuse(conversation: Conversation, error: HearthNetError) -> None:
    conversation.answer("error", error.to_body())
    if STATUS[error.code] == _UNAUTHORIZED or error.code == "revoked":
        code = protocol.NOT_AUTHENTICATED
    else:
        code = protocol.LIMITS if error.code in _FULL else protocol.END
    conversation.close(Closed(code, error.message if code != protocol.END else ""))
