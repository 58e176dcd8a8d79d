"""Through the service: images by their hash, and conversations that are longer than the model's context."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.services.llm.model_server import ModelServer
from tests.services.llm.shapes import picture
from tests.services.llm.test_media import opened
from tests.services.llm.test_service import CHAT, ask, running, streamed

ALONE = "[llm]\nbuiltin = false\n"


def seen(cid: str, **fields: Any) -> dict[str, Any]:
    """A question about an image."""
    body = ask(**fields)
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image", "image_cid": cid}]
    body["input"]["messages"] = [{"role": "user", "content": parts}]
    return body


@pytest.mark.asyncio
@pytest.mark.req("LLM-54")
async def test_an_image_is_taken_from_the_nodes_store_also_in_the_next_turn(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, ALONE + server.config(vision=True)) as (_, bus):
        async with await mesh.store() as store:
            cid = await store.put_blob(picture(3000, 1500, "BMP"))
        await bus.call(CHAT, seen(cid, thread_id="t", thread_length=0))
        await bus.call(CHAT, ask("And now?", thread_id="t", thread_length=2))
        for request in [said for method, _, _, said in server.asked if method == "POST"]:
            url = request["messages"][0]["content"][1]["image_url"]["url"]
            kind, _, data = url.partition(";base64,")
            assert (kind, opened(base64.b64decode(data)).size) == ("data:image/jpeg", (2048, 1024))

        with pytest.raises(HearthNetError, match="keeps no blob") as missing:
            await bus.call(CHAT, seen("blake3:" + "0" * 64))
        assert missing.value.code == "not_found"


@pytest.mark.asyncio
@pytest.mark.req("LLM-54")
async def test_a_model_without_eyes_refuses_before_anything_is_fetched(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, ALONE + server.config(vision=False)) as (_, bus):
        with pytest.raises(
            HearthNetError, match=r"far cannot see images; .*modalities \[vision\]"
        ) as refused:
            await bus.call(CHAT, seen("blake3:" + "0" * 64))
        assert refused.value.code == "not_found"
        assert server.posts() == 0


@pytest.mark.asyncio
@pytest.mark.req("LLM-51", "LLM-50")
async def test_a_thread_that_grows_too_long_is_cut_for_the_model_and_kept_whole(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, ALONE + server.config(ctx=1000)) as (_, bus):
        for turn in range(4):
            body = ask(f"{turn} " + "word " * 350, thread_id="t", thread_length=2 * turn)
            frames = await streamed(bus, CHAT, body)
        notices = [data for event, data in frames if event == "notice"]
        assert [notice["code"] for notice in notices] == ["context_cut"]
        assert frames[-1][1]["thread_length"] == 8
        sent = server.asked[-1][3]["messages"]
        assert len(sent) < 7
        assert sent[-1]["content"].startswith("3 word")

        with pytest.raises(HearthNetError, match="the context is too long: about") as refused:
            await bus.call(CHAT, ask("word " * 2000, thread_id="t", thread_length=8))
        assert refused.value.details["path"] == "/input/messages/0"


@pytest.mark.asyncio
@pytest.mark.req("LLM-51")
async def test_nobody_is_refused_for_a_context_that_is_only_a_guess(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, ALONE + server.config()) as (_, bus):
        frames = await streamed(bus, CHAT, ask("word " * 20_000))
        assert [event for event, _ in frames] == ["token", "done"]
