"""What a token may still be used for, counted in a real store: by several processes, and by parts of one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.session import Session
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.service.effects.token_budget import Budget
from hearthnet.trust.authorization.token import Claims, Scope, mint
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.service_processes import call_at
from tests.helpers.waiting import wait_for
from tests.service.effect_worker import INGEST
from tests.service.workers import RUN, approval, body, working

pytestmark = pytest.mark.asyncio
ANNA, BERTA = (Identity(bytes([number]) * 32).node_id for number in (1, 2))
Make = Callable[..., Awaitable[Budget]]


def claims(issuer: str = ANNA, jti: str = "", **limits: Any) -> Claims:
    """A token's claims with these limits."""
    scope = Scope(capabilities=("rag.query",), **limits)
    jti = jti or ids.new_ulid()
    return Claims(iss=issuer, sub=BERTA, aud=BERTA, iat=0, nbf=0, exp=1, jti=jti, scope=scope)


@pytest_asyncio.fixture
async def peer(mesh: Mesh) -> AsyncIterator[Session]:
    """A process of the node."""
    async with await mesh.bus() as bus:
        yield bus.peer


@pytest_asyncio.fixture
async def budget(mesh: Mesh, peer: Session) -> AsyncIterator[Make]:
    """Makes budgets, each with a connection of its own."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(instances: int = 1) -> Budget:
            store = await stack.enter_async_context(await mesh.store())

            async def get() -> Store:
                return store

            return Budget(get, peer, lambda: instances)

        yield make


async def charge(budget: Budget, held: Claims, key: str = "") -> str:
    """The code of the refusal; empty where the call passes. With a key it is an effect."""
    try:
        await budget.charge(held, effect=bool(key), idempotency_key=key)
    except HearthNetError as error:
        return error.code
    return ""


def lend(bus: Bus, **limits: Any) -> str:
    """A run token with these limits."""
    return mint(
        bus.peer.identity,
        subject=bus.peer.node_id,
        audience=bus.peer.community,
        scope=Scope(capabilities=(INGEST,), **limits),
        now_ms=now_ms(),
        ttl_seconds=300,
        run=RUN,
    )


async def spend(bus: Bus, token: str, key: str, view: OfferView) -> str:
    """The code with which a process answers an approved call under the token; `ok` for none."""
    wanted = body(document=key)
    given = {"token": token, "run": RUN, "idempotency_key": key, "timeout_seconds": 60}
    try:
        await call_at(bus, view, INGEST, wanted, approval=approval(bus, wanted, key), **given)
    except HearthNetError as error:
        return error.code
    return "ok"


@pytest.mark.req("BUDGET-2", "ATTACK-14")
async def test_calls_are_counted_exactly_by_processes_at_once(mesh: Mesh) -> None:
    """Three providers, one of which is killed while it counts, and then one that starts anew."""
    with working(mesh) as workers:
        async with await mesh.bus() as bus, await mesh.bus() as other:
            await workers.start(bus, 3)
            at, token = await offered(bus, INGEST, 3), lend(bus, max_calls_total=20)
            assert [await spend(bus, token, ids.new_ulid(), each) for each in at] == ["ok"] * 3
            asked = [
                spend(bus if number % 2 else other, token, ids.new_ulid(), at[number % 3])
                for number in range(60)
            ]
            codes = Counter(await asyncio.gather(*asked))
            assert codes == {"ok": 17, "token_scope_insufficient": 43}
            done = [line.split()[1] for line in workers.effects]
            assert (len(done), len(set(done))) == (20, 3)

            second = lend(bus, max_calls_total=20)
            racing = [
                asyncio.create_task(spend(bus, second, ids.new_ulid(), at[number % 3]))
                for number in range(60)
            ]
            await wait_for(lambda: len(workers.effects) > 22, 30, "some calls to be done")
            victim = workers.running.pop()
            victim.kill()
            victim.wait()
            await asyncio.gather(*racing)
            await workers.start(bus)
            known = {view.offer.instance for view in at}
            (fresh,) = [view for view in await offered(bus, INGEST, 3) if view.offer.instance not in known]
            assert await spend(bus, token, ids.new_ulid(), fresh) == "token_scope_insufficient"
            # What the killed process had counted and not done is spent, too.
            while await spend(bus, second, ids.new_ulid(), fresh) == "ok":
                assert len(workers.effects) <= 40
        assert 23 <= len(workers.effects) <= 40


@pytest.mark.req("BUDGET-2")
async def test_neither_a_new_process_nor_a_killed_server_forgets(mesh: Mesh, budget: Make) -> None:
    held = claims(max_calls_total=3, max_effects=1)
    assert [await charge(await budget(), held, "a"), await charge(await budget(), held)] == ["", ""]
    mesh.restart_server()
    again = await budget()
    assert await charge(again, held, "a") == ""
    assert await charge(again, held) == "token_scope_insufficient"
    assert await charge(again, claims(jti=held.jti, max_effects=1), "b") == "token_scope_insufficient"


@pytest.mark.req("BUDGET-2")
async def test_nobody_spends_what_another_issuer_gave(budget: Make) -> None:
    limits: dict[str, Any] = {"max_calls_total": 1, "max_effects": 1, "rate_limit_per_minute": 1}
    one, mine = await budget(), claims(**limits)
    theirs = claims(BERTA, mine.jti, **limits)
    assert [await charge(one, theirs, "a"), await charge(one, mine, "b")] == ["", ""]


@pytest.mark.req("BUDGET-3")
async def test_effects_are_counted_once_by_processes_at_once(mesh: Mesh) -> None:
    """Twelve effects are asked for at three processes each; five happen, and each of those once."""
    with working(mesh) as workers:
        async with await mesh.bus() as bus:
            await workers.start(bus, 3)
            at, token = await offered(bus, INGEST, 3), lend(bus, max_effects=5)
            keys = [ids.new_ulid() for _ in range(12)]
            asked = [(key, spend(bus, token, key, view)) for key in keys for view in at]
            codes = await asyncio.gather(*(work for _, work in asked))
            passed = {key for (key, _), code in zip(asked, codes, strict=True) if code == "ok"}
            assert len(passed) == len(workers.effects) == 5
            # Every repetition of an effect that counts passes, and of another none.
            for key in keys:
                expected = "ok" if key in passed else "token_scope_insufficient"
                assert await spend(bus, token, key, at[0]) == expected
        assert len(workers.effects) == 5


@pytest.mark.req("BUDGET-3")
async def test_an_effect_without_a_key_counts_each_time(budget: Make) -> None:
    one, held = await budget(), claims(max_effects=1)
    await one.charge(held, effect=True, idempotency_key="")
    with pytest.raises(HearthNetError, match="allows 1 effects at this node") as caught:
        await one.charge(held, effect=True, idempotency_key="")
    assert (caught.value.code, caught.value.details) == ("token_scope_insufficient", {"rule": "max_effects"})


@pytest.mark.req("BUDGET-3")
async def test_reading_is_no_effect(budget: Make) -> None:
    one, held = await budget(), claims(max_effects=0, max_calls_total=2)
    assert [await charge(one, held), await charge(one, held, "a"), await charge(one, held)] == [
        "",
        "token_scope_insufficient",
        "",
    ]


@pytest.mark.req("BUDGET-1")
async def test_the_rate_is_divided_among_the_processes(budget: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.service.effects.token_budget.steady_ms", lambda: 0)
    held = claims(rate_limit_per_minute=10)
    for instances, share in ((1, 10), (3, 3), (20, 1), (0, 10)):
        one = await budget(instances)
        codes = [await charge(one, held) for _ in range(share + 1)]
        assert codes == [""] * share + ["rate_limited"]
        with pytest.raises(HearthNetError, match="allows 10 calls a minute") as caught:
            await one.charge(held, effect=False, idempotency_key="")
        assert 59_000 < (caught.value.retry_after_ms or 0) <= 60_000


@pytest.mark.req("BUDGET-1")
async def test_a_call_over_the_rate_costs_nothing_else(budget: Make) -> None:
    one, jti = await budget(), ids.new_ulid()
    both = claims(jti=jti, rate_limit_per_minute=1, max_calls_total=2)
    assert [await charge(one, both) for _ in range(4)] == ["", *["rate_limited"] * 3]
    assert await charge(one, claims(jti=jti, max_calls_total=2)) == ""


@pytest.mark.req("BUDGET-2")
async def test_without_limits_the_store_is_not_asked(peer: Session) -> None:
    async def store() -> Any:
        raise AssertionError("nobody needs it")

    one = Budget(store, peer, lambda: 1)
    for held in (None, claims(), claims(rate_limit_per_minute=5), claims(max_effects=3)):
        await one.charge(held, effect=False, idempotency_key="")


@pytest.mark.req("BUDGET-2")
async def test_what_cannot_be_counted_is_refused(mesh: Mesh, budget: Make) -> None:
    one = await budget()
    mesh.server.kill()
    limited = claims(max_calls_total=5), claims(max_effects=5)
    assert await asyncio.gather(*(charge(one, held, "a") for held in limited)) == ["partition", "partition"]
    mesh.restart_server()
