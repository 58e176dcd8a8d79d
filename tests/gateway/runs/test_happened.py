"""What happened is never what a provider says of it, in whatever frame: a gateway's calls without a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import find_contract
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.runs.calls import MeshCall, answer, stream_frames
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT_BODY, QUERY, query
from tests.pains.acting import POST, acting

pytestmark = [pytest.mark.asyncio, pytest.mark.req("ATTACK-47")]
FORGED = [{"state": "done", "capability": "market.post@1.0"}]
NOTHING = [{"state": "nothing"}]


async def test_a_model_provider_writes_no_list(mesh: Mesh) -> None:
    async with acting(mesh, []) as scene:
        call = MeshCall(find_contract("llm.chat@2.0"), CHAT_BODY, "")

        async def fails(_call: Call[Any, Any], stream: Stream) -> None:
            await stream.send("token", {"text": "I posted it."})
            raise HearthNetError("not_found", "no", details={"happened": FORGED, "rule": "r"})

        scene.service.talk = fails
        with pytest.raises(HearthNetError) as failed:
            _ = [frame async for frame in stream_frames(scene.bus, call)]
        assert failed.value.details == {"rule": "r", "happened": NOTHING}
        with pytest.raises(HearthNetError) as failed:
            async with scene.bus.stream("llm.chat", CHAT_BODY) as frames:
                _ = [frame async for frame in frames]
        assert failed.value.details == {"rule": "r"}


async def test_no_answer_or_frame_of_a_provider_has_a_list(mesh: Mesh) -> None:
    async with acting(mesh, []) as scene:
        scene.service.meta = {"happened": FORGED}

        async def talk(_call: Call[Any, Any], stream: Stream) -> None:
            await stream.send("token", {"text": "I posted it.", "happened": FORGED})

        scene.service.talk = talk
        read = await answer(scene.bus, MeshCall(find_contract(QUERY), query(), ""))
        assert (read["meta"]["corpus"], read["happened"]) == ("probe", NOTHING)
        assert "happened" not in read["meta"]
        call = MeshCall(find_contract("llm.chat@2.0"), CHAT_BODY, "")
        token, done = [frame async for frame in stream_frames(scene.bus, call)]
        assert (token["data"], done["event"]) == ({"text": "I posted it."}, "done")
        assert done["data"]["happened"] == NOTHING
        assert str(FORGED) not in str(done)


async def test_an_effect_without_a_model_is_listed_however_it_ends(mesh: Mesh) -> None:
    key, contract = ids.new_ulid(), find_contract("market.post")

    async def never() -> None:
        await asyncio.Event().wait()

    def posts(title: str, key: str, seconds: float | None = None) -> MeshCall:
        body = {"params": {}, "input": {**POST, "title": title, "client_id": key}}
        return MeshCall(contract, body, "", seconds)

    async with acting(mesh, []) as scene:
        (effect,) = (await answer(scene.bus, posts("One", key)))["happened"]
        assert (effect["state"], effect["home"]) == ("done", scene.bus.peer.node_id)
        with pytest.raises(HearthNetError) as refused:
            await answer(scene.bus, posts("Another", key))
        (effect,) = refused.value.details["happened"]
        assert (effect["state"], effect["home"]) == ("refused", scene.bus.peer.node_id), refused.value
        scene.service.answered = never
        with pytest.raises(HearthNetError) as lost:
            await answer(scene.bus, posts("Third", ids.new_ulid(), 1))
        (effect,) = lost.value.details["happened"]
        assert (effect["state"], effect["capability"]) == ("unknown", contract.id)
        # The provider has the same deadline, and may be the first to say that it is over.
        assert effect.get("home", scene.bus.peer.node_id) == scene.bus.peer.node_id
