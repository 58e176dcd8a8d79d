"""Server-sent events: their form, heartbeats, and that nothing goes on for a client that is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.sse import (
    HEARTBEAT,
    ClientGoneError,
    EventStream,
    Primed,
    encode,
    encode_data,
    while_there,
)
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


class Line:
    """The other end of an HTTP request: what it was sent, and when it hangs up."""

    def __init__(self, breaks: bool = False) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self._breaks = breaks

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._breaks and message["type"] == "http.response.body":
            raise OSError("nobody there")
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def take(self, stream: EventStream) -> None:
        await asyncio.wait_for(stream({"type": "http"}, self.receive, self.send), 30)


class Source:
    """Pieces, and whether it was told to stop."""

    def __init__(self, *pieces: bytes, endless: bool = False, error: Exception | None = None) -> None:
        self.closed = False
        self.went_on = asyncio.Event()
        self._pieces = pieces
        self._endless = endless
        self._error = error

    async def each(self) -> AsyncGenerator[bytes, None]:
        try:
            for piece in self._pieces:
                yield piece
            self.went_on.set()
            if self._endless:
                await asyncio.Event().wait()
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


def failed(error: Exception) -> bytes:
    """The last piece of an answer that an error ends."""
    return f"failed: {error}".encode()


@pytest.mark.req("HTTP-3")
async def test_an_event_has_its_number_its_name_and_one_line_of_json() -> None:
    written = encode("token", {"text": "a\nb\u2028"}, 7)
    lines = written.split(b"\n")
    assert (lines[:2], lines[3:]) == ([b"id: 7", b"event: token"], [b"", b""])
    assert lines[2].startswith(b"data: ")
    assert json.loads(lines[2][6:]) == {"text": "a\nb\u2028"}
    assert encode("x", {}).startswith(b"event: x\n")
    assert encode_data([1]) == b"data: [1]\n\n"


@pytest.mark.req("HTTP-3")
async def test_all_pieces_are_sent_and_the_end_is_told() -> None:
    line, source = Line(), Source(b"a", b"b")
    await line.take(EventStream(source.each()))
    assert line.body == b"ab"
    assert line.sent[-1]["more_body"] is False
    headers = dict(line.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert b"content-length" not in headers
    assert source.closed


@pytest.mark.req("HTTP-4")
async def test_silence_is_filled_with_comments() -> None:
    line, source = Line(), Source(b"a", endless=True)
    sending = asyncio.create_task(line.take(EventStream(source.each(), heartbeat_seconds=0.01)))
    await wait_for(lambda: line.body.count(HEARTBEAT) >= 3, 30)
    assert line.body.startswith(b"a" + HEARTBEAT)
    line.gone.set()
    await sending
    assert source.closed


@pytest.mark.req("HTTP-5")
async def test_a_client_that_hangs_up_stops_what_makes_the_pieces() -> None:
    line, source = Line(), Source(b"a", endless=True)
    sending = asyncio.create_task(line.take(EventStream(source.each())))
    await source.went_on.wait()
    line.gone.set()
    await sending
    assert source.closed
    broken, other = Line(breaks=True), Source(b"a", endless=True)
    await broken.take(EventStream(other.each()))
    assert other.closed


@pytest.mark.req("HTTP-5")
async def test_work_for_a_client_that_hangs_up_is_cancelled_and_any_other_is_not() -> None:
    line, stopped = Line(), asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def seven() -> int:
        return 7

    assert await while_there(line.receive, seven()) == 7
    asyncio.get_running_loop().call_soon(line.gone.set)
    with pytest.raises(ClientGoneError):
        await while_there(line.receive, forever())
    assert stopped.is_set()


@pytest.mark.req("HTTP-6")
async def test_what_fails_before_the_first_piece_is_raised_and_the_rest_comes_in_order() -> None:
    broken = Source(error=HearthNetError("not_found", "none"))
    with pytest.raises(HearthNetError, match="none"):
        await Primed.of(broken.each(), 30, failed)
    assert broken.closed
    nothing = Line()
    await nothing.take(EventStream(await Primed.of(Source().each(), 30, failed)))
    assert nothing.body == b""
    line, source = Line(), Source(b"a", b"b", b"c")
    await line.take(EventStream(await Primed.of(source.each(), 30, failed)))
    assert line.body == b"abc"


@pytest.mark.req("HTTP-6")
async def test_a_slow_first_piece_is_not_waited_for_too_long_and_not_lost() -> None:
    begin = asyncio.Event()

    async def slow() -> AsyncGenerator[bytes, None]:
        await begin.wait()
        yield b"late"

    primed = await Primed.of(slow(), 0.01, failed)
    begin.set()
    line = Line()
    await line.take(EventStream(primed))
    assert line.body == b"late"
    source = Source(endless=True)
    never_read = await Primed.of(source.each(), 0.01, failed)
    await never_read.aclose()
    assert source.closed


@pytest.mark.req("HTTP-6")
async def test_waiting_for_the_first_piece_can_be_cancelled() -> None:
    source = Source(endless=True)
    waiting = asyncio.create_task(Primed.of(source.each(), 30, failed))
    await source.went_on.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert source.closed


@pytest.mark.req("HTTP-38")
@pytest.mark.parametrize("error", [HearthNetError("partition", "gone"), OSError("gone"), KeyError("gone")])
@pytest.mark.parametrize("pieces", [(), (b"a", b"b")])
async def test_error_after_the_head_is_the_last_piece(error: Exception, pieces: tuple[bytes, ...]) -> None:
    begin = asyncio.Event()

    async def late() -> AsyncGenerator[bytes, None]:
        await begin.wait()
        async for piece in Source(*pieces, error=error).each():
            yield piece

    line, primed = Line(), await Primed.of(late(), 0.01, failed)
    begin.set()
    await line.take(EventStream(primed))
    assert line.body == b"".join(pieces) + failed(error)
    assert line.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
