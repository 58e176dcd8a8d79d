"""Vectors over a real bus: made in the background, by the node's own model, and searched with."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest

from hearthnet import Call, NodeContext, Offer, Reply, Service, capability
from hearthnet.core.errors import HearthNetError
from hearthnet_rag import RagService
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.rag.test_service import ingest, put, query, running

pytestmark = pytest.mark.asyncio
LOOKED_AGAIN = 90.0
"""Seconds: a model that a busy machine kept from being found is looked for again after 30."""
CATS = b"+++\nlanguage = 'en'\n+++\n# Felines\n\nFelines purr on the sofa."
DOGS = b"+++\nlanguage = 'en'\n+++\n# Hounds\n\nHounds bark at the gate."
_MEANINGS = [("feline", "cat", "kitten"), ("hound", "dog", "puppy")]


class EmbedParams(msgspec.Struct, frozen=True):
    model: str | None = None


class EmbedInput(msgspec.Struct, frozen=True):
    texts: list[str]
    normalize: bool = True


class Meanings(Service):
    """Vectors by hand: a number a meaning, and whether it is out of order."""

    name: ClassVar[str] = "embed"

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._params = {"model": "toy", "dim": 3, "max_texts": 2, "languages": ["en"], **params}
        self.texts: list[str] = []
        self.broken = False
        self.refused = ""

    async def start(self, node: NodeContext) -> None:
        """Nothing to prepare."""

    def offers(self) -> list[Offer]:
        return [Offer(capability="embed.text@1.0", params=self._params)]

    async def stop(self) -> None:
        """Nothing to end."""

    @capability("embed.text@1.0")
    async def embed(self, call: Call[EmbedParams, EmbedInput]) -> Reply:
        if self.broken:
            raise HearthNetError("internal_error", "out of order")
        if any(self.refused and self.refused in text for text in call.input.texts):
            raise HearthNetError("bad_request", "too long for this model")
        self.texts += call.input.texts
        vectors = [
            [0.1, *(float(any(word in text.lower() for word in words)) for words in _MEANINGS)]
            for text in call.input.texts
        ]
        return Reply({"embeddings": vectors, "dim": 3}, {"model": "toy"})


async def found(bus: Any, text: str) -> tuple[list[str], dict[str, Any]]:
    reply = await query(bus, "animals", text)
    return [chunk["metadata"]["doc_title"] for chunk in reply.output["chunks"]], reply.meta


@pytest.mark.req("RAG-53")
async def test_passages_are_found_by_meaning_once_their_vectors_are_made(mesh: Mesh) -> None:
    model = Meanings()
    async with mesh.hosting(model), running(mesh) as bus:
        for data in (CATS, DOGS):
            await ingest(bus, "animals", await put(mesh, data), media_type="text/markdown")

        async def by_meaning() -> bool:
            titles, meta = await found(bus, "a kitten")
            return titles[:1] == ["Felines"] and meta["embedding_model"] == "toy"

        await wait_for(by_meaning, LOOKED_AGAIN)
        titles, meta = await found(bus, "ein Hund, der mit der Katze und dem Hund spielt")
        assert (titles, meta["embedding_model"]) == ([], None)  # not a language of the model
        model.broken = True
        titles, meta = await found(bus, "hounds")
        assert titles == ["Hounds"]
        assert (meta["embedding_model"], meta["degraded"]) == (None, True)
        assert "words alone" in meta["notice"]


@pytest.mark.req("RAG-53")
@pytest.mark.parametrize("params", [{"requires_internet": True}, {"languages": []}])
async def test_a_model_that_is_not_of_the_house_or_knows_no_language_sees_nothing(
    mesh: Mesh, params: dict[str, Any]
) -> None:
    model = Meanings(**params)
    rag = RagService()
    async with mesh.hosting(model), running(mesh, rag) as bus:
        await wait_for(lambda: _is_offered(rag._embedding._bus), 30)
        await ingest(bus, "animals", await put(mesh, CATS), media_type="text/markdown")
        assert await rag._embedding.catch_up() == 0
        assert model.texts == []
        titles, meta = await found(bus, "felines")
        assert (titles, meta["embedding_model"]) == (["Felines"], None)
        assert "degraded" not in meta


@pytest.mark.req("RAG-53")
async def test_a_passage_that_the_model_refuses_keeps_no_other_from_its_vectors(mesh: Mesh) -> None:
    model = Meanings()
    model.refused = "purr"
    async with mesh.hosting(model), running(mesh) as bus:
        for data in (CATS, DOGS):
            await ingest(bus, "animals", await put(mesh, data), media_type="text/markdown")

        async def dogs() -> bool:
            return (await found(bus, "puppy"))[0] == ["Hounds"]

        await wait_for(dogs, LOOKED_AGAIN, "the vectors of the other one")
        assert (await found(bus, "felines"))[0][0] == "Felines"


@pytest.mark.req("RAG-53")
async def test_another_nodes_model_is_never_shown_a_document_or_a_query(mesh: Mesh) -> None:
    theirs = Meanings()
    rag = RagService()
    async with mesh.hosting(theirs, at=mesh.guest), running(mesh, rag) as bus:
        await wait_for(lambda: _is_offered(rag._embedding._bus), 30)
        await ingest(bus, "personal", await put(mesh, CATS), media_type="text/markdown")
        assert await rag._embedding.catch_up() == 0
        await query(bus, "personal", "felines")
        assert theirs.texts == []


async def _is_offered(bus: Any) -> bool:
    return bool(await bus.offers("embed.text@1.0"))


@pytest.mark.req("RAG-53")
async def test_what_was_made_is_kept_and_the_rest_made_at_the_next_start(mesh: Mesh) -> None:
    async with running(mesh) as bus:
        await ingest(bus, "animals", await put(mesh, CATS), media_type="text/markdown")
    async with mesh.hosting(Meanings()), running(mesh) as bus:
        await wait_for(lambda: _has_vectors(bus), LOOKED_AGAIN)
    async with running(mesh) as bus:
        await ingest(bus, "animals", await put(mesh, DOGS), media_type="text/markdown")
    model = Meanings()
    async with mesh.hosting(model), running(mesh) as bus:

        async def dogs() -> bool:
            return (await found(bus, "puppy"))[0][:1] == ["Hounds"]

        await wait_for(dogs, LOOKED_AGAIN, "the vectors of the other one")
        assert (await found(bus, "kitten"))[0][:1] == ["Felines"]
        passages = [text for text in model.texts if "\n" in text]
        assert [text.split("\n")[0] for text in passages] == ["Hounds"], "those of the first are kept"
    async with running(mesh) as bus:  # the model is away
        titles, meta = await found(bus, "felines")
        assert titles == ["Felines"]
        assert (meta["embedding_model"], meta["degraded"]) == (None, True)


async def _has_vectors(bus: Any) -> bool:
    _, meta = await found(bus, "felines")
    return bool(meta["embedding_model"] == "toy")


@pytest.mark.parametrize(
    ("capability", "body"),
    [
        ("rag.query@1.0", {"params": {"corpus": "system"}, "input": {"query": "water \ud800"}}),
        ("embed.text@1.0", {"params": {}, "input": {"texts": ["water \udfff"]}}),
    ],
)
async def test_half_a_character_is_refused_before_anything_is_sent(
    mesh: Mesh, capability: str, body: dict[str, Any]
) -> None:
    """A lone surrogate is no text; one that comes as JSON is refused with its frame."""
    model = Meanings()
    async with mesh.hosting(model), running(mesh) as bus:
        with pytest.raises(HearthNetError, match="surrogates not allowed") as caught:
            await bus.call(capability, body)
    assert caught.value.code == "bad_request"
    assert not [text for text in model.texts if text.startswith("water ")]
