"""The guide for authors of services (docs/services.md): its code, put together, runs on a real node."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hearthnet import Service
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.loading import importing
from tests.helpers.mesh import Mesh
from tests.service.workers import approval

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "services.md"
INGEST = "rag.ingest@1.0"
pytestmark = pytest.mark.req("SERVICE-8")


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The Python blocks of the guide as one module."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    module = ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    with importing():  # it ends with hearthnet.run
        exec(compile("\n\n".join(blocks), str(GUIDE), "exec"), module.__dict__)
    return module


def chat(text: str) -> dict[str, Any]:
    """A body for `llm.chat`."""
    return {"params": {"model": "echo"}, "input": {"messages": [{"role": "user", "content": text}]}}


def ingestion(bus: Bus, corpus: str, key: str) -> dict[str, Any]:
    """What `bus.call` takes to have a document kept, approved by the person."""
    body = {"params": {"corpus": corpus}, "input": {"doc_cid": content_hash(b"x"), "title": "Oats"}}
    return {"body": body, "approval": approval(bus, body, key, run=""), "idempotency_key": key}


@pytest.mark.asyncio
async def test_the_service_of_the_guide_answers_streams_refuses_and_acts_once(
    guide: ModuleType, mesh: Mesh
) -> None:
    assert await guide.ask(mesh) == ["Beans want warm soil."]
    with mesh.published():
        async with mesh.hosting(guide.AskingService()):
            assert await guide.what_grows(str(mesh.home.path)) == ["Beans want warm soil."]
    service: Service = guide.AskingService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        assert len(host.offers) == 4
        async with bus.stream("llm.chat", chat("wait for me")) as stream:
            texts = [(await anext(stream)).data["text"] for _ in range(3)]
            await stream.send_input({"text": "here I am"})
            frames = [frame async for frame in stream]
        assert texts == ["WAIT ", "FOR ", "ME "]
        assert [(frame.event, frame.data.get("text")) for frame in frames] == [
            ("token", "here I am"),
            ("done", None),
        ]
        assert (await bus.call("llm.chat", chat("once"))).output["message"]["content"] == "ONCE"
        key = ids.new_ulid()
        given = ingestion(bus, "seeds", key)
        first = await bus.call(INGEST, **given)
        again = await bus.call(INGEST, **given)
        assert (first.output, again.meta["repeated"]) == (again.output, True)
        assert service.ingested == ["Oats"]  # type: ignore[attr-defined]
        with pytest.raises(HearthNetError, match="take seeds or tools") as caught:
            await bus.call(INGEST, **ingestion(bus, "nails", ids.new_ulid()))
        assert caught.value.code == "not_found"
        assert await service.read_aloud("sow beans") == "SOW BEANS "  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_a_service_asks_others_inside_its_callers_deadline(guide: ModuleType, mesh: Mesh) -> None:
    left: dict[str, float] = {}

    class Passing(guide.AskingService):  # type: ignore[name-defined,misc]
        @guide.capability("rag.query@1.0")  # type: ignore[untyped-decorator]
        async def query(self, call: Any) -> Any:
            # Not the ends, which move by the time that a frame is under way.
            left[call.params.corpus] = call.until - asyncio.get_running_loop().time()
            if call.params.corpus == "seeds":
                texts = await self.ask_the_neighbours(call)
                chunks = [guide.passage(rank, text) for rank, text in enumerate(texts, 1)]
                return guide.Reply({"chunks": chunks}, {"corpus": "seeds", "embedding_model": None})
            return await super().query(call)

    Passing.query.__annotations__["call"] = guide.Call[guide.Corpus, guide.Question]
    async with mesh.hosting(Passing()), await mesh.guest_bus() as bus:
        reply = await bus.call(
            "rag.query", {"params": {"corpus": "seeds"}, "input": {"query": "oil"}}, timeout_seconds=8
        )
    assert [chunk["text"] for chunk in reply.output["chunks"]] == ["Oil the blade before winter."]
    assert left["tools"] <= left["seeds"]


@pytest.mark.req("AUTHOR-1")
@pytest.mark.asyncio
async def test_functions_of_the_guide_answer(guide: ModuleType, mesh: Mesh) -> None:
    async with mesh.hosting(guide.service) as host, await mesh.bus() as bus:
        assert host.offers == ["hello.greet@1.0", "hello.sign@1.0"]
        reply = await bus.call("hello.greet", {"params": {}, "input": {"name": "Ada"}})
        assert reply.output == "Hello Ada"
        given = {"name": "Ada", "guests": ["Bo"], "client_id": ids.new_ulid()}
        signed = await bus.call("hello.sign", {"params": {}, "input": given})
        assert signed.output == {"entries": 2}
