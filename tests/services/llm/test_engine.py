"""The engine: streams, cancels, and lets nobody else in."""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from hearthnet.core.config import LlmConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.builtin import engine
from hearthnet_llm.builtin.engine import Chunk, Engine
from hearthnet_llm.builtin.lazy_backend import LazyBackend
from hearthnet_llm.builtin.model_file import ModelLocator
from hearthnet_llm.interface.request import CompleteRequest
from tests.helpers.stopwatch import Stopwatch

if TYPE_CHECKING:
    from xllamacpp import Server

LONG = "The river ran past the mill and the old tree. " * 60


def asking(text: str, **fields: object) -> Chunk:
    """A chat body for the engine."""
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 40, **fields}


def is_reading(chunk: Chunk) -> bool:
    """Whether the engine still reads."""
    return "prompt_progress" in chunk


async def heard(stream: AsyncGenerator[list[Chunk], None]) -> list[Chunk]:
    """All chunks."""
    return [chunk async for chunks in stream for chunk in chunks]


async def written(stream: AsyncGenerator[list[Chunk], None]) -> list[Chunk]:
    """The chunks of the answer."""
    return [chunk for chunk in await heard(stream) if not is_reading(chunk)]


def contents(chunks: list[Chunk]) -> list[str | None]:
    """The text of each chunk of the answer."""
    return [chunk["choices"][0]["delta"].get("content") for chunk in chunks if not is_reading(chunk)]


async def seconds_to_close(loaded: Engine, body: Chunk, *, reading: bool) -> float:
    """How long closing takes while the prompt is being read, or after a few words."""
    stream = loaded.chat(body)
    for _ in range(3):
        while is_reading((await anext(stream))[-1]) is not reading:
            pass
    watch = Stopwatch(threads=True)
    await stream.aclose()
    return watch.seconds()


@pytest.mark.asyncio
@pytest.mark.req("LLM-5")
async def test_the_last_chunk_alone_says_why_and_after_how_much(loaded: Engine) -> None:
    chunks = await written(loaded.chat(asking("Count to three.", max_tokens=12)))
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-1] in ("stop", "length")
    assert not any(reasons[:-1])
    assert chunks[-1]["timings"]["predicted_n"] == len([text for text in contents(chunks) if text]) <= 12


@pytest.mark.asyncio
@pytest.mark.req("LLM-2")
@pytest.mark.parametrize("reading", [False, True], ids=["while it writes", "while it reads"])
async def test_closing_stops_the_work_within_200_ms(loaded: Engine, reading: bool) -> None:
    text = LONG if reading else "Tell a long story."
    bodies = [asking(f"{n}. {text}", max_tokens=500) for n in range(5)]
    times = [await seconds_to_close(loaded, body, reading=reading) for body in bodies]
    # The threads of the engine wait for each other: in one run of many all that waits for a core adds up.
    assert statistics.median(times) < 0.2, times
    assert loaded.busy == 0
    watch = Stopwatch(threads=True)
    after = await heard(loaded.chat(asking("Hi", max_tokens=2)))
    assert after[-1]["choices"][0]["finish_reason"] == "length"
    assert watch.seconds() < 5


@pytest.mark.asyncio
@pytest.mark.req("LLM-2")
async def test_a_call_that_waits_for_a_place_is_cancelled_at_once(loaded: Engine) -> None:
    running = [loaded.chat(asking("Tell a story.", max_tokens=400)) for _ in range(2)]
    for stream in running:
        await anext(stream)
    waiting = asyncio.ensure_future(anext(loaded.chat(asking("And I?"))))
    await asyncio.sleep(0)
    assert (loaded.busy, waiting.done()) == (2, False), "it has no place yet"
    watch = Stopwatch(threads=True)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert watch.seconds() < 0.2
    for stream in running:
        await stream.aclose()


