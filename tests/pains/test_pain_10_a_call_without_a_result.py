"""10. A call without a result breaks the conversation: the next request always pairs every call with one."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.tools.types import Approve, Deny
from tests.agent.bench import paired
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.pains.acting import POST, QUESTION, Scene, acting, says, tools, wants
from tests.pains.strict import strictly

pytestmark = pytest.mark.asyncio
TURN = [wants("search_corpus", {"query": "w"}, "r"), wants("market_post", POST, "p")]
NEXT = {"role": "user", "content": "Something else, then."}


async def go_on(scene: Scene, messages: list[dict[str, Any]]) -> None:
    """A new user message after all that was."""
    body = {"params": {}, "input": {"messages": [*messages, NEXT]}}
    await scene.executor().run_chat_with_tools(body)


async def deny(scene: Scene) -> None:
    await scene.executor().resume(await scene.suspended(), {"p": Deny()})


async def expire(scene: Scene) -> None:
    run = await scene.suspended(limits=Limits(confirmation_ttl_ms=3_600_000))
    later, _ = scene.later(7_200_000)
    await later.resume(run)


async def cancel(scene: Scene) -> None:
    record = await scene.saved.cancel(await scene.suspended())
    await go_on(scene, record.state.messages)


async def new_message(scene: Scene) -> None:
    """While it is driven: the run is ended and the message goes on from its transcript."""
    run = scene.executor().open_run(QUESTION, decide=lambda _pending: asyncio.Event().wait())  # type: ignore[arg-type,return-value]
    driving = asyncio.create_task(run.drive())
    await wait_for(lambda: scene.service.seen("rag.query"), 30)
    await wait_for(lambda: _waits(scene, run.run), 30)
    run.cancel()
    await go_on(scene, (await driving).messages)


async def crash(scene: Scene) -> None:
    run = scene.executor().open_run(QUESTION, decide=lambda _pending: asyncio.Event().wait())  # type: ignore[arg-type,return-value]
    driving = asyncio.create_task(run.drive())
    await wait_for(lambda: _waits(scene, run.run), 30)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    await scene.executor().resume(run.run, {"p": Approve()})


WITH_QUESTION = 3
"""The save of a run that has its question; it is saved before, while the home of the effect is found."""


async def stopped_as_it_is_saved(scene: Scene) -> None:
    """The process that drives it is told to stop at the very moment at which the store has answered."""
    store, drivers, saves = await scene.mesh.store(), list[asyncio.Task[Any]](), itertools.count(1)
    publish = store.js.publish

    async def answered(*given: Any, **more: Any) -> Any:
        """The answer, waited for as the NATS client does: whoever waits is cancelled as it comes."""
        ack, answer = await publish(*given, **more), asyncio.get_running_loop().create_future()
        if next(saves) < WITH_QUESTION:
            return ack

        def come() -> None:
            answer.set_result(ack)
            for driver in drivers:
                driver.cancel()

        asyncio.get_running_loop().call_soon(come)
        return await asyncio.wait_for(answer, 30)

    async with store:
        scene.runs, kept = StoredRuns(store, scene.mesh.identity), scene.runs
        store.js.publish = answered  # type: ignore[method-assign]
        run = scene.executor().open_run(QUESTION, decide=lambda _pending: asyncio.Event().wait())  # type: ignore[arg-type,return-value]
        driving = asyncio.create_task(run.drive())
        drivers.append(driving)
        await asyncio.wait([driving], timeout=30)
        assert driving.cancelled(), "it heeds that it is to stop"
        scene.runs = kept
    await scene.executor().resume(run.run, {"p": Approve()})


async def _waits(scene: Scene, run: str) -> bool:
    return any(one.run == run and one.pending for one in (await scene.saved.listing()).runs)


@pytest.mark.req("PAIN-10", "TOOL-2", "RUN-9", "RUN-14")
@pytest.mark.parametrize("what", [deny, expire, cancel, new_message, crash, stopped_as_it_is_saved])
async def test_the_next_request_pairs_every_call_with_a_result(mesh: Mesh, what: Any) -> None:
    async with acting(mesh, TURN, [says("Well.")], [says("Well, well.")]) as scene:
        await what(scene)
        request = scene.service.requests[-1]
        paired(request)
        strictly(request, tools())
        assert sum(message["role"] == "tool" for message in request) == 2
