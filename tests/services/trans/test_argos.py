"""Language packs of Argos Translate, run without it: one that the test makes."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet_trans import argos as module
from hearthnet_trans.argos import Argos, packs_folder
from hearthnet_trans.backend import TranslationWork
from tests.helpers.waiting import wait_for
from tests.services.trans.packs import make_pack

pytestmark = pytest.mark.asyncio
PARTS = [
    "# ",
    "the house is big",
    "\n\n- **",
    "my water",
    "** `the house`\n\n<p>",
    "we go",
    "</p> https://a.b/the?x=1",
]


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    make_pack(folder / "en_es")
    make_pack(folder / "translate-en_nds-1_0", target="nds", prefix="\u2581the")
    make_pack(folder / "en_xx", target="xx")
    (folder / "half").mkdir()
    (folder / "half" / "metadata.json").write_text('{"from_code": "en", "to_code": "fr"}')
    (folder / "broken").mkdir()
    (folder / "broken" / "metadata.json").write_text("{")
    return folder


@pytest_asyncio.fixture
async def argos(packs: Path) -> AsyncIterator[Argos]:
    backend = Argos(packs)
    await backend.open(lambda: None)
    yield backend
    await backend.close()


@pytest.mark.req("TRANS-13")
async def test_whole_packs_are_pairs_and_translate_the_same_each_time(argos: Argos) -> None:
    assert argos.pairs == {("en", "es"), ("en", "nds")}
    work = TranslationWork("the house is big.\n my water ", "en", "es")
    first = await argos.translate(work)
    assert (first.model, first.confidence) == ("argos-en-es", 1.0)
    assert first.text != work.text
    assert first.text.endswith(" ")
    both = await asyncio.gather(
        argos.translate(work), argos.translate(TranslationWork(work.text, "en", "nds"))
    )
    assert both[0] == first
    assert both[1].model == "argos-en-nds"


@pytest.mark.req("TRANS-13", "TRANS-6")
async def test_what_is_no_language_comes_back_in_its_place(argos: Argos) -> None:
    said = (await argos.translate(TranslationWork("".join(PARTS), "en", "es"))).text
    place = 0
    for kept in PARTS[::2]:
        assert kept in said[place:]
        place = said.index(kept, place) + len(kept)
    for nothing in ("", " \n", "<br>", "12 34", "\x00"):
        assert (await argos.translate(TranslationWork(nothing, "en", "es"))).text == nothing
    long = await argos.translate(TranslationWork("the house " * 80, "en", "es"))
    assert long.text.endswith(" ")


@pytest.mark.req("TRANS-13")
async def test_one_pack_gives_way_to_another(argos: Argos, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOADED", 1)
    for target in ("es", "nds", "es"):
        await argos.translate(TranslationWork("the house", "en", target))
        assert list(argos._loaded) == [("en", target)]


@pytest.mark.req("TRANS-13")
async def test_packs_come_and_go_and_a_damaged_one_is_told(packs: Path, tmp_path: Path) -> None:
    folder, changes = tmp_path / "packages", list[int]()
    backend = Argos(folder, look_seconds=0.02)
    await backend.open(lambda: changes.append(1))
    try:
        assert not backend.pairs
        folder.mkdir()
        shutil.copytree(packs / "en_es", folder / "en_es")
        await wait_for(lambda: bool(changes), 30)
        (folder / "en_es" / "model" / "model.bin").write_bytes(b"nothing")
        with pytest.raises(HearthNetError, match="install it anew") as caught:
            await backend.translate(TranslationWork("the house", "en", "es"))
        assert caught.value.code == "internal_error"
        shutil.rmtree(folder)
        await wait_for(lambda: not backend.pairs, 30)
        with pytest.raises(HearthNetError, match="no longer installed"):
            await backend.translate(TranslationWork("the house", "en", "es"))
    finally:
        await backend.close()


@pytest.mark.req("TRANS-13")
async def test_without_its_libraries_the_note_says_what_to_install(
    packs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    backend = Argos(packs)
    await backend.open(lambda: None)
    await backend.close()
    assert not backend.pairs
    assert "hearthnet-trans[argos]" in backend.note


@pytest.mark.req("TRANS-13")
async def test_packs_are_looked_for_where_argos_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARGOS_PACKAGES_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert packs_folder() == Path("/data/argos-translate/packages")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert packs_folder() == Path.home() / ".local/share/argos-translate/packages"
    monkeypatch.setenv("ARGOS_PACKAGES_DIR", "/packs")
    assert packs_folder() == Path("/packs")
