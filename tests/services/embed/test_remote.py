"""Models behind URLs, over the wires of OpenAI and Ollama, with a server that speaks them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hearthnet.core.config import EmbedModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.models import health
from hearthnet_embed import EmbedService
from hearthnet_embed.http_protocols import WIRES, read, request
from hearthnet_embed.remote import PIECE, Remote
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.waiting import wait_for
from tests.services.llm.model_server import HTML, Answer, ModelServer, page

WINDOW = 20
"""Characters that the servers of these tests read."""


def _vector(text: str) -> list[float]:
    return [float(len(text)), 3.0, 4.0]


async def openai(said: dict[str, Any]) -> Answer:
    """As the API's reference has it; the vectors in another order, which their indexes tell."""
    if any(len(text) > WINDOW for text in said["input"]):
        message = "This model's maximum context length is 20 tokens, however you requested 21 tokens"
        return page({"error": {"message": message, "type": "invalid_request_error"}}, 400)
    items = [
        {"object": "embedding", "index": index, "embedding": _vector(text)}
        for index, text in enumerate(said["input"])
    ]
    usage = {"prompt_tokens": len(items), "total_tokens": len(items)}
    return page({"object": "list", "data": items[::-1], "model": said["model"], "usage": usage})


async def ollama(said: dict[str, Any]) -> Answer:
    """As Ollama's documentation has it; without `truncate` a text that is too long is refused."""
    if not said["truncate"] and any(len(text) > WINDOW for text in said["input"]):
        return page({"error": "the input length exceeds the context length"}, 400)
    vectors = [_vector(text[:WINDOW]) for text in said["input"]]
    return page(
        {
            "model": said["model"],
            "embeddings": vectors,
            "total_duration": 1,
            "prompt_eval_count": len(vectors),
        }
    )


