"""The built-in model: its vectors are those of its weights, whoever is embedded beside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet_embed import EmbedService
from hearthnet_embed.minilm import files
from hearthnet_embed.minilm.backend import MiniLm
from hearthnet_embed.minilm.files import MAX_TOKENS, Files
from hearthnet_embed.minilm.model import Model
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.services.embed.reference import Reference

TEXTS = [
    "That is a happy person",
    "That is a happy dog",
    "That is a very happy person",
    "Today is a sunny day",
    "How do I boil rainwater so that it is safe to drink?",
    "Über die Straße, naïve café 北京 🚲 " + "x" * 130,
    " ".join(f"word{number}" for number in range(100)),
]
PUBLISHED = [1.0, 0.695, 0.943, 0.257]
"""How near the first four are to the first one, as the model's makers show it."""


def _units(found: Model, texts: list[str]) -> np.ndarray:
    vectors = found.vectors([one.ids for one in found.tokens(texts)])
    units: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units


@pytest.mark.req("EMBED-5")
def test_the_vectors_are_those_of_the_weights(minilm: Model, installed: Files) -> None:
    reference = Reference(installed.weights)
    wanted = np.array([reference.vector(list(one.ids)) for one in minilm.tokens(TEXTS)])
    together = _units(minilm, TEXTS)
    alone = np.concatenate([_units(minilm, [text]) for text in TEXTS])
    assert np.abs(together - wanted).max() < 1e-5
    assert np.abs(alone - wanted).max() < 1e-5
    assert together[:4] @ together[0] == pytest.approx(PUBLISHED, abs=6e-4)


@pytest.mark.req("EMBED-6")
def test_a_text_is_read_up_to_the_window(minilm: Model) -> None:
    long = "garden " * 1_000
    (short,), (cut,) = minilm.tokens(["garden"]), minilm.tokens([long])
    assert (short.truncated, cut.truncated) == (False, True)
    assert len(cut.ids) == MAX_TOKENS
    fits = minilm.tokens(["garden " * (MAX_TOKENS - 2)])[0]
    assert (len(fits.ids), fits.truncated) == (MAX_TOKENS, False)


@pytest.mark.req("EMBED-2", "EMBED-5")
def test_a_missing_or_another_file_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Files
) -> None:
    def refusal() -> str:
        with pytest.raises(HearthNetError) as refused:
            files.checked_files(tmp_path / "memory")
        assert refused.value.code == "not_implemented"
        return refused.value.message

    right = files.WEIGHTS
    for pin, words in (
        (msgspec.structs.replace(right, package="no-such-package"), "not installed"),
        (msgspec.structs.replace(right, size=right.size + 1), "damaged"),
        (msgspec.structs.replace(right, sha256="0" * 64), "damaged"),
    ):
        monkeypatch.setattr(files, "WEIGHTS", pin)
        assert words in refusal()
        assert "make embedding" in refusal()
    monkeypatch.setattr(files, "WEIGHTS", right)
    monkeypatch.setattr(files, "_LIBRARIES", ("numpy", "no_such_library"))
    assert "needs no_such_library; `make embedding` installs it" in refusal()


@pytest.mark.req("EMBED-2")
def test_a_file_that_the_libraries_cannot_use_is_said(tmp_path: Path, installed: Files) -> None:
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"\0" * 100)
    with pytest.raises(HearthNetError, match="cannot be loaded") as refused:
        Model(Files(other, installed.tokenizer), 1)
    assert refused.value.code == "not_implemented"


async def _ask(bus: Bus, *texts: str) -> tuple[np.ndarray, dict[str, object]]:
    reply = await bus.call("embed.text", {"params": {}, "input": {"texts": list(texts)}}, timeout_seconds=60)
    return np.array(reply.output["embeddings"]), reply.meta


@pytest.mark.req("EMBED-1", "EMBED-5", "EMBED-6", "EMBED-7")
@pytest.mark.asyncio
async def test_the_service_offers_it_and_tells_what_was_cut(mesh: Mesh, minilm: Model) -> None:
    """Asked before it is loaded, it answers once it is."""
    async with mesh.hosting(EmbedService()) as host, await mesh.guest_bus() as bus:
        assert len(host.offers) == 1
        vectors, meta = await _ask(bus, TEXTS[0], "garden " * 1_000, TEXTS[2], "nul \0 in it", " ")
        (offer,) = await offered(bus, "embed.text")
    assert offer.params["model"] == "all-MiniLM-L6-v2"
    assert (offer.params["dim"], offer.params["max_tokens"], offer.params["languages"]) == (384, 256, ["en"])
    assert meta["truncated"] == [1]
    assert np.abs(vectors[[0, 2]] - _units(minilm, [TEXTS[0], TEXTS[2]])).max() < 1e-5
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.req("EMBED-7")
@pytest.mark.asyncio
async def test_one_that_is_let_go_before_it_is_loaded_answers_nobody(installed: Files) -> None:
    unloaded = MiniLm(installed, 1)
    waiting = asyncio.create_task(unloaded.embed(["water"]))
    await asyncio.sleep(0)
    await unloaded.close()
    await asyncio.wait({waiting}, timeout=30)
    assert waiting.cancelled()


@pytest.mark.req("EMBED-7")
@pytest.mark.asyncio
async def test_one_that_cannot_be_loaded_says_so_to_all(
    installed: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise HearthNetError("not_implemented", "it cannot be loaded")

    monkeypatch.setattr("hearthnet_embed.minilm.model.Model", failing)
    monkeypatch.setattr("hearthnet_embed.minilm.backend.PREWARM_SECONDS", 0)
    broken = MiniLm(installed, 1)
    early = asyncio.create_task(broken.embed(["rain"]))
    await asyncio.sleep(0)
    for work in (broken.load(), early, broken.embed(["water"])):
        with pytest.raises(HearthNetError, match="it cannot be loaded") as refused:
            await work
        assert refused.value.code == "not_implemented"
    await broken.close()
