"""What others may add to a log in a day: shared by processes, kept over restarts, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.service.effects import day_quota, jetstream_records, journal
from hearthnet.service.effects.day_quota import BLOCK_BYTES, DayQuota
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, ProbeService, post
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
DAY_MS = 24 * 3_600_000
LIMIT = 4 * BLOCK_BYTES


async def _refusal(quota: DayQuota, caller: str, size: int, principal: str = "") -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await quota.charge(caller, principal or caller, size)
    return caught.value


@pytest.mark.req("EFFECT-10")
async def test_processes_share_a_quota_and_a_restart_keeps_it(
    mesh: Mesh, clock: Callable[[int], None]
) -> None:
    clock(20_000 * DAY_MS + 1)
    own, member, other = (
        mesh.identity.node_id,
        f"{mesh.identity.node_id}/anna",
        f"{mesh.identity.node_id}/ben",
    )
    async with await mesh.store() as store:
        first, second = (DayQuota(store, own, "market", LIMIT) for _ in range(2))
        # In small parts, and by both at once: a part costs what it has.
        for _ in range(64):
            await first.charge(own, member, BLOCK_BYTES // 64)
        await asyncio.gather(*(each.charge(own, member, BLOCK_BYTES) for each in (first, second, second)))
        for restarted in (first, second, DayQuota(store, own, "market", LIMIT)):
            error = await _refusal(restarted, own, 1, member)
            assert (error.code, error.rule, error.details["limit"]) == ("rate_limited", "bytes_a_day", LIMIT)
            assert error.retry_after_ms == DAY_MS - 1
        # What takes back has as much again; the own node, others and other logs are not concerned.
        await second.charge(own, member, BLOCK_BYTES, reserve=True)
        await second.charge(own, own, 100 * LIMIT)
        await second.charge(own, other, LIMIT)
        await DayQuota(store, own, "audit", LIMIT).charge(own, member, LIMIT)
        clock(20_001 * DAY_MS)
        await first.charge(own, member, LIMIT)


@pytest.mark.req("EFFECT-10")
async def test_what_was_refused_is_not_taken(mesh: Mesh, clock: Callable[[int], None]) -> None:
    clock(20_000 * DAY_MS)
    async with await mesh.store() as store:
        quota, member = DayQuota(store, mesh.identity.node_id, "market", LIMIT), ids.node_id(bytes(32))
        await _refusal(quota, member, LIMIT + 1)
        await quota.charge(member, member, LIMIT - 10)
        await _refusal(quota, member, 11)
        await quota.charge(member, member, 10)
        await _refusal(quota, member, 6)
        quota.refund(member, member, 10)
        await quota.charge(member, member, 6)
        await _refusal(quota, member, 5)


@pytest.mark.req("EFFECT-10", "ATTACK-32")
async def test_a_charge_that_is_given_up_takes_no_more_than_it_adds(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of calls that are cancelled would use up a quota without adding anything."""
    increment = jetstream_records.increment
    member, arrived, blocks = ids.node_id(bytes(32)), asyncio.Event(), []

    async def counted(store: Store, subject: str, by: int) -> int:
        blocks.append(by)
        arrived.set()
        return await increment(store, subject, by)

    monkeypatch.setattr(jetstream_records, "increment", counted)
    async with await mesh.store() as store:
        quota = DayQuota(store, mesh.identity.node_id, "market", LIMIT)
        charging = asyncio.create_task(quota.charge(member, member, 900))
        await arrived.wait()
        charging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await charging
        await wait_for(lambda: not quota._taking, what="the block")
        for _ in range(BLOCK_BYTES // 900):
            await quota.charge(member, member, 900)
        assert blocks == [BLOCK_BYTES]


@pytest.mark.req("EFFECT-10")
async def test_a_block_beyond_the_quota_is_given_back(mesh: Mesh) -> None:
    own, member = mesh.identity.node_id, ids.node_id(bytes(32))
    async with await mesh.store() as store:
        first, second = (DayQuota(store, own, "market", LIMIT) for _ in range(2))
        await second.charge(member, member, 1)
        await first.charge(member, member, LIMIT - BLOCK_BYTES)
        for _ in range(3):
            await _refusal(second, member, BLOCK_BYTES)
        # The whole reserve is left, although the counter was raised over the quota.
        await first.charge(member, member, LIMIT, reserve=True)


@pytest.mark.req("EFFECT-10", "ATTACK-32")
async def test_one_principal_of_a_node_has_half_of_its_quota(mesh: Mesh) -> None:
    member = ids.node_id(bytes(32))
    async with await mesh.store() as store:
        quota = DayQuota(store, mesh.identity.node_id, "market", LIMIT)
        await quota.charge(member, f"{member}/anna", LIMIT // 2)
        assert (await _refusal(quota, member, 1, f"{member}/anna")).details["limit"] == LIMIT // 2
        await quota.charge(member, f"{member}/ben", LIMIT // 4)
        await quota.charge(member, member, LIMIT // 4)
        await _refusal(quota, member, 1, f"{member}/ben")


@pytest.mark.req("EFFECT-10")
async def test_calls_of_others_are_refused_over_the_quota_of_the_audit_log(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MB", BLOCK_BYTES)
    mesh.home.config_file.write_text("[audit]\nmember_mb_per_day = 1\n")
    service = ProbeService()
    async with mesh.hosting(service), await mesh.guest_bus() as member, await mesh.bus() as bus:
        refused = None
        for _ in range(BLOCK_BYTES // 1024):
            try:
                await member.call(POST, post(ids.new_ulid()))
            except HearthNetError as error:
                refused = error
                break
        assert refused is not None
        assert (refused.code, refused.rule) == ("rate_limited", "bytes_a_day")
        count = len(service.calls)
        assert BLOCK_BYTES // 8192 < count < BLOCK_BYTES // 1024
        assert (await bus.call(POST, post(ids.new_ulid()))).output
        assert len(service.calls) == count + 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the time of the quotas, in ms."""
    return lambda now: monkeypatch.setattr(day_quota, "now_ms", lambda: now)


@pytest.mark.req("ATTACK-32")
async def test_names_of_guests_begin_no_counters_over_the_quota(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member invents names for whom it calls; each new one took a counter before the member was refused."""
    increment, counters = jetstream_records.increment, set[str]()

    async def counted(store: Store, subject: str, by: int) -> int:
        counters.add(subject)
        return await increment(store, subject, by)

    monkeypatch.setattr(jetstream_records, "increment", counted)
    member = ids.node_id(bytes(32))
    async with await mesh.store() as store:
        quota = DayQuota(store, mesh.identity.node_id, "market", LIMIT)
        await quota.charge(member, member, LIMIT)
        for number in range(20):
            await _refusal(quota, member, 1, f"{member}/guest{number}")
        assert len(counters) == 1
