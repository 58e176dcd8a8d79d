"""3. Executed arguments differ from approved ones: the model changes its mind, the stored run is altered."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from hearthnet.agent.tools.types import Approve
from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, Scene, acting, says, wants

pytestmark = pytest.mark.asyncio
OTHER = {**POST, "title": "Everything I own"}


@pytest.mark.req("PAIN-3", "TOOL-5")
async def test_a_model_that_changes_its_arguments_when_asked_again_is_asked_about_these(mesh: Mesh) -> None:
    turns = [wants("market_post", POST, "p")], [wants("market_post", OTHER, "p")], [says("Hm.")]
    async with acting(mesh, *turns) as scene:
        run = await scene.suspended()
        answer = await scene.executor().resume(run, {"p": Approve()})
        (asked,) = answer["pending"]
        assert asked["body"]["input"]["title"] == OTHER["title"]
        assert asked["tool_call_id"] != "p"
        assert await scene.effects() == [POST["title"]]


async def put_back(scene: Scene, subject: str, change: Callable[[bytes], bytes]) -> None:
    """What somebody can do who writes into the store."""
    async with await scene.mesh.store() as store:
        found = await store.js.get_last_msg("RUNS", subject, direct=True)
        changed = change(found.data or b"")
        assert changed != found.data
        await store.js.publish(subject, changed)


@pytest.mark.req("PAIN-3", "RUN-13")
@pytest.mark.parametrize("decided", ["before", "after"])
async def test_a_run_that_was_altered_while_it_waits_is_not_carried_out(mesh: Mesh, decided: str) -> None:
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Posted.")]) as scene:
        run = await scene.suspended()
        if decided == "before":
            await scene.saved.decide(run, "p", Approve(), via="test")
        title, other = POST["title"].encode(), b"Water filtres"[: len(POST["title"])]
        await put_back(scene, f"rn.run.{run}", lambda data: data.replace(title, other))
        for attempt in (
            lambda: scene.executor().resume(run),
            lambda: scene.saved.decide(run, "p", Approve(), via="test"),
            lambda: scene.saved.cancel(run),
        ):
            with pytest.raises(HearthNetError, match="was altered; nothing of it is carried out") as caught:
                await attempt()
            assert caught.value.code == "invalid_signature"
        assert (await scene.saved.listing()).altered == [run]
        assert scene.service.seen() == []


@pytest.mark.req("PAIN-3", "RUN-13")
@pytest.mark.parametrize("forged", ["a yes of nobody", "a yes to another call"])
async def test_a_decision_that_this_node_has_not_signed_for_this_call_counts_for_nothing(
    mesh: Mesh, forged: str
) -> None:
    turns = [wants("market_post", POST, "p"), wants("market_post", OTHER, "q")], [says("Posted.")]
    async with acting(mesh, *turns) as scene:
        run = await scene.suspended()
        pending = (await scene.saved.load(run)).record.pending
        one, other = sorted(pending, key=lambda call: call.tool_call_id)
        taken = await scene.saved.decide(run, "p", Approve(), via="test")
        said = await scene.runs.load_decision(run, one.confirmation_id) or b""
        if forged == "a yes of nobody":
            about = {"shown": other.arguments_digest, "digest": other.arguments_digest}
            about |= {name: getattr(other, name) for name in ("tool_call_id", "confirmation_id", "client_id")}
            said = msgspec.json.encode({**msgspec.json.decode(said), **about})  # and the signature as it was
        await scene.runs.save_decision(run, other.confirmation_id, said)
        with pytest.raises(HearthNetError, match="was altered"):
            await scene.executor().resume(run)
        assert taken.signed.word == "approved"
        assert OTHER["title"] not in await scene.effects()
