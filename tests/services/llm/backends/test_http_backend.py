"""A model behind a URL, end to end: llama.cpp's own HTTP endpoint, and servers that misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from hearthnet.core.config import ModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.frames import Done, Frame, TextDelta, ToolCall, ToolCallDelta
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message, ResponseSchema
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.services.llm.conftest import KEY
from tests.services.llm.tools import demand

HELLO = ChatRequest(messages=[Message(role="user", content="Hello")], max_tokens=8, temperature=0)


@asynccontextmanager
async def connected(url: str, **fields: Any) -> AsyncIterator[Remote]:
    """A backend for `url`."""
    config = ModelConfig(**{"kind": "openai", "name": "mine", "url": url, "model": "theirs", **fields})
    backend = Remote(config)
    yield backend
    await backend.aclose()


async def frames_of(backend: Remote, request: ChatRequest = HELLO) -> list[Frame]:
    """All frames of an answer."""
    return [frame async for frame in backend.stream(request)]


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the variable that holds the key."""
    monkeypatch.setenv("MINE_KEY", KEY)
    return "MINE_KEY"


@pytest.mark.asyncio
@pytest.mark.req("LLM-9")
async def test_a_real_server_streams_text(endpoint: Any, key: str) -> None:
    async with connected(f"{endpoint.listening_address}/v1", api_key_env=key) as backend:
        frames = await frames_of(backend)
        assert len([frame for frame in frames if isinstance(frame, TextDelta)]) > 1
        done = frames[-1]
        assert isinstance(done, Done)
        assert (done.stop_reason, done.tokens_out) == ("max_tokens", 8)
        assert done.tokens_in > 10


@pytest.mark.asyncio
@pytest.mark.req("LLM-9")
async def test_a_real_server_continues_a_text(endpoint: Any, key: str) -> None:
    async with connected(f"{endpoint.listening_address}/v1", api_key_env=key) as backend:
        frames = [f async for f in backend.complete(CompleteRequest(prompt="One two three", max_tokens=5))]
        assert any(isinstance(frame, TextDelta) for frame in frames)
        done = frames[-1]
        assert isinstance(done, Done)
        assert (done.stop_reason, done.tokens_out) == ("max_tokens", 5)
        assert done.tokens_in <= 5, "the words alone, and no turns of a conversation"


@pytest.mark.asyncio
@pytest.mark.req("LLM-9")
async def test_a_real_server_keeps_to_a_schema(endpoint: Any, key: str) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    request = ChatRequest(
        messages=HELLO.messages,
        max_tokens=60,
        temperature=0,
        response_schema=ResponseSchema("answer", schema),
    )
    async with connected(f"{endpoint.listening_address}/v1", api_key_env=key) as backend:
        frames = await frames_of(backend, request)
        said = json.loads("".join(frame.text for frame in frames if isinstance(frame, TextDelta)))
        assert isinstance(said["ok"], bool)


@pytest.mark.asyncio
@pytest.mark.req("LLM-9")
async def test_a_real_server_answers_a_request_with_tools(endpoint: Any, key: str) -> None:
    async with connected(f"{endpoint.listening_address}/v1", api_key_env=key) as backend:
        frames = await frames_of(backend, demand("nothing", "Do nothing.", max_tokens=40))
        assert any(isinstance(frame, TextDelta | ToolCall) for frame in frames)
        assert isinstance(frames[-1], Done)
        assert frames[-1].tool_path == "native"


@pytest.mark.asyncio
@pytest.mark.req("LLM-2")
async def test_closing_ends_the_connection_within_200_ms(endpoint: Any, key: str) -> None:
    request = ChatRequest(messages=HELLO.messages, max_tokens=1500)
    async with connected(f"{endpoint.listening_address}/v1", api_key_env=key) as backend:
        port = int(endpoint.listening_address.rpartition(":")[2])
        stream = backend.stream(request)
        await anext(stream)
        assert connections_to(port) == 1
        watch = Stopwatch()
        await stream.aclose()
        assert connections_to(port) == 0
        assert watch.seconds() < 0.2


def connections_to(port: int) -> int:
    """How many connections this process has to a port."""
    return sum(bool(one.raddr) and one.raddr.port == port for one in psutil.Process().net_connections("tcp"))


