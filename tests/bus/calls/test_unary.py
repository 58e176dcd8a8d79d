"""Calls over a real server: answers, refusals, failover, deadlines, and a connection that breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hearthnet import Call
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls import attempt
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import subjects
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.reply_sender import ReplySender
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


async def _refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    return caught.value


@pytest.mark.req("BUS-1")
async def test_a_call_is_answered_by_the_service_that_offers_it(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        reply = await bus.call("rag.query", query())
    assert reply.output["chunks"][0]["rank"] == 1
    assert reply.meta["corpus"] == "probe"
    assert reply.meta["ms"] >= 0
    assert reply.provider == mesh.identity.node_id
    assert service.calls[0].caller == service.calls[0].principal == mesh.identity.node_id


@pytest.mark.req("BUS-2")
@pytest.mark.parametrize(
    ("capability", "body", "code", "words"),
    [
        ("rag.qery", query(), "not_found", "rag.query"),
        ("rag.query@2.0", query(), "schema_mismatch", "1.0"),
        ("rag query", query(), "bad_request", "rag.query"),
        (QUERY, {"params": {"corpus": "probe"}, "input": {"query": "x", "k": 99}}, "bad_request", "/input/k"),
        (QUERY, query(corpus="nowhere"), "not_found", "probe"),
        ("rag.list_corpora@1.0", {"params": {}, "input": {}}, "not_found", "hearthnet caps"),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_what_can(
    mesh: Mesh, capability: str, body: dict[str, Any], code: str, words: str
) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        error = await _refusal(bus.call(capability, body))
    assert error.code == code
    assert words in error.message + " ".join(error.alt)


@pytest.mark.req("BUS-3")
async def test_nobody_at_all_is_said_at_once(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        watch = Stopwatch(mesh.server.process.pid)
        error = await _refusal(bus.call(QUERY, query()))
        assert watch.seconds() < 0.4
    assert error.code == "not_found"


@pytest.mark.req("BUS-4")
async def test_the_deadline_ends_a_call_on_both_sides(mesh: Mesh) -> None:
    service = ProbeService()

    async def forever(call: Call[Any, Any]) -> None:
        await asyncio.Event().wait()

    service.answer = forever
    async with mesh.hosting(service), await mesh.bus() as bus:
        error = await _refusal(bus.call(QUERY, query(), timeout_seconds=2))
        await wait_for(lambda: service.stopped, what="the handler to be stopped")
    assert error.code == "timeout"
    assert service.calls[0].remaining() <= 2


@pytest.mark.req("BUS-4")
async def test_giving_up_stops_the_work_at_the_provider(mesh: Mesh) -> None:
    service, started = ProbeService(), asyncio.Event()

    async def forever(call: Call[Any, Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    service.answer = forever
    async with mesh.hosting(service), await mesh.bus() as bus:
        asking = asyncio.create_task(bus.call(QUERY, query()))
        await started.wait()
        asking.cancel()
        await wait_for(lambda: service.stopped, what="the handler to be stopped")


@pytest.mark.req("BUS-5")
async def test_a_full_process_is_asked_again_when_it_said_so(mesh: Mesh) -> None:
    service, free = ProbeService(places=1), asyncio.Event()

    async def one_at_a_time(call: Call[Any, Any]) -> None:
        if len(service.calls) == 1:
            await free.wait()

    service.answer = one_at_a_time
    async with mesh.hosting(service) as host, await mesh.bus() as bus, await mesh.bus("second") as other:
        first = asyncio.create_task(bus.call(QUERY, query()))
        await wait_for(lambda: service.calls, what="the first call")
        second = asyncio.create_task(other.call(QUERY, query()))
        await wait_for(lambda: host.refused, what="the second to be refused")
        assert not second.done()
        free.set()
        assert (await first).output == (await second).output


@pytest.mark.req("BUS-5")
async def test_a_full_process_that_stays_full_says_when_to_come_back(mesh: Mesh) -> None:
    service = ProbeService(places=1)

    async def forever(call: Call[Any, Any]) -> None:
        await asyncio.Event().wait()

    service.answer = forever
    async with mesh.hosting(service) as host, await mesh.bus() as bus, await mesh.bus("second") as other:
        first = asyncio.create_task(bus.call(QUERY, query()))
        await wait_for(lambda: service.calls, what="the first call")
        refusals = await asyncio.gather(
            _refusal(bus.call(QUERY, query(), timeout_seconds=1)),
            _refusal(other.call(QUERY, query(), timeout_seconds=1)),
        )
        first.cancel()
    assert [one.code for one in refusals] == ["capacity_exceeded"] * 2
    assert [one.retry_after_ms for one in refusals] == [250, 5_000]
    assert host.refused == 1, (
        "who takes the place itself knows that without asking, and the other one waits there"
    )


async def _nobody_hears(bus: Bus, host: Host) -> bool:
    """Whether the server has noticed that the host's process is gone."""
    peer = host.peer
    subject = subjects.call(bus.peer.node_id, peer.node_id, peer.instance, parse_capability(QUERY))
    try:
        await bus.peer.link.request(subject, b"", 0.5)
    except TimeoutError:
        return False
    except HearthNetError as error:
        return error.code == "partition"
    return False


