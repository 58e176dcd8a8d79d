"""Parts of the service library that need no server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from hearthnet import Call, Offer, Reply, Service, Stream, capability
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.tasks import TaskSet, heeding_cancellation
from hearthnet.service.decorators import endpoints
from hearthnet.service.hosting.active_offers import ActiveOffer
from hearthnet.service.hosting.status import Status
from tests.helpers.probe import CHAT, MODEL, QUERY, Anything, ProbeService
from tests.helpers.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from hearthnet.service.hosting.context import NodeContext


@pytest.mark.req("SERVICE-4")
def test_marked_methods_are_bound_to_their_contracts() -> None:
    found = endpoints(ProbeService())
    assert set(found) == {QUERY, CHAT, "market.post@1.0"}
    assert found[QUERY].contract is contracts().get(QUERY)
    assert found[QUERY].params_type is Anything


@pytest.mark.req("SERVICE-4")
def test_an_offer_its_contract_does_not_allow_is_the_authors_mistake() -> None:
    with pytest.raises(HearthNetError) as caught:
        ActiveOffer(contracts().get(CHAT), Offer(capability=CHAT, params={**MODEL, "ctx": "long"}))
    assert (caught.value.code, caught.value.details["path"]) == ("bad_request", "/ctx")


@pytest.mark.req("SERVICE-4")
@pytest.mark.parametrize(
    ("trust", "allowed"), [("member", False), ("trusted", True), ("self", True), ("", True)]
)
def test_an_offer_may_demand_more_trust_and_never_less(trust: str, allowed: bool) -> None:
    contract = contracts().get("rag.ingest@1.0")
    offer = Offer(capability=contract.id, params={"corpora_available": []}, trust=trust)
    if allowed:
        assert ActiveOffer(contract, offer).offer.trust == trust
        return
    with pytest.raises(HearthNetError, match="never less"):
        ActiveOffer(contract, offer)


@pytest.mark.req("SERVICE-4")
def test_an_offer_takes_its_places_from_the_contract_and_is_named_for_people() -> None:
    hosted = ActiveOffer(
        contracts().get(QUERY), Offer(capability=QUERY, params={"corpus": "system", "k_max": 20})
    )
    assert hosted.offer.max_concurrent == contracts().get(QUERY).max_concurrent
    assert str(hosted) == "rag.query@1.0 corpus=system"


@pytest.mark.asyncio
async def test_a_service_with_nothing_to_do_is_one() -> None:
    service, told = Service(), []
    await service.start(cast("NodeContext", None))
    await service.opened()
    service.offers_changed()
    service.on_offers_changed(lambda: told.append(True))
    service.offers_changed()
    assert await service.outcome("ed25519:x", "key", "digest") is None
    await service.stop()
    assert (service.offers(), service.endpoints(), service.functions()) == ([], [], [])
    assert told == [True]


@pytest.mark.asyncio
@pytest.mark.req("STREAM-5")
async def test_without_a_caller_frames_are_checked_and_dropped() -> None:
    stream = Stream(contracts().get(CHAT), None)
    assert stream.unary
    await stream.send("token", {"text": "x"})
    await stream.end("done", {})
    with pytest.raises(ValueError, match=f"does not fit its contract: {CHAT}: /text: 1 is not of type"):
        await stream.send("token", {"text": 1})
    assert not stream.lost_caller()


@pytest.mark.asyncio
@pytest.mark.req("STREAM-6")
async def test_what_a_caller_says_is_bounded_and_must_be_json() -> None:
    stream = Stream(contracts().get(CHAT), None)
    for body in (b"{", b"[]", b"\xff", b'{"upto":' * 5000):
        for hear in (stream.on_input, stream.on_ack):
            with pytest.raises(HearthNetError) as refused:
                hear(body)
            assert refused.value.code == "bad_request"
    with pytest.raises(HearthNetError) as large:
        stream.on_input(b'{"n":"%b"}' % (b"x" * 524_288))
    assert large.value.code == "payload_too_large"
    stream.on_input(b'{"n":"%b"}' % (b"x" * (524_288 - 8)))
    assert len((await stream.receive())["n"]) == 524_280
    for number in range(64):
        stream.on_input(b'{"n": %d}' % number)
    with pytest.raises(HearthNetError) as caught:
        stream.on_input(b"{}")
    assert caught.value.code == "capacity_exceeded"
    assert await stream.receive() == {"n": 0}


@pytest.mark.asyncio
async def test_a_failing_task_is_logged_and_all_end_with_their_set(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet()

    async def fail() -> None:
        raise ValueError("told in the log")

    async def forever() -> None:
        await asyncio.Event().wait()

    failing, waiting = tasks.start(fail(), "failing"), tasks.start(forever(), "waiting")
    await asyncio.wait({failing})
    await tasks.close()
    assert waiting.cancelled()
    assert "told in the log" in caplog.text


@pytest.mark.req("SERVICE-1")
def test_states_are_lines_of_json_and_a_closed_pipe_harms_nobody(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    status = Status(writing)
    status.starting("loading", 1, 2)
    status.ready(["x"], None)
    status.failed("why")
    assert [json.loads(line) for line in os.read(reading, 1000).splitlines()] == [
        {"state": "starting", "stage": "loading", "current": 1, "total": 2},
        {"state": "ready", "offers": ["x"], "note": None, "address": ""},
        {"state": "failed", "note": "why"},
    ]
    os.close(reading)
    status.failed("nobody listens")
    os.close(writing)
    Status(None).failed("in the log only")
    assert Home.resolve(tmp_path).service("x") == tmp_path / "services" / "x"


@pytest.mark.req("SERVICE-5")
@pytest.mark.asyncio
async def test_a_task_that_keeps_its_cancellation_to_itself_is_told_again() -> None:
    """As `asyncio.wait_for` does before Python 3.12 when both come together."""
    told: list[bool] = []

    async def deaf() -> None:
        while len(told) < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told.append(True)

    tasks = TaskSet()
    task = tasks.start(deaf(), "deaf")
    await asyncio.sleep(0)
    await asyncio.wait_for(tasks.close(), DEADLINE_SECONDS)
    assert task.done()
    assert told == [True, True]


@pytest.mark.req("SERVICE-5")
@pytest.mark.asyncio
@pytest.mark.parametrize("failing", [False, True])
async def test_a_cancellation_that_was_kept_back_is_raised_afterwards(failing: bool) -> None:
    async def deaf() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        if failing:
            raise ValueError("an answer all the same")
        return "an answer"

    async def work() -> str:
        with heeding_cancellation():
            answer = await deaf()
        return answer

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.req("SERVICE-5")
@pytest.mark.asyncio
async def test_nothing_is_raised_for_what_was_heeded_before() -> None:
    async def work() -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        with heeding_cancellation():
            return "an answer"

    task = asyncio.create_task(work())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    assert await task == "an answer"


class _Unknown:
    @capability("rag.qery@1.0")
    async def query(self, call: Call[Any, Any]) -> Reply:
        raise NotImplementedError


class _Foreign:
    @capability("hello.greet@1.0")
    async def greet(self, call: Call[Any, Any]) -> Reply:
        raise NotImplementedError


class _Unversioned:
    @capability("rag.query")
    async def query(self, call: Call[Any, Any]) -> Reply:
        raise NotImplementedError


class _Twice:
    @capability(QUERY)
    async def first(self, call: Call[Any, Any]) -> Reply:
        raise NotImplementedError

    @capability(QUERY)
    async def second(self, call: Call[Any, Any]) -> Reply:
        raise NotImplementedError


class _Blocking:
    @capability(QUERY)  # type: ignore[type-var]
    def query(self, call: Call[Any, Any]) -> Reply:
        raise NotImplementedError


class _NoStream:
    @capability(CHAT)
    async def chat(self, call: Call[Any, Any]) -> Reply:
        raise NotImplementedError


class _NoneToSendTo:
    @capability(QUERY)
    async def query(self, call: Call[Any, Any], stream: Stream) -> Reply:
        raise NotImplementedError


class _Untyped:
    @capability(QUERY)
    async def query(self, call) -> Reply:  # type: ignore[no-untyped-def]
        raise NotImplementedError


class _HalfTyped:
    @capability(QUERY)
    async def query(self, asked: dict[str, Any]) -> Reply:
        raise NotImplementedError


class _Unreadable:
    @capability(QUERY)
    async def query(self, call: Call[Nowhere, Any]) -> Reply:  # type: ignore[name-defined]  # noqa: F821
        raise NotImplementedError


@pytest.mark.req("SERVICE-7")
@pytest.mark.parametrize(
    ("author", "says"),
    [
        (_Unknown, "_Unknown.query cannot answer 'rag.qery@1.0': .* did you mean rag.query"),
        (_Foreign, "_Foreign.greet cannot answer 'hello.greet@1.0': no installed .* decorate a function"),
        (_Unversioned, "_Unversioned.query cannot answer 'rag.query': .* needs its version"),
        (_Twice, "_Twice.second answers rag.query@1.0, and so does first; keep one"),
        (_Blocking, "_Blocking.query is not awaitable: write `async def`"),
        (_NoStream, r"_NoStream.chat .* takes `\(self, call: .*, stream: Stream\)`; it has call after self"),
        (_NoneToSendTo, r"takes `\(self, call: Call\[Params, Input\]\)`; it has call, stream after self"),
        (_Untyped, r"`call` is no Call\[Params, Input\]"),
        (_HalfTyped, r"`asked` is no Call\[Params, Input\]"),
        (_Unreadable, "its types cannot be read: .*Nowhere"),
    ],
)
def test_a_method_that_could_never_answer_is_named_with_what_to_write(author: type, says: str) -> None:
    with pytest.raises(HearthNetError, match=says) as caught:
        endpoints(author())
    assert caught.value.code == "bad_request"