class Room(threading.Semaphore):
    """A semaphore that notes that somebody has to wait for it."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.full = threading.Event()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if blocking:
            self.full.set()
        return super().acquire(blocking, timeout)


@pytest.mark.asyncio
@pytest.mark.req("LLM-2")
async def test_a_slow_reader_holds_the_engine_back_and_loses_nothing(
    loaded: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = asking("Tell me about the sea.", max_tokens=150)
    quick = contents(await heard(loaded.chat(body)))
    assert len(quick) > 2 * engine._UNREAD
    room, relays, slow = Room(engine._UNREAD), list[engine._Relay](), list[str | None]()

    class Watched(engine._Relay):
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            super().__init__(loop)
            self._room = room
            relays.append(self)

    monkeypatch.setattr(engine, "_Relay", Watched)
    async with aclosing(loaded.chat(body)) as stream:
        slow += contents(await anext(stream))
        assert await asyncio.to_thread(room.full.wait, 60), "the engine never has to wait"
        assert len(relays[0]._chunks) == engine._UNREAD
        async for chunks in stream:
            slow += contents(chunks)
    assert slow == quick


@pytest.mark.asyncio
@pytest.mark.req("LLM-47")
async def test_the_loop_is_woken_at_once_for_the_first_word_and_the_end_and_seldom_between(
    loaded: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WAKE_SECONDS", 60.0)
    found = [
        [chunk["choices"][0] for chunk in chunks if not is_reading(chunk)]
        async for chunks in loaded.chat(asking("Tell me about the sea.", max_tokens=20))
    ]
    first, rest = [choices for choices in found if choices]
    assert [choice["delta"]["content"] for choice in first if choice["delta"].get("content")] != []
    assert len(rest) > 10
    assert rest[-1]["finish_reason"]


@pytest.mark.asyncio
@pytest.mark.req("LLM-14")
async def test_the_engine_says_how_far_it_has_read(loaded: Engine) -> None:
    chunks = await heard(loaded.chat(asking(f"A mill. {LONG[:900]}", max_tokens=1)))
    told = [chunk["prompt_progress"] for chunk in chunks if is_reading(chunk)]
    assert len({one["total"] for one in told}) == 1
    processed = [one["processed"] for one in told]
    assert len(processed) > 2
    assert processed == sorted(set(processed))
    assert processed[-1] == told[-1]["total"]


@pytest.mark.asyncio
@pytest.mark.req("LLM-6")
async def test_a_context_that_is_too_long_is_refused_with_its_size(loaded: Engine) -> None:
    with pytest.raises(HearthNetError) as refused:
        await anext(loaded.chat(asking(LONG * 4)))
    assert refused.value.code == "bad_request"
    assert refused.value.details["limit"] == 1024
    assert refused.value.details["rule"] == "context_length"
    # A word of the text is a token, and so is a full stop.
    assert 240 * 11 <= refused.value.details["tokens"] <= 240 * 11 + 100
    assert f"{refused.value.details['tokens']} tokens, the model takes 1024" in refused.value.message


@pytest.mark.asyncio
@pytest.mark.req("LLM-6")
async def test_what_the_engine_cannot_take_is_a_bad_request(loaded: Engine) -> None:
    with pytest.raises(HearthNetError, match=r"^llama\.cpp: Expected 'messages' to be an array") as refused:
        await anext(loaded.chat({"messages": "none"}))
    assert refused.value.code == "bad_request"


@pytest.mark.asyncio
@pytest.mark.req("LLM-3")
async def test_a_closed_engine_refuses(loaded: Engine) -> None:
    await loaded.close()
    with pytest.raises(HearthNetError, match="the model is being unloaded") as refused:
        await anext(loaded.complete({"prompt": "x"}))
    assert (refused.value.code, refused.value.retry_after_ms) == ("capacity_exceeded", 1000)


@pytest.mark.req("LLM-4")
def test_the_engine_opens_no_port_and_leaves_no_socket_to_connect_to(model: Path) -> None:
    ports = listening()
    server = engine.load(model, slots=1, ctx=256, threads=1)
    assert listening() == ports
    address = server.listening_address.removeprefix("unix://")
    assert not Path(address).exists()
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(FileNotFoundError):
        client.connect(address)


@pytest.mark.req("LLM-56")
def test_an_engine_is_there_only_when_it_takes_work(model: Path) -> None:
    """Its own thread answers this; before, nobody could end it."""
    server = engine.load(model, slots=1, ctx=256, threads=1)
    assert "prompt_tokens_total 0" in server.handle_metrics()


LET_GO = """
import sys
from pathlib import Path
from hearthnet_llm.builtin import engine
for _ in range(4):
    engine.load(Path(sys.argv[1]), slots=2, ctx=512, threads=2)
"""


@pytest.mark.req("LLM-56")
def test_a_model_that_is_let_go_as_soon_as_it_is_loaded_holds_its_process_for_nobody(model: Path) -> None:
    """It used to: for ever, and with Python's lock, so that another process has to watch."""
    arguments = ("nice", sys.executable, "-c", LET_GO, str(model))
    assert subprocess.run(arguments, timeout=240, check=False, capture_output=True).returncode == 0


@pytest.mark.asyncio
@pytest.mark.req("LLM-56")
@pytest.mark.parametrize("fails", [False, True], ids=["there", "refused"])
async def test_a_model_may_be_let_go_while_it_is_loaded(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def load(box: ModelLocator, file: Path) -> Server:
        began.set()
        go_on.wait(60)
        if fails:
            raise HearthNetError("not_implemented", "no model")
        return server

    monkeypatch.setattr(ModelLocator, "load", load)
    loading = LazyBackend(ModelLocator(LlmConfig(), tmp_path / "checked.json"), tmp_path / "none.gguf")
    asked = asyncio.ensure_future(anext(loading.complete(CompleteRequest(prompt="x"))))
    work = asyncio.create_task(loading.load())
    await asyncio.to_thread(began.wait, 60)
    await asked
    await loading.aclose()
    go_on.set()
    outcome = await asyncio.gather(work, return_exceptions=True)
    assert ([str(error) for error in outcome if error], loading.engine) == (["no model"] * fails, None)


@pytest.mark.req("LLM-3")
def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\0" * 4096)
    with pytest.raises(HearthNetError) as refused:
        engine.load(file, slots=1, ctx=256, threads=1)
    assert refused.value.code == "not_implemented"
    assert str(file) in refused.value.message
    assert "\n" not in refused.value.message


def listening() -> set[tuple[str, int]]:
    """The TCP ports on which this process listens."""
    connections = psutil.Process().net_connections(kind="inet")
    return {(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN}
