"""Models that come and go while the service runs: by the settings, and with their servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.core import config_follower
from hearthnet.core.errors import HearthNetError
from hearthnet.models import health
from hearthnet_llm import LlmService
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.llm.model_server import HTML, Answer, ModelServer, calling, page, saying
from tests.services.llm.test_service import CHAT, ask, streamed, tool

ALONE = "[llm]\nbuiltin = false\n"
CHECK, RELOAD = "llm.models.check@1.0", "llm.models.reload@1.0"
NOTED = calling("take_note", {"text": "hello"})


@contextlib.asynccontextmanager
async def running(mesh: Mesh, config: str = "") -> AsyncIterator[tuple[LlmService, Bus]]:
    """The service without the built-in model, as its own process runs it, and another process."""
    mesh.home.config_file.write_text(ALONE + config, encoding="utf-8")
    llm, changed, over = LlmService(), asyncio.Event(), asyncio.Event()
    async with mesh.hosting(llm) as host, await mesh.bus() as bus:

        async def follow() -> None:
            while not over.is_set():
                changed.clear()
                await host.refresh()
                await changed.wait()

        llm.on_offers_changed(changed.set)
        following = asyncio.create_task(follow())
        try:
            yield llm, bus
        finally:
            over.set()  # told, not cancelled: asyncio.wait_for of Python 3.11 may lose a cancellation
            changed.set()
            await following


async def offered(bus: Bus) -> list[str]:
    """The names of the models that are offered."""
    return sorted(str(offer.params["model"]) for offer in await bus.offers(CHAT))


def write(mesh: Mesh, *configs: str) -> None:
    """Has other settings."""
    mesh.home.config_file.write_text(ALONE + "".join(configs), encoding="utf-8")


async def check(bus: Bus, **wish: Any) -> dict[str, Any]:
    """What llm.models.check answers."""
    output: dict[str, Any] = (await bus.call(CHECK, {"params": {}, "input": wish})).body["output"]
    return output


async def closed() -> str:
    """An address at which nobody answers any more."""
    async with ModelServer() as gone:
        return f"http://{gone.host}"


# --- by the settings


@pytest.mark.asyncio
@pytest.mark.req("LLM-41")
async def test_models_come_and_go_with_the_settings(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_follower, "LOOK_SECONDS", 0.02)
    async with ModelServer() as server, running(mesh) as (llm, bus):
        assert "hearthnet models add" in str(llm.note)
        write(mesh, server.config("one"))
        await wait_for(lambda: _equal(bus, ["one"]))
        assert llm.note is None
        write(mesh, server.config("one"), server.config("two", "two-1"))
        await wait_for(lambda: _equal(bus, ["one", "two"]))
        mesh.home.config_file.write_text("[llm]\nbuiltin = maybe\n")
        await wait_for(lambda: llm.note)
        assert "the models stay as they were" in str(llm.note)
        assert "line 2" in str(llm.note)
        await wait_for(lambda: _equal(bus, ["one", "two"]))
        write(mesh, server.config("two", "two-1"))
        await wait_for(lambda: _equal(bus, ["two"]))
        assert llm.note is None


async def _equal(bus: Bus, names: list[str]) -> bool:
    return await offered(bus) == names


@pytest.mark.asyncio
@pytest.mark.req("LLM-41")
async def test_reloading_says_which_models_are_there_and_what_is_wrong(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh) as (_, bus):
        dead = await closed()
        write(mesh, server.config("one"), server.config("dead", url=f"{dead}/v1"))
        output = (await bus.call(RELOAD, {"params": {}, "input": {}})).body["output"]
        await wait_for(lambda: _equal(bus, ["one"]))
        states = {model["name"]: model for model in output["models"]}
        assert output["problem"] == ""
        assert states["one"] == {"name": "one", "backend": "openai", "there": True, "problem": ""}
        assert f"dead cannot be reached at {dead.removeprefix('http://')}" in states["dead"]["problem"]
        mesh.home.config_file.write_text("[llm")
        output = (await bus.call(RELOAD, {"params": {}, "input": {}})).body["output"]
        assert "stay as they were" in output["problem"]
        assert [model["name"] for model in output["models"]] == ["one", "dead"]


@pytest.mark.asyncio
@pytest.mark.req("LLM-41")
async def test_a_call_that_runs_comes_to_its_end_when_its_model_is_let_go(mesh: Mesh) -> None:
    release = asyncio.Event()

    async def slowly(request: dict[str, Any]) -> Answer:
        await release.wait()
        return saying("late")

    async with ModelServer() as server, running(mesh, server.config("one")) as (_, bus):
        server.routes["/v1/chat/completions"] = slowly
        call = asyncio.create_task(bus.call(CHAT, ask(model="one")))
        await wait_for(lambda: server.posts())
        write(mesh)
        await bus.call(RELOAD, {"params": {}, "input": {}})
        release.set()
        assert (await call).body["output"]["message"]["content"] == "late"
        assert await offered(bus) == []


@pytest.mark.asyncio
@pytest.mark.req("LLM-41")
async def test_others_may_neither_look_nor_reload(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, server.config("one")), await mesh.guest_bus() as guest:
        await wait_for(lambda: _equal(guest, ["one"]))
        for name in (CHECK, RELOAD):
            with pytest.raises(HearthNetError, match=f"nobody in the mesh offers {name} now") as refused:
                await guest.call(name, {"params": {}, "input": {}})
            assert refused.value.code == "not_found"


# --- with their servers


@pytest.mark.asyncio
@pytest.mark.req("LLM-43", "LLM-44")
async def test_a_server_that_goes_takes_its_offers_along_and_brings_them_back(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "DOUBT_SECONDS", 0.02)
    monkeypatch.setattr(health, "_FIRST_SECONDS", 0.05)
    async with ModelServer() as server, running(mesh, server.config("one")) as (llm, bus):
        await wait_for(lambda: _equal(bus, ["one"]))
        await server.stop()
        with pytest.raises(HearthNetError) as lost:
            await bus.call(CHAT, ask(model="one"))
        assert lost.value.code == "partition"
        await wait_for(lambda: _equal(bus, []))
        assert f"the model one cannot be reached at {server.host}" in str(llm.note)
        await server.start()
        await wait_for(lambda: _equal(bus, ["one"]))
        assert llm.note is None
        assert (await bus.call(CHAT, ask(model="one"))).body["meta"]["model"] == "one"


@pytest.mark.asyncio
@pytest.mark.req("LLM-43")
async def test_what_is_not_there_at_the_start_is_offered_when_it_comes(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_FIRST_SECONDS", 0.05)
    async with ModelServer() as server:
        await server.stop()
        async with running(mesh, server.config("one")) as (_, bus):
            assert await offered(bus) == []
            await server.start()
            await wait_for(lambda: _equal(bus, ["one"]))


@pytest.mark.asyncio
@pytest.mark.req("LLM-43")
async def test_without_its_key_a_model_is_not_offered_and_nobody_is_asked(mesh: Mesh) -> None:
    async with ModelServer() as server:
        async with running(mesh, server.config("one", api_key_env="NOT_SET_ANYWHERE")) as (llm, bus):
            assert await offered(bus) == []
            assert "set the environment variable NOT_SET_ANYWHERE" in str(llm.note)
        assert server.asked == []


@pytest.mark.asyncio
@pytest.mark.req("LLM-43")
@pytest.mark.parametrize("answer", [page({}, 401), page({}, 403), page({}, 404), HTML, page([1])])
async def test_a_server_that_only_chats_is_there_all_the_same(mesh: Mesh, answer: Answer) -> None:
    async with ModelServer() as server:
        server.routes["/v1/models"] = answer
        async with running(mesh, server.config("one")) as (_, bus):
            await wait_for(lambda: _equal(bus, ["one"]))


@pytest.mark.asyncio
@pytest.mark.req("LLM-42")
async def test_offers_say_what_the_servers_tell(mesh: Mesh) -> None:
    described = {"one-1": {"max_model_len": 16384, "architecture": {"input_modalities": ["text", "image"]}}}
    async with ModelServer(**described) as server:
        tags = {"models": [{"name": "two-1", "model": "two-1"}]}
        shown = {"model_info": {"x.context_length": 40960}, "capabilities": ["completion", "vision"]}
        server.routes |= {"/api/tags": page(tags), "/api/show": page(shown), "/api/ps": page({"models": []})}
        ollama = server.config("two", "two-1", kind="ollama", url=f"http://{server.host}")
        own = server.config("three", "one-1", ctx=512, vision=False, tools=False)
        async with running(mesh, server.config("one", "one-1") + ollama + own) as (_, bus):
            await wait_for(lambda: _equal(bus, ["one", "three", "two"]))
            params = {offer.params["model"]: offer.params for offer in await bus.offers(CHAT)}
    keys = ("ctx", "modalities", "tools_supported", "backend")
    assert {name: tuple(param[key] for key in keys) for name, param in params.items()} == {
        "one": (16384, ["text", "vision"], True, "openai"),
        "two": (40960, ["text", "vision"], False, "ollama"),
        "three": (512, ["text"], False, "openai"),
    }


@pytest.mark.asyncio
@pytest.mark.req("LLM-44", "LLM-45")
async def test_a_stream_goes_on_with_the_next_model(mesh: Mesh) -> None:
    async with ModelServer() as first, ModelServer() as second:
        first.routes["/v1/chat/completions"] = page({"error": {"message": "overloaded"}}, 503)
        second.routes["/v1/chat/completions"] = saying("Here I am.")
        async with running(mesh, first.config("one") + second.config("two")) as (_, bus):
            frames = await streamed(bus, CHAT, ask())
    assert [event for event, _ in frames] == ["notice", "token", "done"]
    assert frames[0][1]["code"] == "other_model"
    assert frames[0][1]["text"].startswith("one: the server answered 503")
    assert frames[-1][1]["model"] == "two"


@pytest.mark.asyncio
@pytest.mark.req("LLM-45")
async def test_a_model_that_refuses_tools_is_offered_without_them_from_then_on(mesh: Mesh) -> None:
    async def refusing(request: dict[str, Any]) -> Answer:
        said = {"error": {"message": "one-1 does not support tools"}}
        return page(said, 400) if request.get("tools") else saying()

    async with ModelServer() as server:
        server.routes["/v1/chat/completions"] = refusing
        async with running(mesh, server.config("one", "one-1")) as (_, bus):
            frames = await streamed(bus, CHAT, ask(tools=[tool("search")]))
            assert [event for event, _ in frames] == ["notice", "token", "done"]
            await wait_for(lambda: _toolless(bus))
        asked = server.posts()
        async with running(mesh, server.config("one", "one-1")) as (_, bus):
            await wait_for(lambda: _toolless(bus))
            await streamed(bus, CHAT, ask(tools=[tool("search")]))
        assert server.posts() == asked + 1


async def _toolless(bus: Bus) -> bool:
    return [offer.params["tools_supported"] for offer in await bus.offers(CHAT)] == [False]


# --- looking at a server


@pytest.mark.asyncio
@pytest.mark.req("LLM-40")
async def test_a_server_is_found_listed_and_tried(mesh: Mesh) -> None:
    async with ModelServer(big={"context_length": 32000}, small={}) as server, running(mesh) as (_, bus):
        server.routes["/v1/chat/completions"] = NOTED
        listed = await check(bus, url=f"http://{server.host}")
        assert (listed["kind"], listed["url"], listed["api_key_env"]) == ("openai", server.url, None)
        assert [(model["name"], model["ctx"]) for model in listed["models"]] == [
            ("big", 32000),
            ("small", None),
        ]
        assert (listed["tested"], server.posts()) == (None, 0)
        tested = (await check(bus, url=server.url, model="big"))["tested"]
        assert {**tested, "ms": 0} == {
            "model": "big", "tool_call": True, "answered": True, "ms": 0, "ctx": 32000, "tools": True,
            "vision": False, "requires_internet": False, "problem": "", "tool_mode": "native",
        }  # fmt: skip
        assert server.asked[-1][3]["tool_choice"] == {"type": "function", "function": {"name": "take_note"}}


@pytest.mark.asyncio
@pytest.mark.req("LLM-40")
async def test_ollama_is_known_by_its_own_name(mesh: Mesh) -> None:
    async with ModelServer(q={}) as server, running(mesh) as (_, bus):
        call = {"function": {"name": "take_note", "arguments": {"text": "hello"}}}
        noted = page({"message": {"tool_calls": [call]}, "done": True, "done_reason": "stop"})
        server.routes |= {"/api/version": page({"version": "0.9"}), "/api/chat": noted}
        server.routes["/api/show"] = page(
            {"model_info": {"q.context_length": 2048}, "capabilities": ["tools"]}
        )
        server.routes["/api/ps"] = page({"models": [{"name": "q", "context_length": 1024}]})
        checked = await check(bus, url=server.url, model="q")
        assert (checked["kind"], checked["url"]) == ("ollama", f"http://{server.host}")
        assert (checked["tested"]["ctx"], checked["tested"]["tool_call"]) == (1024, True)


@pytest.mark.asyncio
@pytest.mark.req("LLM-40", "LLM-45")
async def test_a_model_that_only_talks_is_told_from_one_that_fails(mesh: Mesh) -> None:
    async def wants_choice(request: dict[str, Any]) -> Answer:
        forced = isinstance(request.get("tool_choice"), dict)
        return page({"error": "thinking models take no tool_choice"}, 400) if forced else NOTED

    async with ModelServer(m={}) as server, running(mesh) as (_, bus):
        talks = (await check(bus, url=server.url, model="m"))["tested"]
        assert (talks["tool_call"], talks["answered"], talks["tools"]) == (False, True, False)
        assert talks["problem"] == "it answered in words instead of calling the tool"
        server.routes["/v1/chat/completions"] = wants_choice
        assert (await check(bus, url=server.url, model="m"))["tested"]["tool_call"] is True
        off = (await check(bus, url=server.url, model="m", tools=False))["tested"]
        assert (off["tools"], off["problem"]) == (False, "switched off")
        server.routes["/v1/chat/completions"] = page({"error": "out of memory"}, 500)
        with pytest.raises(HearthNetError, match="out of memory"):
            await check(bus, url=server.url, model="m")


@pytest.mark.asyncio
@pytest.mark.req("LLM-40")
@pytest.mark.parametrize(
    ("answer", "wish", "code", "said"),
    [
        (page({"error": "no key"}, 401), {}, "unauthorized", "it wants a key"),
        (HTML, {}, "internal_error", "answered an HTML page, so no model's server is met there"),
        (page({"hello": 1}), {}, "internal_error", "JSON that is no list of models"),
        (page({}, 404), {}, "not_found", "404"),
        (page({"data": [{"id": "a"}]}), {"model": "b"}, "not_found", "has no model 'b'; it has a"),
        (page({}), {"url": "ftp://x"}, "bad_request", "begins with http"),
        (page({}), {"kind": "azure"}, "bad_request", "where is it"),
        (
            page({}),
            {"api_key_env": "NOT_SET_ANYWHERE"},
            "unauthorized",
            "set the environment variable NOT_SET",
        ),
        (page({}), {"url": "closed"}, "partition", "cannot be reached at 127.0.0.1:[0-9]+; start"),
    ],
)
async def test_what_is_wrong_with_a_server_is_said(
    mesh: Mesh, answer: Answer, wish: dict[str, Any], code: str, said: str
) -> None:
    async with ModelServer() as server, running(mesh) as (_, bus):
        server.routes["/v1/models"] = answer
        given = {"url": server.url, **wish}
        if wish.get("url") == "closed":
            given["url"] = await closed()
        if wish.get("kind"):
            del given["url"]
        with pytest.raises(HearthNetError, match=said) as failed:
            await check(bus, **given)
        assert failed.value.code == code


@pytest.mark.asyncio
@pytest.mark.req("LLM-40")
async def test_a_server_without_a_list_is_taken_at_the_name_of_its_model(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh) as (_, bus):
        del server.routes["/v1/models"]
        server.routes["/v1/chat/completions"] = NOTED
        assert (await check(bus, url=server.url, model="m"))["tested"]["tool_call"] is True