@pytest.mark.asyncio
@pytest.mark.req("LLM-11")
async def test_a_wrong_or_missing_key_is_said_by_its_variable(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"{endpoint.listening_address}/v1"
    async with connected(url, api_key_env="MINE_KEY") as backend:
        with pytest.raises(HearthNetError, match="set the environment variable MINE_KEY") as missing:
            await frames_of(backend)
        monkeypatch.setenv("MINE_KEY", "wrong-secret")
        with pytest.raises(HearthNetError, match="check the key in MINE_KEY") as wrong:
            await frames_of(backend)
    assert (missing.value.code, wrong.value.code) == ("unauthorized", "unauthorized")
    assert "wrong-secret" not in caplog.text + str(wrong.value)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(
    *pieces: bytes, hold: bool = False, heard: list[bytes] | None = None, gone: asyncio.Event | None = None
) -> AsyncIterator[str]:
    """A server that reads one request, sends the pieces and hangs up; with `hold`, the other side does, and
    `gone` is set. `heard` gets the heads of requests.
    """

    open_ones: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(writer)
        said = await reader.readuntil(b"\r\n\r\n")
        head = said.lower()
        if heard is not None:
            heard.append(said)
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if not hold:
            writer.close()
        elif gone is not None:
            await reader.read()
            gone.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"http://{host}:{port}/v1"
    server.close()
    for writer in open_ones:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(status: str = "200 OK", kind: str = "text/event-stream", **headers: str) -> bytes:
    """The head of an answer."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


OBJECT = (
    b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":1}}'
)
CALL = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"x","arguments":"{"}}]},'
    b'"finish_reason":"tool_calls"}]}\n\n'
)
SLOW = b'{"error":{"message":"slow down"}}'


@pytest.mark.asyncio
@pytest.mark.req("LLM-10")
@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8"])
async def test_one_object_is_as_good_as_a_stream(kind: str) -> None:
    async with serving(head(kind=kind), OBJECT) as url, connected(url) as backend:
        assert await frames_of(backend) == [TextDelta("Hi"), Done("end", 3, 1, "native")]


@pytest.mark.asyncio
@pytest.mark.req("LLM-10")
async def test_a_call_in_many_pieces_without_a_last_word() -> None:
    body = (
        b': hello\r\ndata: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"look","argu'
        b'ments":"{\\"at\\":"}}]}}]}\r\n\r\ndata: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":'
        b'{"arguments":"\\"\xc3\xa9\\"}"}}]},"finish_reason":"stop"}]}\r\n\r\n'
    )
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    async with serving(head(), *pieces) as url, connected(url) as backend:
        *frames, done = await frames_of(backend)
        assert frames == [
            ToolCallDelta("call_1", '{"at":', "look"),
            ToolCallDelta("call_1", '"é"}'),
            ToolCall("call_1", "look", {"at": "é"}),
        ]
        assert isinstance(done, Done)
        assert (done.stop_reason, done.tool_path) == ("tool_calls", "native")


@pytest.mark.asyncio
@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    ("pieces", "code", "said"),
    [
        ([head("429 Slow", "application/json", retry_after="2"), SLOW], "rate_limited", "slow"),
        ([head("404 Not Found", "text/html"), b"<html>nginx</html>"], "not_found", "HTML"),
        ([head("502 Bad", "text/html"), b"<html>" + b"x" * 100_000], "internal_error", "HTML"),
        ([head(kind="text/html"), b"<html>Log in</html>"], "internal_error", "an HTML page; check its url"),
        ([head("302 Found", location="https://elsewhere.example")], "internal_error", "302"),
        ([head(), b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'], "internal_error", "mid-answer"),
        ([head(), b'data: {"error":{"message":"overloaded"}}\n\n'], "internal_error", "overloaded"),
        ([head(), b"data: {broken\n\n"], "internal_error", "no JSON"),
        ([head(), CALL], "internal_error", "called a tool with arguments that are no complete JSON object"),
        ([head("503 Busy", retry_after="2"), b"busy"], "capacity_exceeded", "busy"),
        ([head(content_length="900"), b'data: {"choices":[]}\n\n'], "partition", "hung up"),
        ([], "partition", "hung up"),
    ],
)  # fmt: skip
async def test_what_goes_wrong_has_a_code_and_a_reason(pieces: list[bytes], code: str, said: str) -> None:
    async with serving(*pieces) as url, connected(url) as backend:
        with pytest.raises(HearthNetError, match=said) as failed:
            await frames_of(backend)
        assert failed.value.code == code
        assert "mine" in failed.value.message
        waits = code in ("rate_limited", "capacity_exceeded")
        assert failed.value.retry_after_ms == (2000 if waits else None)


@pytest.mark.asyncio
@pytest.mark.req("LLM-11")
async def test_a_server_that_repeats_the_key_does_not_get_it_into_the_error(key: str) -> None:
    said = f'{{"error":{{"message":"bad key {KEY}"}}}}'.encode()
    refusal = head("401 No", "application/json"), said
    async with serving(*refusal) as url, connected(url, api_key_env=key) as backend:
        with pytest.raises(HearthNetError) as failed:
            await frames_of(backend)
    assert KEY not in str(failed.value)
    assert "***" in failed.value.message


@pytest.mark.asyncio
@pytest.mark.req("LLM-11")
@pytest.mark.parametrize("cut", [0, 3, 8])
async def test_nor_in_the_middle_of_an_answer_nor_where_a_message_is_cut(key: str, cut: int) -> None:
    said = "x" * (300 - len(KEY) + cut) + KEY
    pieces = head(), f'data: {{"error":{{"message":"{said}"}}}}\n\n'.encode()
    async with serving(*pieces) as url, connected(url, api_key_env=key) as backend:
        with pytest.raises(HearthNetError, match="mid-answer") as failed:
            await frames_of(backend)
    assert KEY[: len(KEY) - cut] not in str(failed.value.to_body())


@pytest.mark.asyncio
@pytest.mark.req("LLM-11")
async def test_a_login_in_the_url_is_used_and_never_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[bytes] = []
    pieces = head(kind="application/json"), OBJECT
    async with serving(*pieces, heard=heard) as url, connected(_with_login(url)) as backend:
        await frames_of(backend)
    assert b"Basic " + base64.b64encode(b"me:pass word") in heard[0]
    assert "pass" not in caplog.text


def _with_login(url: str) -> str:
    return url.replace("//", "//me:pass%20word@")


@pytest.mark.asyncio
@pytest.mark.req("LLM-22")
@pytest.mark.parametrize(
    ("vendor", "header"),
    [("", b"authorization: bearer sk-very-secret"), ("azure", b"api-key: sk-very-secret")],
)
async def test_each_vendor_gets_its_key_where_it_looks_for_it(
    key: str, vendor: str, header: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet_llm.vendors.openai.dialect.vendor_at", lambda url: vendor)
    heard: list[bytes] = []
    pieces = head(kind="application/json"), OBJECT
    async with serving(*pieces, heard=heard) as url, connected(url, api_key_env=key) as backend:
        await frames_of(backend)
    assert header in heard[0].lower()


@pytest.mark.asyncio
@pytest.mark.req("LLM-11")
async def test_an_answer_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.models.http_client._MOST_BYTES", 50_000)
    async with serving(head(), *[b": still here\n" * 1000] * 9) as url, connected(url) as backend:
        with pytest.raises(HearthNetError, match="has no end") as cut:
            await frames_of(backend)
        assert cut.value.code == "internal_error"


@pytest.mark.asyncio
@pytest.mark.req("LLM-2")
async def test_closing_hangs_up_on_a_server_that_is_silent() -> None:
    gone = asyncio.Event()
    first = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    async with serving(head(), first, hold=True, gone=gone) as url, connected(url) as backend:
        stream = backend.stream(HELLO)
        assert await anext(stream) == TextDelta("Hi")
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        watch = Stopwatch()
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.wait_for(gone.wait(), 30)
        assert watch.seconds() < 0.2


@pytest.mark.asyncio
@pytest.mark.req("LLM-11")
async def test_a_server_that_stalls_or_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.models.http_client._SILENCE_SECONDS", 0.2)
    async with serving(head(), hold=True) as url, connected(url) as backend:
        with pytest.raises(HearthNetError) as stalled:
            await frames_of(backend)
    async with connected(url) as backend:
        with pytest.raises(HearthNetError) as gone:
            await frames_of(backend)
    assert (stalled.value.code, gone.value.code) == ("timeout", "partition")
    assert "does not answer at 127.0.0.1:" in stalled.value.message
    host = url.removeprefix("http://").partition("/")[0]
    assert gone.value.message == (
        f"the model mine cannot be reached at {host}; start its server, or check its url in hearthnet.toml"
    )


@pytest.mark.asyncio
@pytest.mark.req("LLM-12")
@pytest.mark.parametrize(
    ("url", "far"),
    [("http://127.0.0.1:1", False), ("http://localhost:1/v1", False), ("http://box.lan", False),
     ("http://192.168.0.4:1", False), ("https://api.example.org/v1/chat/completions", True),
     ("http://8.8.8.8", True)],
)  # fmt: skip
async def test_the_profile_says_whether_it_needs_the_internet(url: str, far: bool) -> None:
    async with connected(url) as backend:
        params = backend.profile.chat_params()
        assert params["requires_internet"] is far
        assert params["models"] == ["theirs"]
        assert (params["tool_mode"], params["tools_supported"]) == ("native", True)


@pytest.mark.asyncio
@pytest.mark.req("LLM-53")
async def test_a_kept_connection_that_the_server_has_closed_costs_no_answer() -> None:
    body = b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}'
    answer = b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    heard: list[int] = []
    closed: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(0)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while heard[-1] < 2:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
                heard[-1] += 1
                if heard[-1] == 1:
                    writer.write(answer + body)
        writer.close()
        await writer.wait_closed()
        closed.append(writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        async with connected(f"http://{host}:{port}/v1") as backend:
            for _ in range(2):
                text, done = await frames_of(backend)
                assert (text, isinstance(done, Done)) == (TextDelta("Hi"), True)
            assert heard == [2, 1]
        await wait_for(lambda: len(closed) == 2)
