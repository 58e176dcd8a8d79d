"""Who was put out, and what was revoked, is refused by every process: at once, and after restarts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.processes import child_environment
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for
from tests.services.auth.houses import ISSUE, POLICY, REVOKE, REVOKE_TOKEN, SYNC, living

pytestmark = pytest.mark.asyncio
_log = logging.getLogger(__name__)
LIST = "market.list@1.0"
LISTING: dict[str, Any] = {"params": {}, "input": {}}
PROCESSES = 3


@contextlib.asynccontextmanager
async def markets(mesh: Mesh, number: int) -> AsyncIterator[list[Process]]:
    """So many real processes of the founder's market."""
    command = (
        sys.executable,
        "-m",
        "hearthnet.service.hosting.main",
        "market",
        "--home",
        str(mesh.home.path),
    )
    started = [
        await asyncio.create_subprocess_exec(
            *command, env=child_environment(), stderr=asyncio.subprocess.DEVNULL
        )
        for _ in range(number)
    ]
    try:
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def code_at(bus: Bus, view: OfferView, token: str = "") -> str:
    """What one process answers: empty where it does what it is asked."""
    node, instance = view.node, view.offer.instance
    try:
        await bus.call(LIST, LISTING, token=token, timeout_seconds=30, node=node, instance=instance)
    except HearthNetError as error:
        return error.code
    return ""


@pytest.mark.req("COMMUNITY-3", "COMMUNITY-7")
async def test_a_revoked_token_is_refused_by_every_process_within_a_second_and_after_restarts(
    mesh: Mesh,
) -> None:
    async with (
        living(mesh, mesh.home) as founder,
        await mesh.guest_bus() as guest,
        markets(mesh, PROCESSES) as processes,
    ):
        views = await offered(guest, LIST, PROCESSES)
        scope = {"capabilities": [LIST, SYNC]}
        token = await founder.do(ISSUE, subject=guest.peer.node_id, scope=scope)
        assert {await code_at(guest, view, token["token"]) for view in views} == {""}

        watch = Stopwatch(mesh.server.process.pid, *(process.pid for process in processes))
        await founder.do(REVOKE_TOKEN, token_id=token["token_id"], reason="compromise")
        for view in views:

            async def refused(view: OfferView = view) -> bool:
                return await code_at(guest, view, token["token"]) == "token_revoked"

            await wait_for(refused, 30, "the process to know")
        took = watch.seconds()
        _log.info("refused by %d processes after %.3f s", PROCESSES, took)
        assert took < 1

        async with markets(mesh, 1):
            fresh = [view for view in await offered(guest, LIST, PROCESSES + 1) if view not in views]
            instances = {view.offer.instance for view in views}
            (new,) = [view for view in fresh if view.offer.instance not in instances]
            assert await code_at(guest, new, token["token"]) == "token_revoked", "its first answer"
            assert await code_at(guest, new) == ""


@pytest.mark.req("COMMUNITY-2", "COMMUNITY-7")
async def test_who_was_put_out_is_refused_by_every_process_at_once_and_after_restarts(mesh: Mesh) -> None:
    async with (
        living(mesh, mesh.home) as founder,
        await mesh.guest_bus() as guest,
        markets(mesh, PROCESSES),
    ):
        views = await offered(guest, LIST, PROCESSES)
        assert {await code_at(guest, view) for view in views} == {""}
        began = time.monotonic()
        await founder.do(REVOKE, target_node_id=guest.peer.node_id, reason="compromised")
        told = time.monotonic()
        codes = {await code_at(guest, view) for view in views}
        assert codes == {"revoked"}, "at once, by all of them"
        _log.info("told after %.3f s, refused after %.3f s", told - began, time.monotonic() - began)
        async with markets(mesh, 1), await mesh.bus() as bus:
            instances = {view.offer.instance for view in views}
            everybody = await offered(bus, LIST, PROCESSES + 1)
            (new,) = [view for view in everybody if view.offer.instance not in instances]
            assert await code_at(guest, new) == "revoked"


@pytest.mark.req("COMMUNITY-2")
async def test_what_runs_for_one_who_is_put_out_is_stopped(mesh: Mesh) -> None:
    service = ProbeService()
    running = asyncio.Event()

    async def talk(call: Any, stream: Any) -> None:
        running.set()
        await asyncio.sleep(60)

    service.talk = talk
    async with (
        living(mesh, mesh.home) as founder,
        mesh.hosting(service),
        await mesh.guest_bus() as guest,
    ):

        async def chat() -> None:
            async with guest.stream(CHAT, CHAT_BODY) as stream:
                async for _ in stream:
                    pass

        chatting = asyncio.create_task(chat())
        await asyncio.wait_for(running.wait(), DEADLINE_SECONDS)
        await founder.do(REVOKE, target_node_id=guest.peer.node_id, reason="compromised")
        with pytest.raises(HearthNetError):  # of which it hears from its own node or from the provider
            await asyncio.wait_for(chatting, DEADLINE_SECONDS)
        await wait_for(lambda: service.stopped, what="the work to stop")
        assert service.stopped == [call.id for call in service.calls]


@pytest.mark.req("COMMUNITY-2", "COMMUNITY-3")
async def test_what_runs_under_a_token_that_is_revoked_is_stopped(mesh: Mesh) -> None:
    service = ProbeService()
    running = asyncio.Event()

    async def answer(call: Any) -> None:
        running.set()
        await asyncio.sleep(60)

    service.answer = answer
    async with (
        living(mesh, mesh.home) as founder,
        mesh.hosting(service),
        await mesh.guest_bus() as guest,
    ):
        token = await founder.do(ISSUE, subject=guest.peer.node_id, scope={"capabilities": [QUERY]})
        asking = asyncio.create_task(guest.call(QUERY, query(), token=token["token"]))
        own = asyncio.create_task(guest.call(QUERY, query()))
        await asyncio.wait_for(running.wait(), DEADLINE_SECONDS)
        await wait_for(lambda: len(service.calls) == 2, what="both calls")
        await founder.do(REVOKE_TOKEN, token_id=token["token_id"])
        with pytest.raises(HearthNetError) as caught:
            await asyncio.wait_for(asking, DEADLINE_SECONDS)
        assert caught.value.code == "token_revoked"
        assert service.stopped == [call.id for call in service.calls if call.claims is not None]
        assert not own.done()
        own.cancel()


@pytest.mark.req("COMMUNITY-2")
async def test_offers_and_answers_of_one_who_was_put_out_count_no_more(mesh: Mesh) -> None:
    """The guest offered it; its offer is known, and its process lives."""
    async with (
        living(mesh, mesh.home) as founder,
        mesh.hosting(ProbeService(), at=mesh.guest),
        await mesh.bus() as bus,
    ):
        guest = (await bus.call(QUERY, query())).provider
        assert guest != founder.node_id
        await founder.do(POLICY, min_signatures_to_revoke=1)
        await founder.do(REVOKE, target_node_id=guest, reason="compromised")
        await wait_for(lambda: bus.peer.roster.is_revoked(guest), what="it to be known")
        with pytest.raises(HearthNetError) as caught:
            await bus.call(QUERY, query())
        assert not await bus.offers(QUERY)
    assert caught.value.code == "not_found"
