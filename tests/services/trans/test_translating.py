"""Texts of any length, by the library and by `hearthnet translate`."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hearthnet.cli.commands import translate as cli
from hearthnet.cli.output import terminal
from hearthnet.core.errors import HearthNetError
from hearthnet.text.translate_long import MOST_CHARACTERS, translate
from hearthnet_trans import TransService
from tests.helpers.mesh import Mesh
from tests.services.trans.test_service import GERMAN, Shouting

LONG = f"{GERMAN}\n\n  {GERMAN} " * 200


class Halves(Shouting):
    """Is sure of some texts, and fails at others."""

    async def translate(self, work):  # type: ignore[no-untyped-def]
        if "boom" in work.text:
            raise HearthNetError("internal_error", "no")
        return await super().translate(work)


@pytest.mark.asyncio
@pytest.mark.req("TRANS-12")
async def test_a_long_text_comes_back_whole(mesh: Mesh) -> None:
    backend, told = Halves("one", "de-en"), list[tuple[int, int]]()
    async with mesh.hosting(TransService([backend])), await mesh.bus() as bus:
        whole = await translate(bus, LONG, "auto", "en", done=lambda number, of: told.append((number, of)))
        assert whole.text == LONG.upper()
        assert (whole.source, whole.confidence, whole.backends) == ("de", 0.5, ("one",))
        assert whole.parts == len(told) >= len(LONG) // MOST_CHARACTERS
        assert told[-1] == (whole.parts, whole.parts)
        assert {work.source for work in backend.asked} == {"de"}
        empty = await translate(bus, "", "de", "en", backend="one")
        assert (empty.text, empty.parts) == ("", 0)
        blank = await translate(bus, " \n", "auto", "en")
        same = await translate(bus, "Das Haus.", "de", "de")
        assert (blank.text, same.text, same.backends) == (" \n", "Das Haus.", ())
        there = await translate(bus, "The water is cold. " * 500, "auto", "en")
        assert (there.text, there.backends, there.source) == ("The water is cold. " * 500, (), "en")
        with pytest.raises(HearthNetError) as failed:
            await translate(bus, f"{LONG}boom.", "de", "en")
        assert (failed.value.code, failed.value.message) == ("internal_error", "no")


@pytest.mark.asyncio
@pytest.mark.req("TRANS-12")
async def test_the_command_translates_a_file_and_says_what_it_knows(mesh: Mesh, tmp_path: Path) -> None:
    file = tmp_path / "text.md"
    file.write_text(GERMAN)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(
            cli.command,
            [*arguments, "--home", str(mesh.home.path)],
            catch_exceptions=False,
            standalone_mode=False,
        )
        assert done.exception is None
        return done.output

    async with mesh.hosting(TransService([Shouting("one", "de-en")])):
        with mesh.published():
            assert await asyncio.to_thread(run, str(file), "--to", "en") == GERMAN.upper()
            assert (
                await asyncio.to_thread(run, str(file), "--to", "English", "--from", "DEU") == GERMAN.upper()
            )
            page = json.loads(await asyncio.to_thread(run, str(file), "--to", "en", "--from", "de", "--json"))
    rest = {"source": "de", "target": "en", "confidence": 0.5, "backends": ["one"], "parts": 1}
    assert page == {"text": GERMAN.upper(), **rest}


@pytest.mark.req("TRANS-12")
def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").write_bytes(b"ab\xff")
    told = {"none": "no file", "": "cannot be read", "broken": "byte 3"}
    for name, words in told.items():
        with pytest.raises(HearthNetError, match=words) as refused:
            cli.read(str(tmp_path / name))
        assert "\n" not in refused.value.message
    monkeypatch.setattr(cli, "MOST_BYTES", 2)
    with pytest.raises(HearthNetError, match="split it"):
        cli.read(str(tmp_path / "broken"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hi")))
    assert cli.read("-") == "hi"


@pytest.mark.req("TRANS-12")
def test_a_person_sees_nothing_that_steers_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.printable("a\x1b[2J") == "a\x1b[2J"
    monkeypatch.setattr(terminal, "is_tty", lambda stream: True)
    assert cli.printable("a\x1b[2J\nb") == "a\\x1b[2J\nb\n"
    assert cli.printable("a\n") == "a\n"
    with cli.progress(quiet=False) as done:
        done(1, 2)
        done(2, 2)
    with cli.progress(quiet=True) as done:
        done(1, 2)
