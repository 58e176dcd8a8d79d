"""What a token may still be used for, counted in a real store by several processes' worth of connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from hearthnet import ids
from hearthnet.bus.peer import Peer
from hearthnet.bus.store import Store
from hearthnet.errors import HearthNetError
from hearthnet.service.budget import Budget
from hearthnet.trust.keys import Identity
from hearthnet.trust.token import Claims, Scope
from tests.helpers.mesh import Mesh

pytestmark = pytest.mark.asyncio
ANNA, BERTA = (Identity(bytes([number]) * 32).node_id for number in (1, 2))
Make = Callable[..., Awaitable[Budget]]


def claims(issuer: str = ANNA, jti: str = "", **limits: Any) -> Claims:
    """A token's claims with these limits."""
    scope = Scope(capabilities=("rag.query",), **limits)
    jti = jti or ids.new_ulid()
    return Claims(iss=issuer, sub=BERTA, aud=BERTA, iat=0, nbf=0, exp=1, jti=jti, scope=scope)


@pytest_asyncio.fixture
async def peer(mesh: Mesh) -> AsyncIterator[Peer]:
    """A process of the node."""
    async with await mesh.bus() as bus:
        yield bus.peer


@pytest_asyncio.fixture
async def budget(mesh: Mesh, peer: Peer) -> AsyncIterator[Make]:
    """Makes budgets, each with a connection of its own as in a process of its own."""
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


@pytest.mark.req("BUDGET-2")
async def test_calls_are_counted_exactly_by_processes_that_run_at_once(budget: Make) -> None:
    budgets, held = [await budget() for _ in range(4)], claims(max_calls_total=50)
    codes = Counter(await asyncio.gather(*(charge(budgets[number % 4], held) for number in range(200))))
    assert codes == {"": 50, "token_scope_insufficient": 150}


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
    one, mine = await budget(), claims(max_calls_total=1, max_effects=1)
    theirs = claims(BERTA, mine.jti, max_calls_total=1, max_effects=1)
    assert [await charge(one, theirs, "a"), await charge(one, mine, "b")] == ["", ""]


@pytest.mark.req("BUDGET-3")
async def test_effects_are_counted_once_each_by_processes_that_run_at_once(budget: Make) -> None:
    budgets, held = [await budget() for _ in range(3)], claims(max_effects=5)
    keys = [f"key {number}" for number in range(12)]
    asked = [(budgets[number % 3], key) for key in keys for number in range(3)]
    codes = await asyncio.gather(*(charge(one, held, key) for one, key in asked))
    passed = {key for (_, key), code in zip(asked, codes, strict=True) if not code}
    assert len(passed) == 5
    # Every repetition of an effect that counts passes, and of another none.
    for key in keys:
        assert await charge(budgets[0], held, key) == ("" if key in passed else "token_scope_insufficient")


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
async def test_the_rate_is_divided_among_the_processes(budget: Make) -> None:
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
async def test_without_limits_the_store_is_not_asked(peer: Peer) -> None:
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