@pytest.mark.req("BUS-6")
@pytest.mark.parametrize(("name", "body"), [(QUERY, query()), (CHAT, CHAT_BODY)], ids=["pure", "once"])
async def test_a_vanished_process_is_passed_over_for_one_that_lives(
    mesh: Mesh, name: str, body: dict[str, Any]
) -> None:
    """Also by a call that must not be repeated: what nobody got was not begun."""
    gone, there = ProbeService(), ProbeService()
    async with await mesh.bus() as bus, mesh.hosting(there):
        async with mesh.hosting(gone) as host:
            await bus.call(name, body, session="its own", instance=host.peer.instance)
            # It leaves without a word: no withdrawal, its offers stay in the registry.
            await host.peer.link.close()
            await wait_for(lambda: _nobody_hears(bus, host), what="the server to notice")
            assert (await bus.call(name, body, session="its own")).output
            for _ in range(8):
                assert (await bus.call(name, body)).output
        assert len(there.calls) >= 8


@pytest.mark.req("BUS-7")
async def test_the_connection_may_break_while_a_repeatable_call_runs(mesh: Mesh) -> None:
    service, started, go = ProbeService(), asyncio.Event(), asyncio.Event()

    async def slowly(call: Call[Any, Any]) -> None:
        started.set()
        await go.wait()

    service.answer = slowly
    async with mesh.hosting(service), await mesh.bus() as bus:
        asking = asyncio.create_task(bus.call(QUERY, query(), timeout_seconds=20))
        await started.wait()
        mesh.restart_server()
        go.set()
        assert (await asking).output


