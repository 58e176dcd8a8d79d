"""Models that lie in files: one that is missing, damaged or cannot be loaded, and one that comes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet import NodeContext
from hearthnet.core.errors import HearthNetError
from hearthnet.models.pinned_files import Pin
from hearthnet_embed import EmbedService
from hearthnet_embed.backend import Embedded
from hearthnet_embed.local_models import Box, Loadable
from hearthnet_embed.minilm import files
from hearthnet_embed.requests import output
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.embed.test_service import Lengths


class Heavy(Lengths):
    """A model that cannot be loaded."""

    async def load(self) -> None:
        raise HearthNetError("not_implemented", "it does not fit into the memory")


class Shelf(Box):
    """A box whose file is a number that the test changes: 0 is missing, odd ones cannot be loaded."""

    def __init__(self, file: int) -> None:
        super().__init__()
        self.file = file
        self.made: list[Lengths] = []

    def seen(self) -> object:
        return self.file

    async def resolve(self) -> Loadable:
        if not self.file:
            raise HearthNetError("not_implemented", "no file")
        self.made.append((Heavy if self.file % 2 else Lengths)(f"model-{self.file}"))
        return self.made[-1]


class Shelved(EmbedService):
    """The service with one shelf."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__()
        self.shelf = shelf

    async def start(self, node: NodeContext) -> None:
        self._node = node
        self._boxes = [self.shelf]
        await self.shelf.look()
        self._renew()


@pytest.mark.req("EMBED-2", "EMBED-10")
@pytest.mark.asyncio
async def test_a_file_that_comes_later_is_found(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet_embed.service.LOOK_SECONDS", 0.02)
    shelf = Shelf(1)
    service = Shelved(shelf)
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        await wait_for(lambda: "does not fit" in (service.note or ""), 20, "why there is no model")
        assert shelf.made[0].closed
        await host.refresh()
        assert host.offers == []
        shelf.file = 0
        await wait_for(lambda: service.note == "no file", 20, "the other reason")
        shelf.file = 2
        await wait_for(lambda: service.note is None, 20, "the model")
        await host.refresh()
        reply = await bus.call("embed.text", {"params": {}, "input": {"texts": ["soil"]}})
    assert reply.meta["model"] == "model-2"


@pytest.mark.req("EMBED-10")
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model.safetensors"
    folder.mkdir()
    pin = Pin(files.PACKAGE, "/model.safetensors", folder.stat().st_size, "0" * 64)
    monkeypatch.setattr(files, "WEIGHTS", pin)
    monkeypatch.setattr(Pin, "packaged", lambda _self: folder)
    with pytest.raises(HearthNetError, match="Is a directory") as refused:
        files.checked_files(tmp_path / "memory")
    assert refused.value.code == "not_implemented"


@pytest.mark.req("EMBED-1")
@pytest.mark.parametrize("vectors", [[[1.0, float("nan")]], [[float("inf"), 0.0]], [1.0, 2.0]])
def test_vectors_that_are_none_are_not_passed_on(vectors: list[list[float]]) -> None:
    with pytest.raises(HearthNetError, match="vectors that are none; ask another model") as refused:
        output(Embedded(vectors), True)
    assert refused.value.code == "internal_error"


@pytest.mark.req("EMBED-1")
def test_a_vector_of_zeros_stays_one() -> None:
    assert output(Embedded([[0.0, 0.0], [3.0, 4.0]]), True)["embeddings"] == [[0, 0], [0.6, 0.8]]
    assert output(Embedded([[0.0, 0.0], [3.0, 4.0]]), False)["embeddings"] == [[0, 0], [3, 4]]
