"""The embed service on a real node: which model answers, and what a call may bring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from hearthnet import NodeContext
from hearthnet.core.errors import HearthNetError
from hearthnet_embed import EmbedService
from hearthnet_embed.backend import Embedded, Profile
from hearthnet_embed.local_models import Box, Loadable
from hearthnet_embed.minilm import files
from hearthnet_embed.requests import check_count, most_texts, named
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered

pytestmark = pytest.mark.asyncio


class Lengths:
    """A model of three numbers: how long the text is, how many words it has, and one."""

    def __init__(self, model: str, *aliases: str, dim: int = 3) -> None:
        self.profile = Profile(model, dim, "test", aliases=aliases, max_tokens=8, languages=("en",))
        self.closed = False

    async def embed(self, texts: Sequence[str]) -> Embedded:
        vectors = [(float(len(text)), float(len(text.split())), 1.0) for text in texts]
        cut = tuple(index for index, text in enumerate(texts) if len(text.split()) > 8)
        return Embedded(vectors, cut, sum(len(text.split()) for text in texts))

    async def load(self) -> None:
        """There is nothing to load."""

    async def close(self) -> None:
        self.closed = True


class Lying(Box):
    """A box with a model that needs no loading."""

    def __init__(self, model: Lengths) -> None:
        super().__init__()
        self.model = model

    def seen(self) -> object:
        return None

    async def resolve(self) -> Loadable:
        raise NotImplementedError


class Serving(EmbedService):
    """The service with these models."""

    def __init__(self, *models: Lengths) -> None:
        super().__init__()
        self.models = models

    async def start(self, node: NodeContext) -> None:
        self._node = node
        self._boxes = [Lying(model) for model in self.models]
        self._renew()


def _body(*texts: str, model: str | None = None, **more: Any) -> dict[str, Any]:
    params = {} if model is None else {"model": model}
    return {"params": params, "input": {"texts": list(texts), **more}}


@pytest.mark.req("EMBED-1")
async def test_one_vector_a_text_in_their_order(mesh: Mesh) -> None:
    model = Lengths("lengths", "sentence/lengths")
    async with mesh.hosting(Serving(model)), await mesh.bus() as bus:
        reply = await bus.call("embed.text", _body("warm soil", "peas", normalize=False))
        assert reply.output == {"embeddings": [[9, 2, 1], [4, 1, 1]], "dim": 3}
        unit = (await bus.call("embed.text", _body("warm soil", model="sentence/lengths"))).output
        cut = (await bus.call("embed.text", _body("soil", "a b c d e f g h i"))).meta
    assert math.hypot(*unit["embeddings"][0]) == pytest.approx(1, abs=1e-6)
    assert (cut["model"], cut["truncated"], cut["tokens_in"]) == ("lengths", [1], 10)
    assert model.closed


@pytest.mark.req("EMBED-2")
async def test_without_a_model_nothing_is_offered_and_the_note_says_why(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.home.config_file.write_text("[embed]\nbuiltin = false\n")
    service = EmbedService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        assert await bus.offers("embed.text") == []
        assert service.note is not None
        assert "no embedding model" in service.note
    mesh.home.config_file.write_text("")
    monkeypatch.setattr(files, "WEIGHTS", msgspec.structs.replace(files.WEIGHTS, package="no-such-package"))
    monkeypatch.setattr("hearthnet_embed.service.LOOK_SECONDS", 0.05)
    service = EmbedService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        assert await bus.offers("embed.text") == []
        assert service.note is not None
        assert "make embedding" in service.note
        service._boxes.append(Lying(Lengths("later")))
        service._renew()
        await host.refresh()
        assert (await bus.call("embed.text", _body("soil"))).meta["model"] == "later"


@pytest.mark.req("EMBED-3")
async def test_a_model_is_found_by_its_name_or_an_alias() -> None:
    first, second = Lengths("small", "vendor/small"), Lengths("large")
    models = [first, second]
    assert named(models, None, {}) is first
    assert named(models, "vendor/small", {}) is first
    assert named(models, "large", {}) is second
    with pytest.raises(HearthNetError, match="'smal' here; there is small") as missing:
        named(models, "smal", {})
    assert (missing.value.code, missing.value.details["nearest"][0]) == ("not_found", "small")
    with pytest.raises(HearthNetError, match="no embedding model here; there is none"):
        named([], None, {})
    with pytest.raises(HearthNetError, match="offered again") as away:
        named(models, "far", {"far": "its server does not answer"})
    assert away.value.code == "partition"


@pytest.mark.req("EMBED-4")
async def test_a_call_brings_as_many_texts_as_a_message_carries(mesh: Mesh) -> None:
    assert most_texts(384, 8 << 20) == 256
    assert most_texts(4096, 8 << 20) == 170
    assert most_texts(4096, 1 << 20) == 21
    assert most_texts(100_000, 1 << 20) == 1
    with pytest.raises(HearthNetError, match="at most 2 texts") as refused:
        check_count(["a", "b", "c"], 2)
    assert refused.value.code == "bad_request"
    check_count(["a", "b"], 2)
    async with mesh.hosting(Serving(Lengths("lengths"))), await mesh.bus() as bus:
        (offer,) = await offered(bus, "embed.text")
        assert offer.params["max_texts"] == 256
        for wrong, path in (
            (_body(), "/input/texts"),
            (_body(*["a"] * 257), "/input/texts"),
            (_body("a" * 8193), "/input/texts/0"),
            (_body("a", ""), "/input/texts/1"),
        ):
            with pytest.raises(HearthNetError) as caught:
                await bus.call("embed.text", wrong)
            assert (caught.value.code, caught.value.details["path"]) == ("bad_request", path)
