"""The connection for many stored messages at once: reads by one request, and atomic batches.

The NATS library takes 40 to 60 us of processor time for each message with headers, this client 5 to 10
(docs/decisions/0242).

See: docs/protocol/subjects.md#stored-subjects.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from hearthnet.nats.client import NatsClient, connection_lost
from hearthnet.nats.connection import NatsConnection
from hearthnet.trust.keys import Login

_STATUS: Final = b"NATS/1.0 "
_VERSION: Final = b"NATS/1.0\r\n"
_AT_A_TIME: Final = 50
"""Messages that are handed to the socket before it is looked whether the server reads them."""


class DirectMessage(NamedTuple):
    """A message of a direct read: its headers as they came, and its data."""

    headers: bytes
    data: bytes


class Ended(NamedTuple):
    """The messages of a direct read, and the status by which the server ended it."""

    messages: list[DirectMessage]
    status: int


class _Read:
    """The messages so far of one direct read."""

    def __init__(self, ended: asyncio.Future[Ended]) -> None:
        self.ended = ended
        self.messages: list[DirectMessage] = []


class BatchClient(NatsClient):
    """A connection to the account with JetStream; it does not get what it has sent itself."""

    def __init__(self, url: str, login: Login, name: str) -> None:
        super().__init__(url, login, name)
        self._place = f"_INBOX.{secrets.token_hex(12)}"
        self._count = 0
        self._reads: dict[str, _Read] = {}
        self._acks: dict[str, asyncio.Future[bytes]] = {}
        self.on_lost(self._give_up)

    @classmethod
    async def join(cls, url: str, login: Login, name: str) -> Self:
        """Connect to `url`. Raises as `NatsClient.open`."""
        client = cls(url, login, name)
        await client.open()
        await client.subscribe(f"{client._place}.*", client._on_ack)
        return client

    async def read(self, subject: str, wanted: dict[str, object]) -> Ended:
        """Return the answers to a direct read `wanted` on `subject`, up to the status that ends them.

        Raises:
            HearthNetError: `partition` if the connection is away or breaks.
        """
        reply = self._next_place()
        read = self._reads[reply] = _Read(asyncio.get_running_loop().create_future())
        try:
            self._connected_one()
            self.send(subject, json.dumps(wanted).encode(), reply)
            return await read.ended
        finally:
            del self._reads[reply]

    async def append(self, messages: Sequence[tuple[str, bytes]], expected: dict[str, str]) -> bytes:
        """Send an atomic batch, each message under its subject, and return the server's answer.

        `expected` are headers of each message.

        Raises:
            HearthNetError: `partition` if the connection is away or breaks; it is unknown then whether the
                batch was stored.
        """
        reply = self._next_place()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._acks[reply] = answer
        common = {**expected, "Nats-Batch-Id": secrets.token_hex(12)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in common.items())
        head = _VERSION + lines.encode() + b"Nats-Batch-Sequence: "
        try:
            for number, (subject, data) in enumerate(messages, 1):
                connection = self._connected_one()
                is_last = number == len(messages)
                end = b"\r\nNats-Batch-Commit: 1\r\n\r\n" if is_last else b"\r\n\r\n"
                headers = head + str(number).encode() + end
                line = (
                    f"HPUB {subject} {reply if is_last else ''} {len(headers)} {len(headers) + len(data)}\r\n"
                )
                connection.write(line.encode(), headers, data, b"\r\n")
                if number % _AT_A_TIME == 0:
                    await self._sent()
            return await answer
        finally:
            del self._acks[reply]

    async def _sent(self) -> None:
        """Hand what is written to the socket, and wait while the server reads more slowly."""
        self.flush()
        if self.is_congested:
            await self.drain()

    def _connected_one(self) -> NatsConnection:
        """Return the connection: nothing of a batch is kept for a later one, which would have half of it."""
        if self._connection is None:
            raise connection_lost("the connection to the server is away")
        return self._connection

    def _next_place(self) -> str:
        self._count += 1
        return f"{self._place}.{self._count}"

    def _connection_to_open(self) -> NatsConnection:
        return NatsConnection(
            self._login,
            self._name,
            self._on_message,
            self._on_disconnect,
            self._run_at_loop_end,
            self._on_headed,
        )

    def _on_headed(self, number: int, subject: str, headers: bytes, data: bytes) -> None:
        """Add to a direct read; a watched message goes the way of those without headers."""
        read = self._reads.get(subject)
        if read is not None and not headers.startswith(_STATUS):
            read.messages.append(DirectMessage(headers, data))
        elif read is not None:
            if not read.ended.done():
                code = headers[len(_STATUS) : len(_STATUS) + 3]
                read.ended.set_result(Ended(read.messages, int(code) if code.isdigit() else 0))
        elif subject in self._acks:
            self._fail(self._acks[subject], "no stream takes the batch")
        else:
            self._on_message(number, subject, "", data, False)

    def _on_ack(self, subject: str, data: bytes, absent: bool) -> None:
        answer = self._acks.get(subject)
        if answer is not None and not answer.done():
            answer.set_result(data)

    def _give_up(self) -> None:
        """End what waits for an answer: the server that had the request is gone."""
        why = "the connection to the server broke"
        for answer in self._acks.values():
            self._fail(answer, why)
        for read in self._reads.values():
            self._fail(read.ended, why)

    @staticmethod
    def _fail(waiting: asyncio.Future[bytes] | asyncio.Future[Ended], why: str) -> None:
        if not waiting.done():
            waiting.set_exception(connection_lost(why))
