"""A hosted service seen by an operator: a plain nats-py client under an operator's login."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client

from hearthnet import Call
from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.micro import MOST_A_SECOND
from hearthnet.trust.keys import Login
from tests.bus import failing_worker
from tests.helpers import adr32
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, query
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.asyncio


class Eyes:
    """An operator's connection."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, subject: str, data: bytes = b"") -> dict[str, Any]:
        """The first answer, as JSON; `TimeoutError` where none comes soon."""
        answer: dict[str, Any] = json.loads(
            (await self.client.request(subject, data, timeout=DEADLINE_SECONDS)).data
        )
        return answer

    async def counts(self, capability: str) -> dict[str, Any]:
        """The statistics of one endpoint of the service `probe`."""
        info, stats = await self.ask("$SRV.INFO.probe"), await self.ask("$SRV.STATS.probe")
        adr32.check("STATS", stats)
        number = [each["metadata"]["capability"] for each in info["endpoints"]].index(capability)
        found: dict[str, Any] = stats["endpoints"][number]
        return found


LOGIN = Login(secrets.token_bytes(32))


@pytest_asyncio.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A community of one whose server knows an operator."""
    started = await start_mesh(tmp_path, stores=False, operators=(LOGIN.public,))
    yield started
    started.server.stop()


@pytest_asyncio.fixture
async def eyes(mesh: Mesh) -> AsyncIterator[Eyes]:
    """The operator."""
    client = Client()
    await client.connect(
        mesh.server.url,
        nkeys_seed_str=LOGIN.seed.decode(),
        inbox_prefix="_INBOX_ops",
        allow_reconnect=False,
        connect_timeout=int(DEADLINE_SECONDS),
    )
    yield Eyes(client)
    await client.close()


@pytest.mark.req("OPERATOR-1")
async def test_a_service_tells_what_it_offers(mesh: Mesh, eyes: Eyes) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host:
        for verb in ("PING", "INFO", "STATS"):
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.probe", f"$SRV.{verb}.probe.{host.peer.instance}"):
                adr32.check(verb, await eyes.ask(subject))
        info = await eyes.ask("$SRV.INFO")
        assert [each["metadata"]["capability"] for each in info["endpoints"]] == [CHAT, POST, QUERY]
        assert info["metadata"]["node"] == host.peer.node_id
        service.places = 0
        service.offers = lambda: ProbeService.offers(service)[:1]  # type: ignore[method-assign]
        await host.refresh()
        info = await eyes.ask("$SRV.INFO.probe")
        assert [each["metadata"]["capability"] for each in info["endpoints"]] == [QUERY]


@pytest.mark.req("OPERATOR-1")
async def test_two_processes_of_a_service_answer_both(mesh: Mesh, eyes: Eyes) -> None:
    async with failing_worker.running(mesh, 2) as (one, two):
        inbox, heard = eyes.client.new_inbox(), []

        async def hear(message: Any) -> None:
            heard.append(json.loads(message.data)["id"])

        await eyes.client.subscribe(inbox, cb=hear)
        await eyes.client.publish("$SRV.PING.probe", b"", reply=inbox)
        await wait_for(lambda: len(heard) == 2, what="both answers")
        assert set(heard) == {one.instance, two.instance}
        assert (await eyes.ask(f"$SRV.PING.probe.{two.instance}"))["id"] == two.instance


@pytest.mark.req("OPERATOR-3")
async def test_calls_are_counted_and_what_they_said_is_not_kept(mesh: Mesh, eyes: Eyes) -> None:
    service = ProbeService()

    async def fail(call: Call[Any, Any]) -> None:
        raise HearthNetError("thread_missing", "the secret of the caller")

    async with mesh.hosting(service), await mesh.bus() as bus:
        await bus.call(QUERY, query("a secret question"))
        stream = bus.stream(CHAT, CHAT_BODY)
        async with stream as frames:
            _ = [frame async for frame in frames]
        service.answer = fail
        with pytest.raises(HearthNetError, match="secret of the caller"):
            await bus.call(QUERY, query("a secret question"))

        async def counted() -> bool:
            return bool((await eyes.counts(QUERY))["num_requests"] == 2)

        await wait_for(counted, what="both calls in the statistics")
        found = await eyes.counts(QUERY)
        assert found["num_errors"] == 1
        assert found["last_error"] == f"thread_missing: {QUERY}"
        assert 0 < found["average_processing_time"] <= found["processing_time"]
        assert (await eyes.counts(CHAT))["num_requests"] == 1
        assert (await eyes.counts(POST))["num_requests"] == 0
        assert "secret" not in json.dumps(await eyes.ask("$SRV.STATS.probe"))


@pytest.mark.req("OPERATOR-3")
async def test_a_refused_call_counts_as_an_error(mesh: Mesh, eyes: Eyes) -> None:
    service = ProbeService(places=1)
    running, done = asyncio.Event(), asyncio.Event()

    async def wait(call: Call[Any, Any]) -> None:
        running.set()
        await done.wait()

    service.answer = wait
    async with mesh.hosting(service), await mesh.bus() as bus, await mesh.bus() as other:
        first = asyncio.create_task(bus.call(QUERY, query()))
        await running.wait()
        assert (await eyes.counts(QUERY))["data"] == {"in_flight": 1}
        with pytest.raises(HearthNetError):  # refused, asked again, and at last out of time
            await other.call(QUERY, query(), timeout_seconds=2)
        found = await eyes.counts(QUERY)
        assert found["num_errors"] == found["num_requests"] >= 1
        assert found["last_error"] == f"capacity_exceeded: {QUERY}"
        done.set()
        await first


@pytest.mark.req("OPERATOR-4")
async def test_what_is_no_question_of_an_operator_gets_no_answer(mesh: Mesh, eyes: Eyes) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus:
        heard: list[Any] = []

        async def hear(message: Any) -> None:
            heard.append(message)

        inbox = eyes.client.new_inbox()
        await eyes.client.subscribe(f"{inbox}.>", cb=hear)
        await eyes.client.publish("$SRV.PING", b"", reply=f"{inbox}.1.2.3.4.5")
        await eyes.client.publish("$SRV.PING", b"x" * 2_000, reply=f"{inbox}.large")
        await eyes.client.publish("$SRV.SCHEMA", b"", reply=f"{inbox}.verb")
        await eyes.client.publish("$SRV.PING", b"")
        elsewhere: list[str] = []
        find = f"hn.find.{host.peer.identity.token}.x.v1"
        await bus.peer.link.subscribe(find, lambda subject, data, absent: elsewhere.append(subject))
        await bus.peer.link.flush_subscriptions()
        await eyes.client.publish("$SRV.PING", b"", reply=find)
        assert (await eyes.ask("$SRV.PING"))["id"] == host.peer.instance  # the others were before it
        await bus.peer.link.flush_subscriptions()
        assert (heard, elsewhere) == ([], [])


@pytest.mark.req("OPERATOR-4")
async def test_a_flood_of_questions_is_answered_so_often_and_calls_go_on(mesh: Mesh, eyes: Eyes) -> None:
    flood = 40 * MOST_A_SECOND
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        heard: list[Any] = []

        async def hear(message: Any) -> None:
            heard.append(message)

        inbox = eyes.client.new_inbox()
        await eyes.client.subscribe(inbox, cb=hear)
        began = asyncio.get_running_loop().time()
        for _ in range(flood):
            await eyes.client.publish("$SRV.STATS", b"", reply=inbox)
        await eyes.client.flush()
        assert (await bus.call(QUERY, query(), timeout_seconds=30)).output["chunks"]

        async def answered() -> bool:
            with contextlib.suppress(Exception):
                return bool(await eyes.client.request("$SRV.PING", timeout=2))
            return False

        await wait_for(answered, what="an answer once the flood is over")
        seconds = asyncio.get_running_loop().time() - began
        assert 0 < len(heard) <= MOST_A_SECOND * (seconds + 2)
        assert len(heard) < flood
