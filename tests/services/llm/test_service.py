"""The llm service on a real node: what it offers, how it answers, and a model that comes later."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest

from hearthnet import Stream
from hearthnet.bus.bus import Bus
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet_llm import LlmService, service
from hearthnet_llm.builtin import backend as builtin_backend
from hearthnet_llm.builtin import model_file
from hearthnet_llm.builtin.model_file import BUILT_IN, ModelLocator
from hearthnet_llm.interface.frames import Frame, TextDelta
from hearthnet_llm.responses.response_builder import ResponseBuilder
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.services.llm.model_server import ModelServer
from tests.services.llm.tools import SCHEMAS

CHAT, COMPLETE = "llm.chat@2.0", "llm.complete@1.0"


@contextlib.asynccontextmanager
async def running(mesh: Mesh, config: str = "") -> AsyncIterator[tuple[LlmService, Bus]]:
    """The service on the mesh, and another process to call it from."""
    mesh.home.config_file.write_text(config, encoding="utf-8")
    llm = LlmService()
    tasks: list[asyncio.Task[None]] = []
    async with mesh.hosting(llm) as host, await mesh.bus() as bus:
        llm.on_offers_changed(lambda: tasks.append(asyncio.create_task(host.refresh())))
        yield llm, bus
        await asyncio.gather(*tasks)


def ask(text: str = "Say hello.", model: str | None = None, **fields: Any) -> dict[str, Any]:
    """A body for llm.chat."""
    params = {} if model is None else {"model": model}
    message = {"role": "user", "content": text}
    return {"params": params, "input": {"messages": [message], "temperature": 0, "max_tokens": 12, **fields}}


def tool(name: str) -> dict[str, Any]:
    """A tool in a body."""
    return {"name": name, "description": "A tool.", "parameters_schema": SCHEMAS[name]}


async def streamed(bus: Bus, capability: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """All frames of a stream."""
    async with bus.stream(capability, body) as stream:
        return [(frame.event, frame.data) async for frame in stream]


@pytest.mark.asyncio
@pytest.mark.req("LLM-12")
async def test_streamed_and_whole_answers_agree(mesh: Mesh) -> None:
    async with running(mesh) as (_, bus):
        frames = await streamed(bus, CHAT, ask())
        text = "".join(data["text"] for event, data in frames if event == "token")
        assert frames[-1][0] == "done"
        whole = (await bus.call(CHAT, ask())).body
        assert whole["output"] == {"message": {"role": "assistant", "content": text}}
        assert {**whole["meta"], "ms": 0} == {**frames[-1][1], "ms": 0}
        assert whole["meta"]["model"] == BUILT_IN.model

        called = ask(
            "Where do otters live?", tools=[tool("search")], tool_choice={"name": "search"}, max_tokens=60
        )
        frames = await streamed(bus, CHAT, called)
        said = [(event, data) for event, data in frames if event != "progress"]
        assert [event for event, _ in said] == ["tool_call", "done"]
        assert frames[-1][1]["stop_reason"] == "tool_calls"
        assert frames[-1][1]["tool_path"] == "grammar"
        reply = (await bus.call(CHAT, called)).body["output"]
        assert reply["tool_calls"] == [said[0][1]]

        body = {"params": {}, "input": {"prompt": "One two three", "max_tokens": 5, "temperature": 0}}
        frames = await streamed(bus, COMPLETE, body)
        text = "".join(data["text"] for event, data in frames if event == "token")
        assert (await bus.call(COMPLETE, body)).body["output"] == {"text": text}


@pytest.mark.asyncio
@pytest.mark.req("LLM-12")
async def test_one_offer_a_model_and_it_says_what_the_model_can(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, server.config()) as (_, bus):
        offers = {str(offer.params["model"]): offer.params for offer in await offered(bus, CHAT, 2)}
        of_both = {
            "requires_internet": False,
            "modalities": ["text"],
            "tools_supported": True,
            "max_tools_per_call": 64,
        }
        far = {
            "model": "far",
            "models": ["far-1"],
            "ctx": 8192,
            "backend": "openai",
            "languages": [],
            "tool_mode": "native",
            "tools_by_name_only": False,
            "advice": "",
        }
        small = {
            "model": BUILT_IN.model,
            "models": [],
            "ctx": 4096,
            "backend": "llama.cpp",
            "languages": ["en"],
            "tool_mode": "grammar",
            "tools_by_name_only": True,
            "advice": BUILT_IN.advice,
        }
        assert offers == {"far": {**of_both, **far}, BUILT_IN.model: {**of_both, **small}}
        assert "connect a better model: hearthnet models add" in BUILT_IN.advice
        assert (await bus.call(CHAT, ask(model="far-1"))).body["meta"]["model"] == "far"
        reply = await bus.call(CHAT, ask(model=BUILT_IN.model))
        assert reply.body["meta"]["model"] == BUILT_IN.model


@pytest.mark.asyncio
@pytest.mark.req("LLM-14")
async def test_the_caller_hears_how_far_a_long_prompt_has_been_read(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin_backend, "PAUSE_SECONDS", 0.0)
    async with running(mesh) as (_, bus):
        frames = await streamed(bus, CHAT, ask("The wind turns the old mill. " * 60, max_tokens=8))
        told = [data for event, data in frames if event == "progress"]
        assert {data["stage"] for data in told} - {"loading"} == {"reading"}
        reading = [data for data in told if data["stage"] == "reading"]
        read = [data["current"] for data in reading]
        assert len(read) > 2
        assert read == sorted(set(read))
        assert {data["total"] for data in reading} == {read[-1]}
        assert [event for event, _ in frames[: len(told)]] == ["progress"] * len(told)
        assert "token" in [event for event, _ in frames]


@pytest.mark.asyncio
@pytest.mark.req("LLM-12", "LLM-2")
async def test_cancelling_frees_the_model_at_once(mesh: Mesh) -> None:
    story = ask("Tell a long story.", max_tokens=600)
    async with running(mesh) as (llm, bus), bus.stream(CHAT, story) as stream:
        async for frame in stream:
            if frame.event == "token":
                break
        assert llm._boxed is not None
        engine = llm._boxed.engine
        assert engine is not None
        assert engine.busy == 1
        watch = Stopwatch(mesh.server.process.pid, threads=True)
        await stream.cancel()
        await wait_for(lambda: engine.busy == 0, 30)
        assert watch.seconds() < 0.2


@pytest.mark.asyncio
@pytest.mark.req("LLM-12")
@pytest.mark.parametrize(
    ("left", "said"), [(1.0, ["token", "done"]), (0.0, ["token"])], ids=["cancel", "deadline"]
)
async def test_a_cancelled_stream_ends_as_cancelled_and_a_late_one_is_left_to_the_deadline(
    left: float, said: list[str]
) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    class Publisher:
        def frame(self, seq: int, event: str, data: dict[str, Any]) -> None:
            sent.append((event, data))

        async def drain(self) -> None:
            return

    async def endless() -> AsyncGenerator[Frame, None]:
        yield TextDelta("Once")
        await asyncio.Event().wait()

    stream = Stream(contracts().get(CHAT), Publisher())
    call: Any = SimpleNamespace(remaining=lambda: left)
    work = asyncio.create_task(service.relay(call, stream, ResponseBuilder(BUILT_IN), endless()))
    await wait_for(lambda: bool(sent))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert [event for event, _ in sent] == said
    if left:
        contracts().get(CHAT).check_frame(*sent[-1])
        assert sent[-1][1]["stop_reason"] == "cancelled"


@pytest.mark.asyncio
@pytest.mark.req("LLM-6", "LLM-12")
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (ask("word " * 6000), "bad_request", r"the context is too long: .* takes 4096; .*: shorten it"),
        (
            ask(tools=[tool("search")], tool_choice={"name": "other"}),
            "bad_request",
            "the tool 'other' is not declared; declared: search",
        ),
        (
            ask(tools=[tool("search"), tool("post")], tool_choice="required"),
            "not_implemented",
            "cannot choose among tools; demand one of search, post",
        ),
        (
            ask(model="nobody-offers-this"),
            "not_found",
            f"fits model 'nobody-offers-this'; offered: model '{BUILT_IN.model}'",
        ),
    ],
    ids=["too long", "undeclared tool", "choice", "unknown model"],
)
async def test_what_cannot_be_asked_is_refused(
    mesh: Mesh, body: dict[str, Any], code: str, said: str
) -> None:
    async with running(mesh) as (_, bus):
        with pytest.raises(HearthNetError, match=said) as refused:
            await bus.call(CHAT, body)
        assert refused.value.code == code


@pytest.mark.asyncio
@pytest.mark.req("LLM-3")
async def test_a_model_that_is_missing_is_said_and_taken_when_it_comes(
    mesh: Mesh, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    monkeypatch.setattr(model_file, "packaged", lambda: file)
    monkeypatch.setattr(service, "LOOK_SECONDS", 0.05)
    async with ModelServer() as server, running(mesh, server.config()) as (llm, bus):
        assert [offer.params["model"] for offer in await offered(bus, CHAT)] == ["far"]
        assert llm.note is not None
        assert "hearthnet models install" in llm.note
        file.write_bytes(b"GGUF")
        await wait_for(lambda: "damaged" in str(llm.note))
        os.symlink(model, tmp_path / "new")
        os.replace(tmp_path / "new", file)
        await wait_for(lambda: llm.note is None, 60)
        reply = await bus.call(CHAT, ask(model=BUILT_IN.model))
        assert reply.body["meta"]["model"] == BUILT_IN.model
        assert reply.body["output"]["message"]["content"]


@pytest.mark.asyncio
@pytest.mark.req("LLM-3")
async def test_without_any_model_the_note_says_what_to_do(mesh: Mesh) -> None:
    async with running(mesh, "[llm]\nbuiltin = false\n") as (llm, bus):
        assert llm.note is not None
        assert "set llm.builtin, or add one with `hearthnet models add`" in llm.note
        assert await bus.offers(CHAT) == []


@pytest.mark.asyncio
@pytest.mark.req("LLM-12")
async def test_the_offers_fit_the_contracts(mesh: Mesh) -> None:
    async with running(mesh) as (llm, _):
        offers = llm.offers()
        for offer in offers:
            jsonschema_rs.validate(contracts().get(offer.capability).offer_params, offer.params)
        assert {CHAT, COMPLETE} <= {offer.capability for offer in offers}


@pytest.mark.asyncio
@pytest.mark.req("LLM-46")
async def test_it_is_ready_and_useful_before_the_built_in_model_is_loaded(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, load = threading.Event(), ModelLocator.load

    def slowly(box: ModelLocator, file: Path) -> Any:
        assert release.wait(120)
        return load(box, file)

    monkeypatch.setattr(ModelLocator, "load", slowly)
    async with ModelServer() as server, running(mesh, server.config()) as (_, bus):
        try:
            names = [offer.params["model"] for offer in await offered(bus, CHAT, 2)]
            assert sorted(names) == ["far", BUILT_IN.model]
            waiting = asyncio.create_task(streamed(bus, CHAT, ask(model=BUILT_IN.model)))
            assert (await bus.call(CHAT, ask())).body["meta"]["model"] == "far"
            assert not waiting.done()
        finally:
            release.set()
        frames = await waiting
        assert frames[0] == ("progress", {"stage": "loading", "current": 0, "total": 1})
        assert frames[-1][0] == "done"


@pytest.mark.asyncio
@pytest.mark.req("LLM-46")
async def test_the_built_in_model_alone_is_offered_first_and_loaded_then(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release, load = threading.Event(), threading.Event(), ModelLocator.load

    def slowly(box: ModelLocator, file: Path) -> Any:
        begun.set()
        assert release.wait(120)
        return load(box, file)

    monkeypatch.setattr(ModelLocator, "load", slowly)
    async with running(mesh) as (llm, bus):
        try:
            assert [offer.params["model"] for offer in await offered(bus, CHAT)] == [BUILT_IN.model]
            await wait_for(begun.is_set)  # nobody has asked for it
            waiting = asyncio.create_task(streamed(bus, CHAT, ask()))
            whole = asyncio.create_task(bus.call(CHAT, ask()))
            checked = await bus.call("llm.models.reload@1.0", {"params": {}, "input": {}})
            assert checked.body["output"]["problem"] == ""
            assert not waiting.done()
        finally:
            release.set()
        frames = await waiting
        assert frames[0] == ("progress", {"stage": "loading", "current": 0, "total": 1})
        assert frames[-1][0] == "done"
        assert (await whole).body["meta"]["model"] == BUILT_IN.model
        assert llm.note is None


@pytest.mark.asyncio
@pytest.mark.req("LLM-46", "LLM-3")
async def test_a_model_that_cannot_be_loaded_is_offered_no_more(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def fail(box: ModelLocator, file: Path) -> Any:
        release.wait(120)
        raise HearthNetError("not_implemented", "llama.cpp cannot load it")

    async def names(bus: Bus) -> list[str]:
        return [str(offer.params["model"]) for offer in await bus.offers(CHAT)]

    monkeypatch.setattr(ModelLocator, "load", fail)
    async with running(mesh) as (llm, bus):
        waiting = asyncio.create_task(streamed(bus, CHAT, ask()))
        await wait_for(lambda: llm._boxed is not None and llm._boxed._called.is_set())
        release.set()
        with pytest.raises(HearthNetError, match="cannot load it"):
            await waiting

        async def gone() -> bool:
            return await names(bus) == []

        await wait_for(gone)
        assert llm.note == "llama.cpp cannot load it"
    async with ModelServer() as server, running(mesh, server.config()) as (llm, bus):
        assert len(await names(bus)) == 2
        with pytest.raises(HearthNetError, match="cannot load it"):
            await bus.call(CHAT, ask(model=BUILT_IN.model))

        async def withdrawn() -> bool:
            return await names(bus) == ["far"]

        await wait_for(withdrawn)


@pytest.mark.asyncio
@pytest.mark.req("LLM-46")
async def test_searches_find_their_examples_read(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        builtin_backend, "PAUSE_SECONDS", 0.0
    )  # else a fast machine has read the rest before it says so
    async with running(mesh) as (llm, bus):
        assert llm._boxed is not None
        boxed = llm._boxed
        await wait_for(lambda: boxed.warmed, 40)
        search = ask("Where do otters live?", tools=[tool("search")], tool_choice={"name": "search"})
        frames = await streamed(bus, CHAT, search)
        first = next(data for event, data in frames if event == "progress")
        assert first["current"] > 0.9 * first["total"]
