"""Each vendor's wire over real HTTP: address and key, answers, images, cancelling, and servers that fail."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from hearthnet.core.config import ModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends import backend_kinds
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.content_parts import ImagePart, TextPart
from hearthnet_llm.interface.frames import Done, Frame, TextDelta, ToolCall
from hearthnet_llm.interface.request import ChatRequest, CompleteRequest, Message, Tool
from hearthnet_llm.media import LIMITS, ImageFitter
from tests.helpers.mesh import Mesh
from tests.helpers.stopwatch import Stopwatch
from tests.services.llm import test_ollama
from tests.services.llm.asking import events, frame
from tests.services.llm.backends.test_http_backend import head, serving
from tests.services.llm.model_server import ModelServer, page
from tests.services.llm.shapes import picture
from tests.services.llm.test_connecting import running
from tests.services.llm.test_media import asked, opened
from tests.services.llm.test_service import CHAT

pytestmark = pytest.mark.asyncio
KEY = "secret-key-of-mine"
HELLO = ChatRequest(messages=[Message("user", "Hello")], tools=[Tool("look")])


class Vendor(NamedTuple):
    """How a vendor is configured and met, and an answer of it: one word, then a call of `look`."""

    kind: str
    model: str
    below: str
    path: str
    header: tuple[str, str]
    content_type: str
    first: bytes
    rest: bytes


def _anthropics() -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    return [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": block},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def _geminis() -> list[dict[str, Any]]:
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2}
    call = {"functionCall": {"id": "c", "name": "look", "args": {}}}
    return [
        {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]},
        {"candidates": [{"content": {"parts": [call]}, "finishReason": "STOP"}], "usageMetadata": usage},
    ]


def _chunk(event: dict[str, Any]) -> bytes:
    return frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()})


ANTHROPICS, GEMINIS = _anthropics(), _geminis()
CONVERSES = [
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}}),
    frame(
        "contentBlockStart",
        {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "c", "name": "look"}}},
    ),
    frame("messageStop", {"stopReason": "tool_use"}),
    frame("metadata", {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}}),
]
OLLAMAS = [
    {"message": {"content": "Hi"}, "done": False},
    {"message": {"tool_calls": [{"id": "c", "function": {"name": "look", "arguments": {}}}]}, "done": False},
    {"done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2},
]
EVENTS, FRAMES = "text/event-stream", "application/vnd.amazon.eventstream"
BEARER = ("authorization", f"Bearer {KEY}")
VENDORS = {
    "anthropic": Vendor(
        "anthropic",
        "claude-x",
        "/v1",
        "/v1/messages",
        ("x-api-key", KEY),
        EVENTS,
        events(*ANTHROPICS[:2]),
        events(*ANTHROPICS[2:]),
    ),
    "gemini": Vendor(
        "gemini",
        "gemini-x",
        "/v1beta",
        "/v1beta/models/gemini-x:streamGenerateContent",
        ("x-goog-api-key", KEY),
        EVENTS,
        events(GEMINIS[0]),
        events(*GEMINIS[1:]),
    ),
    "ollama": Vendor(
        "ollama",
        "qwen",
        "",
        "/api/chat",
        BEARER,
        "application/x-ndjson",
        test_ollama.lines(OLLAMAS[0]),
        test_ollama.lines(*OLLAMAS[1:]),
    ),
    "bedrock messages": Vendor(
        "bedrock",
        "eu.anthropic.claude-x:0",
        "",
        "/model/eu.anthropic.claude-x%3A0/invoke-with-response-stream",
        BEARER,
        FRAMES,
        b"".join(map(_chunk, ANTHROPICS[:2])),
        b"".join(map(_chunk, ANTHROPICS[2:])),
    ),
    "bedrock converse": Vendor(
        "bedrock",
        "amazon.nova-pro",
        "",
        "/model/amazon.nova-pro/converse-stream",
        BEARER,
        FRAMES,
        CONVERSES[0],
        b"".join(CONVERSES[1:]),
    ),
}


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Vendor:
    """One vendor after the other, with its key in the environment."""
    monkeypatch.setenv("MINE_KEY", KEY)
    return VENDORS[request.param]


@asynccontextmanager
async def connected(vendor: Vendor, url: str, **fields: Any) -> AsyncIterator[Remote]:
    """A backend of the vendor at the host of a URL."""

    base = url.removesuffix("/v1") + vendor.below
    config = {"name": "mine", "api_key_env": "MINE_KEY", **fields}
    fitter = ImageFitter()
    remote = Remote(ModelConfig(kind=vendor.kind, url=base, model=vendor.model, **config), fitter)  # type: ignore[arg-type]
    yield remote
    await remote.aclose()
    fitter.close()


async def frames_of(remote: Remote, request: ChatRequest = HELLO) -> list[Frame]:
    """All frames of an answer."""
    return [one async for one in remote.stream(request)]


@pytest.mark.req("LLM-37")
async def test_an_answer_comes_over_http_with_key_and_address_where_the_vendor_has_them(
    vendor: Vendor,
) -> None:
    async with ModelServer() as server, connected(vendor, server.url) as remote:
        server.routes[vendor.path] = (200, vendor.content_type, vendor.first + vendor.rest)
        frames = await frames_of(remote)
    assert [one for one in frames if isinstance(one, TextDelta | ToolCall | Done)] == [
        TextDelta("Hi"),
        ToolCall("c", "look", {}),
        Done("tool_calls", 3, 2, "native"),
    ]
    _, path, headers, body = server.asked[0]
    assert path.partition("?")[0] == vendor.path
    assert headers[vendor.header[0]] == vendor.header[1]
    assert headers["content-type"] == "application/json"
    assert (headers.get("anthropic-version") == "2023-06-01") == (vendor.kind == "anthropic")
    assert KEY not in json.dumps(body)


@pytest.mark.req("LLM-37")
async def test_a_text_is_continued_by_a_conversation_of_one_message(vendor: Vendor) -> None:
    async with ModelServer() as server, connected(vendor, server.url) as remote:
        server.routes[vendor.path] = (200, vendor.content_type, vendor.first + vendor.rest)
        frames = [one async for one in remote.complete(CompleteRequest(prompt="Once upon"))]
    assert frames[0] == TextDelta("Hi")
    body = server.asked[0][3]
    (message,) = body.get("messages") or body["contents"]
    assert message["role"] == "user"
    assert "Once upon" in json.dumps(message)


@pytest.mark.req("LLM-34")
async def test_images_are_fetched_and_made_to_fit_on_their_way(vendor: Vendor) -> None:
    seeing = asked(
        TextPart("?"), ImagePart(image_cid="blake3:x"), **{"blake3:x": picture(3000, 20, form="BMP")}
    )
    async with ModelServer() as server, connected(vendor, server.url) as remote:
        server.routes[vendor.path] = (200, vendor.content_type, vendor.first + vendor.rest)
        await frames_of(remote, seeing)
    sent = json.dumps(server.asked[0][3])
    (jpeg,) = re.findall(r"/9j/[\w+/=]+", sent)
    longest = LIMITS[backend_kinds.wire_of(remote.config)].longest_side
    image = opened(base64.b64decode(jpeg))
    assert (image.format, image.width) == ("JPEG", min(longest, 3000))
    assert "blake3" not in sent


@pytest.mark.req("ATTACK-38")
async def test_a_redirect_is_not_followed(vendor: Vendor) -> None:
    async with ModelServer() as inside:
        there = f"HTTP/1.1 307 x\r\nlocation: http://{inside.host}/\r\nconnection: close\r\n\r\n"
        async with serving(there.encode()) as url, connected(vendor, url) as remote:
            with pytest.raises(HearthNetError):
                await frames_of(remote)
    assert inside.asked == []


@pytest.mark.req("LLM-2")
async def test_closing_hangs_up_within_200_ms(vendor: Vendor) -> None:
    gone = asyncio.Event()
    answer = head(kind=vendor.content_type), vendor.first
    async with serving(*answer, hold=True, gone=gone) as url, connected(vendor, url) as remote:
        stream = remote.stream(HELLO)
        assert await anext(stream) == TextDelta("Hi")
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        watch = Stopwatch()
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.wait_for(gone.wait(), 30)
        assert watch.seconds() < 0.2


@pytest.mark.req("LLM-35", "LLM-11")
@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (
            [head("429 Slow", "application/json", retry_after="2"), b'{"message":"slow down"}'],
            "rate_limited",
            "slow down",
        ),
        ([head("529 Busy", retry_after_ms="700"), b"{}"], "capacity_exceeded", "the server answered 529"),
        (
            [head("403 No", "application/json"), f'{{"message":"bad {KEY}"}}'.encode()],
            "unauthorized",
            "check the key in MINE_KEY",
        ),
        ([head("404 Not Found", "text/html"), b"<html>nginx</html>"], "not_found", "HTML"),
        ([head(kind="text/html"), b"<html>Log in</html>"], "internal_error", "an HTML page; check its url"),
        (["first"], "internal_error", "mid-answer"),
        ([head(content_length="900"), b""], "partition", "hung up"),
        ([], "partition", "hung up"),
    ],
)
async def test_what_goes_wrong_has_a_code_and_a_reason(
    vendor: Vendor, answer: Any, code: str, said: str
) -> None:
    pieces = [head(kind=vendor.content_type), vendor.first] if answer == ["first"] else answer
    async with serving(*pieces) as url, connected(vendor, url) as remote:
        with pytest.raises(HearthNetError) as caught:
            await frames_of(remote)
    error = caught.value
    assert (error.code, "mine" in error.message) == (code, True)
    assert said in error.message
    assert KEY not in str(error)
    waits = {"rate_limited": 2000, "capacity_exceeded": 700}
    assert error.retry_after_ms == waits.get(code)


@pytest.mark.req("LLM-35", "LLM-11")
async def test_a_server_that_stalls_and_a_key_that_is_missing(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet.models.http_client._SILENCE_SECONDS", 0.2)
    async with serving(head(kind=vendor.content_type), hold=True) as url, connected(vendor, url) as remote:
        with pytest.raises(HearthNetError, match="does not answer") as stalled:
            await frames_of(remote)
        monkeypatch.delenv("MINE_KEY")
        with pytest.raises(HearthNetError, match="set the environment variable MINE_KEY") as missing:
            await frames_of(remote)
    assert (stalled.value.code, missing.value.code) == ("timeout", "unauthorized")


@pytest.mark.req("LLM-36")
async def test_bedrock_is_signed_where_it_has_no_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    vendor = VENDORS["bedrock converse"]
    async with ModelServer() as server, connected(vendor, server.url, api_key_env=None) as remote:
        server.routes[vendor.path] = (200, vendor.content_type, vendor.first + vendor.rest)
        assert (await frames_of(remote))[0] == TextDelta("Hi")
        signature = server.asked[0][2]["authorization"]
        assert signature.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-central-1/bedrock/aws4_request" in signature
        server.routes[vendor.path] = (403, "application/json", b'{"message":"very-secret is wrong"}')
        with pytest.raises(HearthNetError) as refused:
            await frames_of(remote)
    assert refused.value.code == "unauthorized"
    assert "very-secret" not in str(refused.value)


@pytest.mark.req("LLM-38")
async def test_warming_loads_the_model_of_ollama_and_opens_the_way_to_others(vendor: Vendor) -> None:
    async with ModelServer() as server, connected(vendor, server.url) as remote:
        server.routes |= {
            vendor.below + "/models": (200, "application/json", b"{}"),
            "/": (200, "text/html", b""),
        }
        server.routes["/api/chat"] = (200, "application/json", b'{"done": true}')
        await remote.warm()
    method, path, _, body = server.asked[0]
    if vendor.kind == "ollama":
        assert (method, path, body) == (
            "POST",
            "/api/chat",
            {"model": "qwen", "messages": [], "options": {"num_ctx": 4096}},
        )
    else:
        shown = {"anthropic": "/v1/models", "gemini": "/v1beta/models", "bedrock": "/"}[vendor.kind]
        assert (method, path.partition("?")[0], body) == ("GET", shown, None)


async def test_vertex_takes_a_token_and_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:

    url = "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1/publishers/google"
    config = ModelConfig(kind="gemini", name="mine", url=url, model="gemini-x")
    assert backend_kinds.key_header(config) == ("Authorization", "Bearer {key}")
    assert backend_kinds.target(config).base == url
    assert backend_kinds.at(url) == "gemini"
    url = "https://aiplatform.googleapis.com/v1/publishers/google"
    express = ModelConfig(kind="gemini", name="mine", url=url, model="gemini-x")
    assert backend_kinds.key_header(express) == ("x-goog-api-key", "{key}")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://bedrock-runtime.eu-central-1.amazonaws.com", "bedrock"),
        ("https://bedrock-runtime.evil.example", None),
        ("https://ec2-1-2-3-4.compute.amazonaws.com/v1", None),
        ("https://api.anthropic.com", "anthropic"),
    ],
)
async def test_vendors_are_known_by_their_hosts(url: str, kind: str | None) -> None:

    assert backend_kinds.at(url) == kind


@pytest.mark.parametrize(
    ("model", "wire", "sees"),
    [
        ("eu.anthropic.claude-haiku-4-5", "bedrock-anthropic", True),
        ("us.amazon.nova-micro-v1:0", "bedrock-converse", False),
        ("us.amazon.nova-lite-v1:0", "bedrock-converse", True),
    ],
)
async def test_a_model_of_bedrock_has_its_wire_and_its_eyes(model: str, wire: str, sees: bool) -> None:

    config = ModelConfig(
        kind="bedrock", name="mine", url="https://bedrock-runtime.x.amazonaws.com", model=model
    )
    assert (backend_kinds.wire_of(config), backend_kinds.sees(config)) == (wire, sees)


@pytest.mark.req("LLM-34")
async def test_an_image_of_the_mesh_reaches_a_model_that_sees_and_no_other(mesh: Mesh) -> None:
    async with ModelServer() as server, await mesh.store() as store:
        server.routes["/api/chat"] = page({"message": {"content": "A house."}, "done": True})
        cid = await store.put_blob(picture())
        asked = [
            {"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image", "image_cid": cid}]}
        ]
        ollama = {"kind": "ollama", "url": f"http://{server.host}"}
        models = [server.config(name, name, vision=name == "sees", **ollama) for name in ("blind", "sees")]
        async with running(mesh, "".join(models)) as (_, bus):
            reply = await bus.call(CHAT, {"params": {}, "input": {"messages": asked}})
            with pytest.raises(HearthNetError, match="blind cannot see images") as refused:
                await bus.call(CHAT, {"params": {"model": "blind"}, "input": {"messages": asked}})
    assert reply.body["output"]["message"]["content"] == "A house."
    assert refused.value.code == "not_found"
    chats = [body for _, path, _, body in server.asked if path == "/api/chat" and body["messages"]]
    assert [(chat["model"], chat["messages"][0]["images"]) for chat in chats] == [
        ("sees", [base64.b64encode(picture()).decode()])
    ]
