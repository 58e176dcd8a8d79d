"""Copies of corpora at the command line, with two homes on one server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from hearthnet.cli.commands.corpus import command
from hearthnet.core.home import Home
from tests.helpers.mesh import Mesh
from tests.services.rag.two_homes import MANUALS, two_homes


async def run(home: Home, *words: str) -> tuple[int, str]:
    """Exit code and output of `hearthnet corpus`; the homes go on while it runs."""
    result = await asyncio.to_thread(CliRunner().invoke, command, [*words, "--home", str(home.path)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return 1, str(result.exception)
    return result.exit_code, result.output


@pytest.mark.asyncio
@pytest.mark.req("MIRROR-11")
async def test_a_copy_is_fetched_listed_and_ended(mesh: Mesh) -> None:
    async with two_homes(mesh) as (k, m):
        await k.add(MANUALS, "The boiler needs three bars.")
        with mesh.published(), mesh.published(at=mesh.guest):
            assert (await run(k.home, "share", MANUALS))[0] == 0
            code, text = await run(m.home, "mirror", f"{MANUALS}@{k.node}")
            assert (code, "may not be copied" in text) == (1, True)
            code, text = await run(k.home, "share", MANUALS, "--copies")
            assert "homes of members may keep a copy, with its files" in text
            code, text = await run(m.home, "mirror", f"{MANUALS}@{k.node}")
            [row] = await m.copies()
            assert (code, f"version {row['version']}" in text, "1 document" in text) == (0, True, True)
            listed: list[dict[str, Any]] = json.loads((await run(m.home, "list", "--json"))[1])
            [copy] = [one for one in listed if "copy" in one]
            assert (copy["name"].partition("@")[0], copy["copy"]["home"]) == (MANUALS, k.node)
            assert "copy: version" in (await run(m.home, "list"))[1]
            assert (await run(m.home, "mirror", MANUALS))[0] == 2
            code, text = await run(m.home, "mirror", f"{MANUALS}@{k.node}", "--end")
            assert (code, "ended" in text) == (0, True)
            assert await m.copies() == []