@contextlib.asynccontextmanager
async def running(kind: Any, server: ModelServer, **more: Any) -> AsyncIterator[Remote]:
    """A model of the server, looked at once."""
    url = server.url if kind == "openai" else f"http://{server.host}"
    config = EmbedModelConfig(kind=kind, name="far", url=url, model="far-1", **more)
    remote = Remote(config, lambda: None)
    following = asyncio.create_task(remote.follow())
    try:
        async with asyncio.timeout(20):
            await remote.looked.wait()
        yield remote
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await remote.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are looked at often."""
    monkeypatch.setattr(health, "DOUBT_SECONDS", 0.02)
    monkeypatch.setattr(health, "_FIRST_SECONDS", 0.05)
    monkeypatch.setattr(health, "_MOST_SECONDS", 0.05)


def _server(openai_route: Any = openai, ollama_route: Any = ollama) -> ModelServer:
    server = ModelServer()
    server.routes = {"/v1/embeddings": openai_route, "/api/embed": ollama_route}
    return server


@pytest.mark.req("EMBED-8")
@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["openai", "ollama"])
async def test_vectors_come_in_the_order_of_the_texts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "sesame")
    async with _server() as server, running(kind, server, api_key_env="EXAMPLE_API_KEY") as remote:
        profile = remote.profile
        texts = ["x" * (index % 7 + 1) for index in range(2 * PIECE + 3)]
        found = await remote.embed(texts)
    assert (profile.model, profile.dim, profile.requires_internet) == ("far", 3, False)
    assert found.vectors == [_vector(text) for text in texts]
    assert found.tokens == len(texts)
    assert {headers["authorization"] for _, _, headers, _ in server.asked} == {"Bearer sesame"}
    assert sorted(len(said["input"]) for _, _, _, said in server.asked) == [1, 3, PIECE, PIECE]


@pytest.mark.req("EMBED-6", "EMBED-8")
@pytest.mark.asyncio
async def test_a_text_that_is_too_long_is_cut_and_told_or_refused() -> None:
    texts = ["short", "y" * 30, "also short"]
    async with _server() as server:
        async with running("ollama", server) as remote:
            found = await remote.embed(texts)
        assert found.truncated == (1,)
        assert found.vectors == [_vector(text[:WINDOW]) for text in texts]
        async with running("openai", server) as remote:
            with pytest.raises(HearthNetError, match="maximum context length") as refused:
                await remote.embed(texts)
    assert refused.value.code == "bad_request"


@pytest.mark.req("EMBED-8")
@pytest.mark.asyncio
async def test_other_failures_are_not_taken_for_a_text_that_is_too_long() -> None:
    calls = 0

    async def failing(said: dict[str, Any]) -> Answer:
        nonlocal calls
        calls += 1
        if calls == 1:
            return await ollama(said)
        return page({"error": "exceeds" if len(said["input"]) > 1 else "invalid"}, 400)

    async with _server(ollama_route=failing) as server, running("ollama", server) as remote:
        with pytest.raises(HearthNetError, match="invalid") as refused:
            await remote.embed(["a", "b"])
    assert refused.value.code == "bad_request"


@pytest.mark.req("EMBED-8")
@pytest.mark.parametrize("kind", ["openai", "ollama"])
@pytest.mark.parametrize(
    "data",
    [
        b"<html>Log in</html>",
        b"{}",
        b"",
        b'{"data": [{"index": 1, "embedding": [1]}], "embeddings": [[1], [2]]}',
        b'{"data": [{"embedding": []}], "embeddings": [[]]}',
        b'{"data": [], "embeddings": []}',
        b'{"data": [{"index": 0, "embedding": ["1"]}], "embeddings": [[null]]}',
        b'{"data": [{"index": 0, "embedding": [1], "index": -1}], "embeddings": "1"}',
    ],
)
def test_what_is_no_answer_is_said_to_be_none(kind: Any, data: bytes) -> None:
    with pytest.raises(HearthNetError, match="far: ") as refused:
        read(WIRES[kind], "far", "http://127.0.0.1/v1", data, 1)
    assert refused.value.code == "internal_error"


@pytest.mark.req("EMBED-8")
@pytest.mark.parametrize(
    ("kind", "url", "met"),
    [
        ("openai", "https://api.example/v1", "https://api.example/v1/embeddings"),
        ("openai", "https://api.example/v1/embeddings", "https://api.example/v1/embeddings"),
        ("openai", "http://me:secret@host:80/v1/", "http://host:80/v1/embeddings"),
        ("ollama", "http://host:11434", "http://host:11434/api/embed"),
        ("ollama", "http://host:11434/v1", "http://host:11434/api/embed"),
        ("ollama", "http://host:11434/api/embed", "http://host:11434/api/embed"),
    ],
)
def test_addresses_are_taken_as_people_write_them(kind: Any, url: str, met: str) -> None:
    assert request(WIRES[kind], url, "m", ["a"]).url == met


def _settings(server: ModelServer, **more: str) -> str:
    lines = {"kind": "openai", "name": "far", "url": server.url, "model": "far-1", **more}
    text = "".join(f'{name} = "{value}"\n' for name, value in lines.items())
    return f'[embed]\nbuiltin = false\n[[embed.models]]\n{text}aliases = ["vendor/far"]\nlanguages = ["de"]\n'


@pytest.mark.req("EMBED-3", "EMBED-8", "EMBED-9")
@pytest.mark.asyncio
async def test_a_model_is_offered_while_its_server_answers(mesh: Mesh, quick: None) -> None:
    body = {"params": {"model": "vendor/far"}, "input": {"texts": ["soil"]}}
    async with _server() as server:
        mesh.home.config_file.write_text(_settings(server))
        service = EmbedService()
        async with mesh.hosting(service) as host, await mesh.bus() as bus:

            async def here() -> bool:
                await host.refresh()
                return bool(host.offers)

            async def gone() -> bool:
                await host.refresh()
                return not host.offers

            await wait_for(here, 20, "the offer")
            (offer,) = await offered(bus, "embed.text")
            assert (offer.params["dim"], offer.params["languages"]) == (3, ["de"])
            assert (await bus.call("embed.text", body)).meta["model"] == "far"
            await server.stop()
            with pytest.raises(HearthNetError) as lost:
                await bus.call("embed.text", body, node=mesh.identity.node_id)
            assert lost.value.code in ("partition", "not_found")
            await wait_for(gone, 20, "no offer")
            assert service.note is not None
            assert "far cannot be reached" in service.note
            await server.start()
            await wait_for(here, 20, "the offer again")
            assert service.note is None


@pytest.mark.req("EMBED-9")
@pytest.mark.asyncio
async def test_a_server_with_another_model_than_before_is_looked_at_again() -> None:
    async with _server() as server, running("openai", server) as remote:

        async def larger(said: dict[str, Any]) -> Answer:
            return page({"data": [{"embedding": [1, 2, 3, 4]} for _ in said["input"]]})

        server.routes["/v1/embeddings"] = larger
        with pytest.raises(HearthNetError, match="another model now"):
            await remote.embed(["soil"])
        await wait_for(lambda: remote.profile.dim == 4, 20, "the new size")
        assert (await remote.embed(["soil"])).vectors == [[1, 2, 3, 4]]


@pytest.mark.req("EMBED-9")
@pytest.mark.asyncio
async def test_one_that_never_was_there_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mute(_said: dict[str, Any]) -> Answer:
        await asyncio.sleep(60)
        return HTML

    async with _server(openai_route=HTML) as server, running("openai", server) as remote:
        assert not remote.there
        assert "answered an HTML page" in remote.problem
    monkeypatch.setattr("hearthnet_embed.remote.LOOK_SECONDS", 0.1)
    async with _server(openai_route=mute) as server, running("openai", server) as remote:
        assert not remote.there
        assert "does not answer" in remote.problem


@pytest.mark.req("EMBED-9")
@pytest.mark.asyncio
async def test_one_far_away_is_looked_at_after_failures_alone(
    monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr("hearthnet_embed.remote.is_near", lambda _url: False)
    monkeypatch.setattr(health, "CALM_SECONDS", 0.01)
    pauses: list[float | None] = []
    timeout = asyncio.timeout

    def counted(seconds: float | None) -> asyncio.Timeout:
        pauses.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr("hearthnet_embed.remote.asyncio.timeout", counted)
    async with _server() as server, running("openai", server) as remote:
        assert remote.profile.requires_internet
        await wait_for(lambda: None in pauses, 20, "that it waits for a failure, however long")
        assert len(server.asked) == 1
        server.routes.clear()
        with pytest.raises(HearthNetError, match="404"):
            await remote.embed(["soil"])
        await wait_for(lambda: not remote.there, 20, "that it is seen to be gone")
