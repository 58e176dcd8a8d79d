"""The examples of docs/gateway.md do what they say."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from hearthnet.gateway.runs.runs import GatewayRuns
from tests.helpers.gateway import House
from tests.helpers.memory_runs import MemoryRuns
from tests.helpers.scripted_model import Say

pytestmark = pytest.mark.asyncio(loop_scope="module")
_PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"


def example(language: str, words: str) -> str:
    """The block of that language that holds `words`."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if words in block]
    return str(block)


@pytest.mark.req("HTTP-2")
async def test_the_call_with_curl(shared: House) -> None:
    key = shared.guest().bearer["Authorization"].removeprefix("Bearer ")
    script = example("sh", "/v1/call").replace('"system"', '"probe"')
    environment = {**os.environ, "URL": shared.url, "KEY": key, "NO_PROXY": "*"}
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, env=environment, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert json.loads(out)["output"]["chunks"][0]["text"] == "about clean water"


@pytest.mark.req("HTTP-14")
async def test_the_question_with_openais_package(shared: House) -> None:
    shared.gateway.runs = GatewayRuns(shared.bus, shared.gateway.clients, MemoryRuns())
    search = Say(calls=(("search_corpus", {"corpus": "probe", "query": "water"}),))
    shared.model.turns["What does our library say about clean water?"] = [search, Say("Boil it.")]
    names: dict[str, Any] = {
        "url": shared.url,
        "key": shared.guest().bearer["Authorization"].removeprefix("Bearer "),
    }
    program, told = compile(example("python", "from openai"), "gateway.md", "exec"), io.StringIO()

    def run() -> None:
        with contextlib.redirect_stdout(told):
            exec(program, names)
            names["client"].close()

    await asyncio.to_thread(run)
    lines = [line.strip() for line in told.getvalue().splitlines()]
    assert "mesh+tools" in lines
    assert lines[-1] == "Boil it."