@pytest.mark.req("BUS-8")
async def test_offers_are_listed_and_go_with_their_service(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        async with mesh.hosting(ProbeService()):
            listed = await bus.offers()
            assert [str(view.capability) for view in listed] == ["llm.chat@2.0", "market.post@1.0", QUERY]
            assert [view.params for view in await bus.offers("rag.query")] == [{"corpus": "probe"}]
            await bus.call(QUERY, query())
        assert await bus.offers() == []
        assert (await _refusal(bus.call(QUERY, query()))).code == "not_found"


@pytest.mark.req("BUS-9")
async def test_a_handlers_own_failure_crosses_as_an_id_only(
    mesh: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    service = ProbeService()

    async def fail(call: Call[Any, Any]) -> None:
        raise ZeroDivisionError("the secret is 42")

    service.answer = fail
    async with mesh.hosting(service), await mesh.bus() as bus:
        error = await _refusal(bus.call(QUERY, query()))
    assert error.code == "internal_error"
    assert "secret" not in str(error.to_body())
    assert error.details["incident"] in caplog.text
    assert "the secret is 42" in caplog.text


@pytest.mark.req("BUS-9")
async def test_a_handlers_own_refusal_crosses_as_it_is(mesh: Mesh) -> None:
    service = ProbeService()

    async def refuse(call: Call[Any, Any]) -> None:
        raise HearthNetError("thread_missing", "start again", details={"thread": "t"})

    service.answer = refuse
    async with mesh.hosting(service), await mesh.bus() as bus:
        error = await _refusal(bus.call(QUERY, query()))
    assert (error.code, error.message, error.details) == ("thread_missing", "start again", {"thread": "t"})


@pytest.mark.req("BUS-10")
async def test_an_offer_for_the_own_node_is_announced_to_nobody(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        announced: list[str] = []
        await bus.peer.link.subscribe("hn.adv.>", lambda subject, data, absent: announced.append(subject))
        await bus.peer.link.flush_subscriptions()
        async with mesh.hosting(ProbeService(trust="self")):
            assert (await bus.call(QUERY, query())).output
            await wait_for(lambda: len(announced) >= 2, what="the announcements of the others")
    assert announced
    assert not [subject for subject in announced if "rag.query" in subject]


@pytest.mark.req("CONTRACT-13")
async def test_a_body_over_the_contracts_limit_is_not_sent(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        body = {**query(), "unknown": "x" * 65_536}
        error = await _refusal(bus.call(QUERY, body))
        assert (error.code, error.details) == ("payload_too_large", {"limit": 65_536})
        assert QUERY in error.message
        body["unknown"] = body["unknown"][: 65_536 - len(msgspec.json.encode({**body, "unknown": ""}))]
        assert (await bus.call(QUERY, body)).output
    assert len(service.calls) == 1


@pytest.mark.req("BUS-11")
async def test_a_frame_over_the_limit_is_refused_before_it_is_sent(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        body = {
            "params": {},
            "input": {"messages": [{"role": "user", "content": "x" * bus.peer.link.max_payload}]},
        }
        error = await _refusal(bus.call("llm.chat@2.0", body))
        assert error.code == "payload_too_large"
        assert str(bus.peer.link.max_payload) in error.message
        assert bus.peer.link.is_connected, "the server ends the connection of who sends it"
        assert (await bus.call("llm.chat@2.0", CHAT_BODY)).output
    assert len(service.calls) == 1


@pytest.mark.req("BUS-31")
@pytest.mark.parametrize("output", [None, 5, {}, {"chunks": 5}])
async def test_an_answer_that_its_contract_does_not_know_is_an_error(
    mesh: Mesh, output: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = ProbeService()

    def lie(self: ReplySender, body: dict[str, Any], code: str = "") -> None:
        self._send("reply", {"output": output, "meta": {"ms": 1}}, code=code)

    monkeypatch.setattr(ReplySender, "reply", lie)
    async with mesh.hosting(service), await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="does not fit") as caught:
            await bus.call(QUERY, query())
    assert caught.value.code == "internal_error"


@pytest.mark.req("BUS-102")
async def test_a_process_that_answers_others_is_not_silent_for_long(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that the process has not read, as if thousands stood before it."""
    monkeypatch.setattr(attempt, "SILENCE_MS", 1_000)
    monkeypatch.setattr(attempt, "_BUSY_SECONDS", 1.5)
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as guest:
        (view,) = await guest.offers(QUERY)
        clock = asyncio.get_running_loop().time
        await guest.call(QUERY, query())
        unread = attempt.PendingReply(guest.peer, view, ids.new_ulid())
        began, unanswered = clock(), unread.within(clock() + 60)
        while unread.is_waiting:
            await guest.call(QUERY, query())
        with pytest.raises(HearthNetError, match="has gone silent"):
            await unanswered
        assert clock() - began > 2.4
        unread.forget()

        alone = attempt.PendingReply(guest.peer, view, ids.new_ulid())
        began = clock()
        with pytest.raises(HearthNetError, match="has gone silent"):
            await alone.within(clock() + 60)
        assert clock() - began < 2.4
        alone.forget()


@pytest.mark.req("BUS-24")
async def test_a_refused_signature_shuts_out_no_provider(mesh: Mesh) -> None:
    """It is about what was sent: else a guest with bad approvals would shut it out for a whole gateway."""
    service = ProbeService()

    async def refuse(call: Call[Any, Any]) -> None:
        raise HearthNetError("invalid_signature", "this approval is not by that key")

    async with mesh.hosting(service), await mesh.bus() as bus:
        service.answer = refuse
        for _ in range(12):
            assert (await _refusal(bus.call(QUERY, query()))).code == "invalid_signature"
        service.answer = _at_once
        assert (await bus.call(QUERY, query())).output


async def _at_once(call: Call[Any, Any]) -> None:
    """Answers."""
