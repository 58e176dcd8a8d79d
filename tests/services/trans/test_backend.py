"""Apertium as a backend, with programs of our own: what breaks, hangs, comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_trans.apertium import modes
from hearthnet_trans.apertium.backend import Apertium
from hearthnet_trans.apertium.pipeline import Pipeline
from hearthnet_trans.backend import TranslationWork
from tests.helpers.waiting import wait_for
from tests.services.trans.programs import in_group, own_programs

pytestmark = [pytest.mark.asyncio]
WORDS = "sed -z -u -e s/house/casa/g -e 's/unknown/*unknown/g'"
BREAKS = "sed -z -u -e '/boom/Q' -e s/house/casa/g"


def work(text: str, source: str = "en", target: str = "es") -> TranslationWork:
    return TranslationWork(text, source, target)


@asynccontextmanager
async def apertium(folder: Path, **how: float) -> AsyncIterator[Apertium]:
    backend = Apertium(folder, **how)  # type: ignore[arg-type]
    try:
        await backend.open(lambda: None)
        yield backend
    finally:
        await backend.close()


@pytest.mark.req("TRANS-2")
async def test_pairs_are_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa=WORDS, spa_eng_US="cat", zlm_ind="cat") as folder:
        (folder / "README").write_text("")
        async with apertium(folder) as backend:
            assert backend.pairs == {("en", "es"), ("ms", "id")}
            (folder / "eng-spa.mode").unlink()


@pytest.mark.req("TRANS-2")
async def test_without_its_programs_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa=WORDS) as folder:
        monkeypatch.setenv("PATH", str(tmp_path))
        async with apertium(folder) as backend:
            assert not backend.pairs


@pytest.mark.req("TRANS-2")
async def test_what_comes_and_goes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa=WORDS) as folder:
        changes: list[int] = []
        backend = Apertium(folder, look_seconds=0.02)
        await backend.open(lambda: changes.append(1))
        try:
            await backend.translate(work("house"))
            (folder / "spa-eng.mode").write_text("cat\n")
            await wait_for(lambda: ("es", "en") in backend.pairs, 30)
            (folder / "eng-spa.mode").unlink()
            await wait_for(lambda: ("en", "es") not in backend.pairs, 30)
            assert len(changes) == 2
            with pytest.raises(HearthNetError, match="no longer") as caught:
                await backend.translate(work("house"))
            assert caught.value.code == "not_found"
        finally:
            await backend.close()


@pytest.mark.req("TRANS-4")
async def test_the_share_of_words_that_were_known_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa=WORDS) as folder:
        async with apertium(folder) as backend:
            done = await backend.translate(work("The house is unknown."))
            assert (done.text, done.confidence, done.model) == ("The casa is unknown.", 0.75, "eng-spa")
            for nothing in ("", " \n", "<br>", "😀 12", "\x00\x01"):
                assert (await backend.translate(work(nothing))).text == nothing


@pytest.mark.req("TRANS-7")
async def test_a_text_that_breaks_the_programs_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa=BREAKS) as folder:
        async with apertium(folder) as backend:
            texts = ["a house", "boom", "the house", "one house", "boom again", "two house"]
            done = await asyncio.gather(
                *(backend.translate(work(text)) for text in texts), return_exceptions=True
            )
            said = [
                one.code if isinstance(one, HearthNetError) else getattr(one, "text", one) for one in done
            ]
            expected = ["a casa", "internal_error", "the casa", "one casa", "internal_error", "two casa"]
            assert said == expected
            assert (await backend.translate(work("house"))).text == "casa"


@pytest.mark.req("TRANS-7")
async def test_programs_that_hang_are_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = tmp_path / "hung"
    hangs_once = f"sh -c 'if test -e {once}; then exec cat; fi; touch {once}; exec sleep 600'"
    with own_programs(tmp_path, monkeypatch, eng_spa=hangs_once) as folder:
        async with apertium(folder, hangs_seconds=1) as backend:
            assert (await backend.translate(work("house"))).text == "house"
            assert once.exists()


@pytest.mark.req("TRANS-7")
async def test_a_pair_that_cannot_be_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa="cat | | cat", spa_eng="'unclosed") as folder:
        async with apertium(folder) as backend:
            for broken in (work("house"), work("casa", "es", "en")):
                with pytest.raises(HearthNetError, match="cannot be read") as caught:
                    await backend.translate(broken)
                assert caught.value.code == "internal_error"


@pytest.mark.req("TRANS-7")
async def test_so_many_run_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa="sleep 600", spa_eng="cat", eng_cat="cat") as folder:
        async with apertium(folder, most=1) as backend:
            for pair in (("es", "en"), ("en", "ca"), ("es", "en")):
                assert (await backend.translate(work("house", *pair))).text == "house"
            stuck = asyncio.create_task(backend.translate(work("house")))
            await wait_for(lambda: any(not one.idle for one in backend._pipelines.values()), 30)
            with pytest.raises(HearthNetError) as caught:
                await backend.translate(work("house", "es", "en"))
            assert (caught.value.code, bool(caught.value.retry_after_ms)) == ("capacity_exceeded", True)
            stuck.cancel()


@pytest.mark.req("TRANS-7")
async def test_what_nobody_uses_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Pipeline] = []
    start = Pipeline.start

    async def starting(*given: Any, **how: Any) -> Pipeline:
        started.append(await start(*given, **how))
        return started[-1]

    monkeypatch.setattr(Pipeline, "start", starting)
    with own_programs(tmp_path, monkeypatch, eng_spa="cat") as folder:
        async with apertium(folder, idle_seconds=0, look_seconds=0.02) as backend:
            await backend.translate(work("house"))
            [idle] = started
            await wait_for(lambda: not backend._pipelines and in_group(idle._process.pid) == [], 30)


@pytest.mark.req("TRANS-6")
async def test_where_markup_changes_places_it_is_translated_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swaps = r"sed -z -u -e 's/\(\[0\]\)\(.*\)\(\[1\]\)/\3\2\1/' -e s/house/casa/g"
    with own_programs(tmp_path, monkeypatch, eng_spa=swaps) as folder:
        async with apertium(folder) as backend:
            done = await backend.translate(work("a <b>house</b> and a house"))
            assert done.text == "a <b>casa</b> and a casa"


@pytest.mark.req("TRANS-6")
async def test_programs_that_lose_their_place_in_every_piece_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_programs(tmp_path, monkeypatch, eng_spa=r"sed -z -u 's/^/[5]/'") as folder:
        async with apertium(folder) as backend:
            with pytest.raises(HearthNetError, match="cannot translate this text"):
                await backend.translate(work("a house"))


@pytest.mark.req("TRANS-2")
async def test_the_programs_are_told_to_mark_what_they_do_not_know() -> None:
    told = "lt-proc -z 'a b|c.bin' | apertium-tagger -z -g $2 x.prob | lt-proc -z $1 y.bin\n"
    assert modes._stages(told) == [
        ["lt-proc", "-z", "a b|c.bin"],
        ["apertium-tagger", "-z", "-g", "x.prob"],
        ["lt-proc", "-z", "-g", "y.bin"],
    ]
