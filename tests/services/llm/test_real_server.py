"""llama.cpp's own HTTP server, over both wires it speaks: recorded and put through the checks of recordings,
and asked for what a caller may ask of any model.

Tool calls are not among it: for the template of this model the server leaves tools out. What holds the model
to a form over HTTP is the schema of an answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from hearthnet.core.config import ModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.endpoint import ModelEndpoint
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.frames import Done, Frame, TextDelta
from hearthnet_llm.interface.request import ChatRequest, Message, ResponseSchema, TextForm
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import Target
from tests.conformance.providers.__main__ import run
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.services.llm.conftest import KEY

pytestmark = pytest.mark.req("LLM-53")
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
ASKED = {
    "plain": ChatRequest(messages=[Message("user", "Say hello.")], max_tokens=8, temperature=0),
    "turns": ChatRequest(
        messages=[
            Message("system", "Be brief."),
            Message("user", "Name a river."),
            Message("assistant", "The Rhine."),
            Message("user", "Another one, please: größer, 水?"),
        ],
        max_tokens=6,
        temperature=0.5,
        top_p=0.9,
        stop=["\n"],
    ),
    "schema": ChatRequest(
        messages=[Message("user", "Is it well?")],
        max_tokens=30,
        temperature=0,
        response_schema=ResponseSchema("answer", SCHEMA),
    ),
}
MODEL = "claude-3-llama.cpp"
"""The server takes any name; of models with another one no temperature goes out on Anthropic's wire."""
WIRES = {"openai": ("/v1", "openai-compatible_llamacpp"), "anthropic": ("/v1", "anthropic")}


@pytest.fixture(params=["openai", "anthropic"])
def wire_name(request: pytest.FixtureRequest) -> str:
    """Each wire that the server speaks."""
    name: str = request.param
    return name


@pytest_asyncio.fixture
async def real(
    endpoint: Any,
    wire_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Remote]:
    """The server as a model."""
    monkeypatch.setenv("REAL_KEY", KEY)
    fields = {"kind": wire_name, "name": "real", "model": MODEL, "api_key_env": "REAL_KEY", "ctx": 2048}
    backend = Remote(ModelConfig(url=f"{endpoint.listening_address}/v1", **fields))  # type: ignore[arg-type]
    yield backend
    await backend.aclose()


async def heard(model: Remote, **fields: Any) -> tuple[str, Done]:
    """The text of an answer, and its end."""
    frames = [frame async for frame in model.stream(msgspec.structs.replace(ASKED["plain"], **fields))]
    assert isinstance(frames[-1], Done)
    return _text(frames), frames[-1]


def _text(frames: list[Frame]) -> str:
    return "".join(frame.text for frame in frames if isinstance(frame, TextDelta))


@pytest.mark.asyncio
async def test_its_recorded_exchanges_pass_the_checks_of_recordings(
    endpoint: Any,
    wire_name: str,
    tmp_path: Path,
) -> None:
    below, provider = WIRES[wire_name]
    folder = tmp_path / provider
    folder.mkdir()
    target = Target(MODEL, endpoint.listening_address + below)
    headers = {"Authorization": f"Bearer {KEY}", "Connection": "close"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
        for name, asked in ASKED.items():
            for stream in (True, False):
                request = msgspec.structs.replace(asked, stream=stream)
                native = wire(wire_name).encode(request, target)
                answer = await client.post(native.url, json=native.body, headers=native.headers)
                path = native.url.removeprefix(endpoint.listening_address)
                _record(folder / f"{name}-{stream}.json", path, native.body, answer)
    said: list[str] = []
    counts = run(tmp_path, said.append)[provider]
    assert said == []
    assert (counts["passed"], counts["responses_ok"], counts["requests_ok"]) == (6, 6, 6)


def _record(file: Path, path: str, body: dict[str, Any], answer: httpx2.Response) -> None:
    assert answer.status_code == 200, answer.text
    kind = answer.headers["content-type"]
    said = answer.text if "event-stream" in kind else answer.json()
    exchange = {
        "id": file.stem,
        "provider": file.parent.name,
        "stream": "event-stream" in kind,
        "request": {"method": "POST", "path": path, "json": body},
        "response": {"status": 200, "content_type": kind, "body": said},
    }
    file.write_text(json.dumps(exchange), encoding="utf-8")


@pytest.mark.asyncio
async def test_it_keeps_to_a_limit_and_a_stop(real: Remote) -> None:
    text, done = await heard(real)
    assert (done.stop_reason, done.tokens_out) == ("max_tokens", 8)
    assert done.tokens_in > 10
    assert (await heard(real))[0] == text

    word = text.split()[1][:3]
    short, done = await heard(real, stop=[word])
    assert done.stop_reason == "end"  # all that llama.cpp tells of it
    assert short == text[: text.index(word)]


@pytest.mark.asyncio
async def test_a_schema_and_a_seed_hold(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REAL_KEY", KEY)
    url = f"{endpoint.listening_address}/v1"
    real = Remote(ModelConfig("openai", "real", url, MODEL, "REAL_KEY"))
    schema = ResponseSchema("answer", SCHEMA)
    said, done = await heard(real, max_tokens=30, response_schema=schema)
    assert isinstance(json.loads(said)["ok"], bool)
    assert done.stop_reason == "end"
    drawn = [(await heard(real, temperature=1.5, seed=seed, max_tokens=12))[0] for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]
    await real.aclose()


@pytest.mark.asyncio
@pytest.mark.req("LLM-22")
async def test_it_says_what_program_it_is_and_then_takes_what_only_that_takes(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REAL_KEY", KEY)
    config = ModelConfig("openai", "real", f"{endpoint.listening_address}/v1", MODEL, "REAL_KEY")
    real, server = Remote(config), ModelEndpoint(config)
    yes_or_no = TextForm("gbnf", 'root ::= "yes" | "no"')
    with pytest.raises(HearthNetError, match="takes no grammar"):
        await heard(real, grammar=yes_or_no)
    [listed] = await server.models()
    assert listed.server == "llamacpp"
    real.learn(listed)
    assert (await heard(real, grammar=yes_or_no))[0] in ("yes", "no")
    await real.aclose()
    await server.aclose()


@pytest.mark.asyncio
async def test_what_is_too_long_is_refused_by_the_server_itself(real: Remote) -> None:
    with pytest.raises(HearthNetError, match=r"real: the server answered 400: .*context size") as refused:
        await heard(real, messages=[Message("user", "word " * 3000)])
    assert (refused.value.code, refused.value.details["rule"]) == ("bad_request", "context_length")


@pytest.mark.asyncio
async def test_cancelling_stops_the_server(endpoint: Any, real: Remote) -> None:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=30) as client:

        async def slot() -> dict[str, Any]:
            (found,) = (await client.get(f"{endpoint.listening_address}/slots")).json()
            return dict(found)

        async def idle() -> bool:
            return not (await slot())["is_processing"]

        await heard(real)
        await wait_for(idle)
        assert (await slot())["next_token"][0]["has_next_token"] is False, "it came to its end"
        stream = real.stream(ChatRequest(messages=[Message("user", "Tell a story.")], max_tokens=1500))
        while not isinstance(await anext(stream), TextDelta):
            pass
        assert not await idle()
        watch = Stopwatch()
        await stream.aclose()
        assert watch.seconds() < 0.2

        await wait_for(idle)
        assert (await slot())["next_token"][0]["has_next_token"] is True
