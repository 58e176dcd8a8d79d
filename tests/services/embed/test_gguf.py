"""A GGUF file as embedding model; the language model in the box makes vectors, too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_embed import EmbedService, gguf
from hearthnet_embed.backend import Embedded
from hearthnet_embed.gguf import Engine, Gguf, GgufBox
from hearthnet_llm.builtin import model_file
from tests.helpers.leaving import leave_out
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.req("EMBED-11")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the language model in the box."""
    try:
        return model_file.built_in(tmp_path_factory.mktemp("model") / "checked.json")
    except HearthNetError as error:
        leave_out(error.message)


@pytest.mark.asyncio
async def test_a_file_is_offered_under_its_name(
    mesh: Mesh, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "MAX_TOKENS", 32)
    mesh.home.config_file.write_text(f'[embed]\nbuiltin = false\nmodel_file = "{file}"\n')
    long = "garden " * 50
    texts = ["Rain fell on the roof.", long, *["Rain fell on the roof."] * 9, "nul \0 in it"]
    service = EmbedService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:

        async def offered() -> bool:
            await host.refresh()
            return bool(host.offers)

        await wait_for(offered, 30, "the model")
        body = {"params": {"model": file.stem}, "input": {"texts": texts}}
        reply = await bus.call("embed.text", body, timeout_seconds=60)
    vectors = np.array(reply.output["embeddings"])
    assert vectors.shape == (len(texts), 576)
    assert reply.meta["truncated"] == [1]
    assert np.abs(vectors[0] - vectors[2]).max() < 1e-3
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.asyncio
async def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    for content, words in ((None, "No such file"), (b"text", "no GGUF file"), (b"GGUF?", "cannot load")):
        if content is not None:
            other.write_bytes(content)
        box = GgufBox(other, 1)
        await box.look()
        assert box.model is None
        assert words in box.problem
        assert box.seen() != (content is None)


class Slow(Engine):
    """An engine that a test lets go on."""

    def __init__(self) -> None:
        self.dim = 1
        self.asked = 0

    def embed(self, texts: Sequence[str]) -> Embedded:
        self.asked += 1
        return Embedded([[1.0] for _ in texts], (0,), 1)


@pytest.mark.asyncio
async def test_where_too_many_wait_a_caller_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "_MOST_WAITING", 1)
    model = Gguf("slow", Slow())
    first = asyncio.create_task(model.embed(["a"] * 20))
    await asyncio.sleep(0)
    with pytest.raises(HearthNetError) as full:
        await model.embed(["b"])
    assert (full.value.code, full.value.retry_after_ms) == ("capacity_exceeded", 500)
    found = await first
    assert (len(found.vectors), found.truncated) == (20, (0, 8, 16))
    await model.load()
    await model.close()


class Refusing(Engine):
    """An engine whose server says what the test has it say."""

    def __init__(self, said: object) -> None:
        class Server:
            def handle_embeddings(self, _body: object) -> object:
                return said

        self._server = Server()


def test_what_the_engine_refuses_is_said() -> None:
    with pytest.raises(HearthNetError, match=r"llama\.cpp: no memory"):
        Refusing({"error": {"message": "no memory"}}).embed(["a"])
    with pytest.raises(HearthNetError, match="shorten it") as refused:
        Refusing({"error": {"message": "input (600 tokens) is too large"}}).embed(["a"])
    assert refused.value.code == "bad_request"


def test_a_model_that_makes_no_vectors_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Refusing({"error": {"message": "not supported"}})._server
    monkeypatch.setattr("hearthnet_embed.gguf.open_llama", lambda *_: server)
    with pytest.raises(HearthNetError, match="makes no vectors") as refused:
        Engine(Path("some.gguf"), 1)
    assert refused.value.code == "not_implemented"
