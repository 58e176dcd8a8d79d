"""Effects happen once: under concurrency, in several real processes, after restarts and deaths."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import Any

import msgspec
import pytest

from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.service_processes import call_at
from tests.helpers.waiting import wait_for
from tests.service.effect_worker import INGEST
from tests.service.workers import RUN, approval, body, grant, ingest, token, working

pytestmark = pytest.mark.asyncio
DEADLINE = 30.0


async def code(work: Any) -> str:
    """How a call ended: its error, or `ok`."""
    try:
        await work
    except HearthNetError as error:
        return error.code
    return "ok"


@pytest.mark.req("EFFECT-2", "EFFECT-3", "ATTACK-15")
async def test_one_approval_has_one_effect_in_all_processes_and_after_restarts(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus, await mesh.bus() as other:
            await workers.start(bus, 3)
            wanted, key = body(), ids.new_ulid()
            given: dict[str, Any] = {"approval": approval(bus, wanted, key), "idempotency_key": key}
            at = await offered(bus, INGEST, 3)
            racing = (
                call_at(each, view, INGEST, wanted, token=token(each), run=RUN, timeout_seconds=60, **given)
                for each in (bus, other)
                for view in at * 3
            )
            replies: list[ReceivedReply] = await asyncio.gather(*racing)
            assert {reply.instance for reply in replies} == {view.offer.instance for view in at}
            workers.kill()
            await workers.start(bus)
            replies.append(await ingest(bus, wanted, **given))
            late = approval(bus, wanted, key, time=now_ms() - 500_000, expires=now_ms() - 400_000)
            replies.append(await ingest(bus, wanted, approval=late, idempotency_key=key))
        assert len(workers.effects) == 1
        assert len({reply.meta["ingest_event_id"] for reply in replies}) == 1
        assert Counter(reply.meta.get("repeated", False) for reply in replies) == {
            False: 1,
            True: len(replies) - 1,
        }


@pytest.mark.req("EFFECT-4", "ATTACK-15")
async def test_an_approval_or_a_key_of_one_effect_is_good_for_no_other(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus)
            wanted, other, key = body(), body(document="y"), ids.new_ulid()
            yes = approval(bus, wanted, key)
            await ingest(bus, wanted, approval=yes, idempotency_key=key)
            # The approval for other arguments, under another key, or under none.
            for arguments, under in ((other, key), (wanted, ids.new_ulid()), (wanted, "")):
                work = ingest(bus, arguments, approval=yes, idempotency_key=under)
                assert await code(work) == "unauthorized"
            # Another call with the key, which is the caller's own doing.
            fresh = approval(bus, other, key)
            assert await code(ingest(bus, other, approval=fresh, idempotency_key=key)) == "bad_request"
            # An id of an approval is used once, whatever it is signed for.
            again = approval(bus, other, key := ids.new_ulid(), id=yes.id)
            assert await code(ingest(bus, other, approval=again, idempotency_key=key)) == "unauthorized"
        assert len(workers.effects) == 1


@pytest.mark.req("EFFECT-2", "EFFECT-4")
async def test_without_a_key_the_approval_itself_is_good_once(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus, 2)
            yes = approval(bus, body())
            replies = await asyncio.gather(*(ingest(bus, body(), approval=yes) for _ in range(6)))
            assert len({reply.meta["ingest_event_id"] for reply in replies}) == 1
            late = approval(bus, body(), time=now_ms() - 500_000, expires=now_ms() - 400_000)
            assert await code(ingest(bus, body(), approval=late)) == "expired"
        assert len(workers.effects) == 1


@pytest.mark.req("EFFECT-5")
@pytest.mark.parametrize(("how", "effects"), [("die", 0), ("die-after", 1)])
async def test_what_a_dead_process_had_begun_is_of_unknown_outcome(
    mesh: Mesh, how: str, effects: int
) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus)
            key = ids.new_ulid()
            given = {"idempotency_key": key, "timeout_seconds": 3}
            yes = approval(bus, body(how), key)
            assert await code(ingest(bus, body(how), approval=yes, **given)) in ("timeout", "partition")
            assert workers.running.pop().wait(DEADLINE) == -signal.SIGKILL
            await workers.start(bus)
            told = await asyncio.gather(
                *(code(ingest(bus, body(how), approval=yes, idempotency_key=key)) for _ in range(4))
            )
            assert told == ["outcome_unknown"] * 4
        assert len(workers.effects) == effects


@pytest.mark.req("EFFECT-6")
async def test_an_effect_under_way_is_waited_for(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus, 2)
            key = ids.new_ulid()
            yes = approval(bus, body("wait"), key)
            calls = [
                asyncio.create_task(ingest(bus, body("wait"), approval=yes, idempotency_key=key))
                for _ in range(4)
            ]
            await wait_for((workers.folder / "waiting").exists, what="the first call")
            hasty = ingest(bus, body("wait"), approval=yes, idempotency_key=key, timeout_seconds=0.5)
            assert await code(hasty) == "timeout"
            (workers.folder / "go").touch()
            replies = await asyncio.gather(*calls)
        assert len({reply.meta["ingest_event_id"] for reply in replies}) == 1
        assert len(workers.effects) == 1


@pytest.mark.req("EFFECT-9")
async def test_expired_consent_leaves_no_trace(mesh: Mesh) -> None:
    past: dict[str, Any] = {"time": now_ms() - 500_000, "expires": now_ms() - 400_000}
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus)
            key = ids.new_ulid()
            for given in (
                {"approval": approval(bus, body(), key, **past), "idempotency_key": key},
                {"approval": approval(bus, body(), **past)},
                {"grant": grant(bus, **past), "use": 1, "idempotency_key": key},
                {"grant": grant(bus, **past), "use": 1},
            ):
                assert await code(ingest(bus, body(), **given)) == "expired"
            refused = {"approval": approval(bus, body("refuse"), key), "idempotency_key": key}
            assert await code(ingest(bus, body("refuse"), **refused)) == "not_found"
            late = approval(bus, body("refuse"), key, **past)
            again = ingest(bus, body("refuse"), approval=late, idempotency_key=key)
            assert await code(again) == "expired", "what was refused has no effect to tell of"
        assert workers.effects == []
        assert [entry.kind for entry in await workers.entries()] == ["began", "ended"]


@pytest.mark.req("EFFECT-6", "EFFECT-9")
async def test_expired_repetition_waits_for_effect_under_way(mesh: Mesh) -> None:
    past: dict[str, Any] = {"time": now_ms() - 500_000, "expires": now_ms() - 400_000}
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus, 2)
            key = ids.new_ulid()
            yes, late = (approval(bus, body("wait"), key, **change) for change in ({}, past))
            first = asyncio.create_task(ingest(bus, body("wait"), approval=yes, idempotency_key=key))
            await wait_for((workers.folder / "waiting").exists, what="the first call")
            hasty = ingest(bus, body("wait"), approval=late, idempotency_key=key, timeout_seconds=0.5)
            assert await code(hasty) == "timeout"
            (workers.folder / "go").touch()
            told = await ingest(bus, body("wait"), approval=late, idempotency_key=key)
            assert told.output == (await first).output
        assert len(workers.effects) == 1


@pytest.mark.req("EFFECT-7")
async def test_a_refusal_is_no_effect_and_a_failure_may_have_been_one(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus)
            for how, told in (
                ("refuse", ["not_found", "ok", "ok"]),
                ("fail", ["internal_error", "outcome_unknown", "outcome_unknown"]),
                ("internal_error", ["internal_error", "outcome_unknown", "outcome_unknown"]),
                ("timeout", ["timeout", "outcome_unknown", "outcome_unknown"]),
            ):
                key = ids.new_ulid()
                given: dict[str, Any] = {"approval": approval(bus, body(how), key), "idempotency_key": key}
                assert [await code(ingest(bus, body(how), **given)) for _ in told] == told
        assert len(workers.effects) == 4


@pytest.mark.req("EFFECT-8", "ATTACK-18")
async def test_a_use_of_a_standing_grant_has_one_effect(mesh: Mesh) -> None:
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus, 2)
            granted = grant(bus)
            racing = [code(ingest(bus, body(document=str(n)), grant=granted, use=1)) for n in range(8)]
            assert Counter(await asyncio.gather(*racing)) == {"ok": 1, "unauthorized": 7}
            assert len(workers.effects) == 1
            wanted, key = body(document="second"), ids.new_ulid()
            given: dict[str, Any] = {"grant": granted, "use": 2, "idempotency_key": key}
            first = await ingest(bus, wanted, **given)
            again = await ingest(bus, wanted, **given)
            assert first.output == again.output
            assert (first.meta["grant"], first.meta["use"]) == (granted.id, 2)
            other_key = {**given, "idempotency_key": ids.new_ulid()}
            assert await code(ingest(bus, wanted, **other_key)) == "unauthorized"
            stale = msgspec.structs.replace(granted, expires=granted.time - 1)
            assert await code(ingest(bus, wanted, **{**given, "grant": stale})) == "invalid_signature"
        assert len(workers.effects) == 2
