"""An Ollama really keeps the context that is offered: each request says how much, and what is too long is an
error there and not cut in silence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hearthnet.core.config import ModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.vendors.catalog import CatalogEntry, described, in_use
from tests.services.llm.model_server import ModelServer, page

pytestmark = [pytest.mark.asyncio, pytest.mark.req("LLM-42")]
SHORT = ChatRequest(messages=[Message("user", "Hi")])
LONG = ChatRequest(messages=[Message("user", "word " * 10_000)])
MOST = described("q", {"model_info": {"qwen3.context_length": 40_000}})
CHOSEN = described("q", {"parameters": "num_ctx 16384", "model_info": {"qwen3.context_length": 40_000}})


def loaded(ctx: int) -> CatalogEntry:
    """What the server tells of the model while it is loaded."""
    return MOST.refined(in_use("q", {"models": [{"model": "q", "context_length": ctx}]}))


@asynccontextmanager
async def asking(server: ModelServer, **fields: Any) -> AsyncIterator[Remote]:
    """A model of the server, which answers."""
    server.routes["/api/chat"] = page({"message": {"content": "Yes."}, "done": True})
    remote = Remote(ModelConfig(kind="ollama", name="mine", url=f"http://{server.host}", model="q", **fields))
    yield remote
    await remote.aclose()


async def asked(server: ModelServer, remote: Remote, *requests: ChatRequest) -> list[tuple[int, bool]]:
    """The context of each request as the server heard of it, and whether it may cut what is too long."""
    server.asked.clear()
    for request in requests:
        async for _ in remote.stream(request):
            pass
    return [(body["options"]["num_ctx"], body["truncate"]) for *_, body in server.asked]


@pytest.mark.parametrize(
    ("told", "fields", "ctx"),
    [
        (CatalogEntry("q"), {}, 4096),
        (CHOSEN, {}, 16_384),
        (loaded(12_000), {}, 12_000),
        (MOST, {"ctx": 30_000}, 30_000),
        (loaded(12_000), {"ctx": 30_000}, 30_000),
    ],
)
async def test_a_context_that_is_known_is_asked_for_exactly(
    told: CatalogEntry, fields: Any, ctx: int
) -> None:
    async with ModelServer() as server, asking(server, **fields) as remote:
        remote.learn(told)
        assert remote.profile.ctx == ctx
        assert await asked(server, remote, SHORT, LONG) == [(ctx, False)] * 2


async def test_of_what_a_model_can_have_at_most_as_much_is_asked_for_as_is_needed() -> None:
    async with ModelServer() as server, asking(server) as remote:
        remote.learn(MOST)
        await remote.warm()
        assert server.asked[-1][3]["options"] == {"num_ctx": 8192}
        longer = ChatRequest(messages=[*LONG.messages, *LONG.messages])
        assert [ctx for ctx, _ in await asked(server, remote, SHORT, LONG, SHORT, longer, SHORT)] == [
            8192, 32_768, 32_768, 40_000, 40_000,
        ]  # fmt: skip
        assert remote.profile.ctx == 40_000


async def test_what_was_loaded_as_asked_is_no_bound_and_what_others_loaded_is() -> None:
    async with ModelServer() as server, asking(server) as remote:
        remote.learn(MOST)
        await asked(server, remote, SHORT)
        assert not remote.learn(loaded(8192))
        assert not remote.learn(loaded(8192))
        assert remote.profile.ctx == 40_000
        assert remote.learn(loaded(4096))
        assert remote.profile.ctx == 4096


async def test_what_the_server_finds_too_long_is_refused_with_its_words() -> None:
    async with ModelServer() as server, asking(server) as remote:
        server.routes["/api/chat"] = page({"error": "the input length exceeds the context length"}, 400)
        with pytest.raises(HearthNetError, match="exceeds the context length") as caught:
            await asked(server, remote, SHORT)
    assert caught.value.code == "bad_request"
