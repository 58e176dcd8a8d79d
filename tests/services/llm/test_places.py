"""How many answers of a connected model run at once: by the settings, else by where its server is."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.core import config_follower
from hearthnet.core.config import ModelConfig
from hearthnet_llm.backends.backend_kinds import FEW, MANY, profile_of
from hearthnet_llm.vendors.catalog import CatalogEntry
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.waiting import wait_for
from tests.services.llm.test_connecting import running, write
from tests.services.llm.test_service import CHAT, ask

CHATS = 60
PATIENCE_SECONDS = 120


@contextlib.asynccontextmanager
async def model_process(meet: int) -> AsyncIterator[str]:
    """The address of a model's server that runs in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.services.llm.model_process", str(meet)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


def config(url: str, **fields: Any) -> str:
    """The settings of the model there."""
    more = "".join(f"{name} = {value}\n" for name, value in fields.items())
    return f'\n[[llm.models]]\nkind = "openai"\nname = "far"\nurl = "{url}"\nmodel = "far-1"\n{more}'


async def places(bus: Bus) -> list[int]:
    """What the offers of the model say."""
    return [offer.offer.max_concurrent for offer in await offered(bus, CHAT)]


async def all_chats(bus: Bus, many: int = CHATS) -> None:
    """So many chats that are begun at once."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(bus.call(CHAT, ask(f"Say {number}.")) for number in range(many)))


@pytest.mark.asyncio
@pytest.mark.req("LLM-146")
async def test_sixty_chats_are_at_a_model_process_at_once(mesh: Mesh) -> None:
    async with model_process(CHATS) as url, running(mesh, config(url, max_concurrent=CHATS)) as (_, bus):
        assert await places(bus) == [CHATS]
        await all_chats(bus)
        async with httpx2.AsyncClient() as client:
            told = (await client.get(url.removesuffix("/v1") + "/peak")).json()
    assert told == {"peak": CHATS}


@pytest.mark.asyncio
@pytest.mark.req("LLM-146", "LLM-41")
async def test_places_follow_the_settings_while_it_runs(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_follower, "LOOK_SECONDS", 0.02)

    async def has(bus: Bus, count: int) -> bool:
        return await places(bus) == [count]

    async with model_process(9) as url, running(mesh, config(url)) as (llm, bus):
        assert await places(bus) == [FEW]
        write(mesh, config(url, max_concurrent=9))
        await wait_for(lambda: has(bus, 9))
        await all_chats(bus, 20)
        async with httpx2.AsyncClient() as client:
            told = (await client.get(url.removesuffix("/v1") + "/peak")).json()
        assert told == {"peak": 9}
        write(mesh, config(url, max_concurrent=0))
        await wait_for(lambda: llm.note)
        assert "max_concurrent" in str(llm.note)
        assert await places(bus) == [9], "a file that is wrong changes nothing"


@pytest.mark.req("LLM-146")
@pytest.mark.parametrize(
    ("url", "told", "chosen", "count"),
    [
        ("https://api.example.com/v1", None, None, MANY),
        ("https://api.example.com/v1", None, 7, 7),
        ("http://127.0.0.1:8080/v1", None, None, FEW),
        ("http://192.168.1.5:8080/v1", "llamacpp", None, FEW),
        ("http://192.168.1.5:8000/v1", "vllm", None, MANY),
        ("http://127.0.0.1:8080/v1", "vllm", 2, 2),
    ],
)
def test_places_are_chosen_or_follow_the_server(
    url: str, told: str | None, chosen: int | None, count: int
) -> None:
    model = ModelConfig(kind="openai", name="m", url=url, model="m", max_concurrent=chosen)
    assert profile_of(model, CatalogEntry("m", server=told)).max_concurrent == count
    assert MANY >= CHATS
