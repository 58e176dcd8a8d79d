"""Images in OpenAI's messages, small ones and those of a telephone's camera."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import openai
import pytest
import pytest_asyncio

from hearthnet import Call, Offer, Reply, Stream, capability
from hearthnet.gateway.http.rate_limits import MOST_WITH_IMAGES
from tests.helpers.gateway import House
from tests.helpers.probe import CHAT, CHAT_META, MODEL, Anything, ProbeService

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Seeing(ProbeService):
    """A model that can see, as far as the bus can tell."""

    name: ClassVar[str] = "seeing"

    def offers(self) -> list[Offer]:
        """The model alone."""
        return [Offer(capability=CHAT, params={**MODEL, "model": "seeing", "modalities": ["text", "vision"]})]

    @capability(CHAT)
    async def chat(self, call: Call[Anything, Anything], stream: Stream) -> Reply:
        """Says how many images it was shown."""
        self.calls.append(call)
        await stream.send("token", {"text": str(len(images(call.body)))})
        return Reply({"message": {"role": "assistant", "content": ""}}, dict(CHAT_META))


def images(body: dict[str, Any]) -> list[dict[str, Any]]:
    parts = [part for message in body["input"]["messages"] for part in message["content"]]
    return [part for part in parts if part["type"] == "image"]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def seeing(shared: House) -> AsyncIterator[Seeing]:
    """The model, offered on this node."""
    service = Seeing()
    async with shared.mesh.hosting(service):
        yield service


async def look(house: House, *pictures: bytes, data: str = "", model: str = "seeing") -> str:
    """What the model says of the pictures."""
    key = house.guest().bearer["Authorization"].removeprefix("Bearer ")
    urls = [data or f"data:image/png;base64,{base64.b64encode(picture).decode()}" for picture in pictures]
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    parts.append({"type": "text", "text": "What is this?"})
    async with openai.AsyncOpenAI(
        base_url=f"{house.url}/v1", api_key=key, max_retries=0, timeout=60
    ) as client:
        answer = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": parts}]
        )
    return answer.choices[0].message.content or ""


@pytest.mark.req("HTTP-22")
async def test_a_small_image_travels_with_the_question(shared: House, seeing: Seeing) -> None:
    picture = bytes(range(256)) * 8
    assert await look(shared, picture) == "1"
    (image,) = images(seeing.calls[-1].body)
    assert base64.b64decode(image["data"]) == picture
    assert image["media_type"] == "image/png"


@pytest.mark.req("HTTP-22")
async def test_large_images_are_stored_and_named(shared: House, seeing: Seeing) -> None:
    large, small = bytes(range(256)) * 8192, b"small"
    assert await look(shared, large, small, large) == "3"
    first, second, third = images(seeing.calls[-1].body)
    assert first["image_cid"] == third["image_cid"]
    assert "data" not in first
    assert base64.b64decode(second["data"]) == small
    async with await shared.mesh.store() as store:
        assert await store.get_blob(first["image_cid"]) == large
    with pytest.raises(openai.NotFoundError):
        await look(shared, large, model="only-elsewhere")


@pytest.mark.req("HTTP-22")
async def test_what_is_no_image_or_far_too_large_is_refused(shared: House, seeing: Seeing) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        await look(shared, b"", data="data:image/png;base64," + "*" * 1_100_000)
    assert wrong.value.param == "messages[0].content[0]"
    async with shared.http(shared.guest(), headers={"Content-Type": "application/json"}) as http:
        answer = await http.post("/v1/chat/completions", content=b" " * (MOST_WITH_IMAGES + 1))
        elsewhere = await http.post("/v1/call", content=b" " * 1_100_000)
        no_length = await http.post("/v1/chat/completions", content=_pieces())
    assert answer.status_code == elsewhere.status_code == no_length.status_code == 413


@pytest.mark.req("HTTP-22")
async def test_a_large_question_without_images_goes_on_as_it_is(shared: House, seeing: Seeing) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        await look(shared, b"x", data="data:image/png;base64," + "a" * 40, model="m" * 1_100_000)
    assert refused.value.status_code == 400


async def _pieces() -> AsyncIterator[bytes]:
    for _ in range(20):
        yield b" " * 100_000
