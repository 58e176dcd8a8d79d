"""Images in OpenAI's messages, small ones and those of a telephone's camera."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import openai
import pytest
import pytest_asyncio

from hearthnet import Call, NodeContext, Offer, Reply, Stream, capability
from hearthnet.gateway.http.rate_limits import MOST_WITH_IMAGES
from tests.helpers.gateway import House, open_house
from tests.helpers.probe import CHAT, CHAT_META, MODEL, Anything, ProbeService

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Seeing(ProbeService):
    """A model that can see, as far as the bus can tell."""

    name: ClassVar[str] = "seeing"

    def __init__(self, model: str = "seeing") -> None:
        super().__init__()
        self.model = model

    async def start(self, node: NodeContext) -> None:
        """Opens nothing: there are no posts."""

    def offers(self) -> list[Offer]:
        """The model alone."""
        return [
            Offer(capability=CHAT, params={**MODEL, "model": self.model, "modalities": ["text", "vision"]})
        ]

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
        assert await store.blobs.read(first["image_cid"]) == large


@pytest.mark.req("ATTACK-38")
@pytest.mark.parametrize("model", ["seeing", "seeing+tools"])
async def test_a_stored_image_is_held_for_who_asks(shared: House, seeing: Seeing, model: str) -> None:
    await look(shared, random.Random(model).randbytes(1 << 20), model=model)
    call = seeing.calls[-1]
    (image,) = images(call.body)
    async with await shared.mesh.store() as store:
        entry = await store.blobs.entry(image["image_cid"])
    assert call.principal.startswith(f"{shared.mesh.identity.node_id}/")
    assert [(hold.by, hold.shared) for hold in entry.notes.holds] == [(call.principal, False)]


@pytest.mark.req("HTTP-22")
async def test_stored_images_are_shown_to_no_model_elsewhere(tmp_path: Path) -> None:
    far = Seeing("far")
    async with open_house(tmp_path, stores=True) as house, house.mesh.hosting(far, house.mesh.guest):
        assert await look(house, b"small", model="far") == "1"
        with pytest.raises(openai.NotFoundError):
            await look(house, bytes(range(256)) * 8192, model="far")
    assert len(far.calls) == 1


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
    limits = [answer.json()["error"]["message"], elsewhere.json()["message"]]
    assert limits == [f"a request has {most} bytes at most" for most in (25_165_824, 1_048_576)]
    assert no_length.json()["error"]["message"] == limits[1]


@pytest.mark.req("HTTP-22")
async def test_a_large_request_without_large_images_goes_on_as_it_is(shared: House, seeing: Seeing) -> None:
    url = "data:image/png;base64,aGVsbG8="
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is this?"}]
    asked = {"model": "seeing", "messages": [{"role": "user", "content": parts}]}
    content = json.dumps(asked).encode() + b" " * 1_100_000
    async with shared.http(shared.guest(), headers={"Content-Type": "application/json"}) as http:
        answer = await http.post("/v1/chat/completions", content=content)
    assert answer.status_code == 200, answer.text
    assert seeing.calls[-1].body["input"]["messages"][0]["content"] == [
        {"type": "image", "data": "aGVsbG8=", "media_type": "image/png"},
        {"type": "text", "text": "What is this?"},
    ]


async def _pieces() -> AsyncIterator[bytes]:
    for _ in range(20):
        yield b" " * 100_000
