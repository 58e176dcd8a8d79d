"""A member that fills the audit log, or somebody at the disk who shortens it, against a running node."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import Store
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.supervisor.nats import streams
from tests.attacks.attacker import POST, post_body
from tests.attacks.conftest import Victim
from tests.helpers.audited_calls import OLD_DAYS, write_calls
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
MEMBER_MB = 1
_SETTINGS = (
    f"[audit]\nmember_mb_per_day = {MEMBER_MB}\n\n"
    "[limits]\ncapability_soft = 0\ncapability_hard = 0\ntotal_soft = 0\ntotal_hard = 0\n"
)
_AT_ONCE = 2


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A node that records a megabyte of each member in a day."""
    folder: Path = tmp_path_factory.mktemp("small")
    neighbourhood = settle_in(folder, "mallory", "carol", services=("market",), settings=_SETTINGS)
    home = neighbourhood.founder
    with Shell(home.path).node() as state:
        yield Victim(home, str(state["server"]["url"]), load_identity(home.device_key), neighbourhood)


def owner_posts(small: Victim) -> None:
    """Two posts of the node's owner, which succeed."""
    for _ in range(2):
        body = json.dumps(post_body())
        assert Shell(small.home.path).run("call", POST, "--body", body).returncode == 0


@pytest.mark.req("ATTACK-33", "AUDIT-10", "AUDIT-11")
async def test_a_running_node_trims_its_log_while_effects_go_on(small: Victim) -> None:
    shell, carol = Shell(small.home.path), await small.attacker("carol")
    codes, posting = Counter[str](), True
    async with await Store.connect(small.home, "test") as store:
        log = AuditLog(store, small.identity)
        await write_calls(small.identity, store, 30, OLD_DAYS)
        view = await carol.target(POST, small.node)

        async def post() -> None:
            while posting:
                codes[await carol.call(view, POST, post_body())] += 1

        posts = [asyncio.create_task(post()) for _ in range(2)]
        await wait_for(lambda: codes["ok"] > 10, what="posts before")
        assert (await log.extent()).first == 1, "what is old goes every ten minutes, or by other settings"
        settings = small.home.config_file.read_text()
        small.home.config_file.write_text(settings.replace("[audit]\n", "[audit]\nkeep_days = 300\n"))

        async def trimmed() -> bool:
            return (await log.extent()).first == 61

        await wait_for(trimmed, what="the old entries to be removed")
        before = codes["ok"]
        await wait_for(lambda: codes["ok"] > before + 10, what="posts behind that")
        posting = False
        await asyncio.gather(*posts)
    assert set(codes) == {"ok"}
    verdict = await asyncio.to_thread(shell.json, "audit", "verify", "--json")
    assert (verdict["whole"], verdict["first"], verdict["removed"]["limit"]) == (False, 61, "age")
    assert verdict["calls"] == codes["ok"]
    shown = (await asyncio.to_thread(shell.run, "audit", "verify")).stdout
    assert shown.startswith("whole from entry 61 on: ")
    assert "entries 1 to 60 were removed today " in shown
    await carol.bus.close()


@pytest.mark.req("ATTACK-33", "AUDIT-10")
async def test_a_flood_of_effects_is_refused_before_it_is_recorded(small: Victim) -> None:
    mallory, carol = await small.attacker(), await small.attacker("carol")
    view = await mallory.target(POST, small.node)
    codes: Counter[str] = Counter()
    async with await Store.connect(small.home, "test") as store:
        log = AuditLog(store, small.identity)
        before = (await log.extent()).size_bytes
        # Some 2 KB for a post; what it has itself is recorded by its hash.
        for _ in range(MEMBER_MB * 600 // _AT_ONCE):
            calls = (mallory.call(view, POST, post_body()) for _ in range(_AT_ONCE))
            codes.update(await asyncio.gather(*calls))
            if codes["rate_limited"]:
                break
        assert set(codes) == {"ok", "rate_limited"}
        filled = (await log.extent()).size_bytes
        assert filled - before < 1.1 * MEMBER_MB * 1_000_000
        refused = await mallory.refusal(view, POST, post_body())
        assert refused.code == "rate_limited"
        assert refused.retry_after_ms is not None
        assert (await log.extent()).size_bytes == filled
    # Others are served as before, the owner, too.
    assert await carol.call(view, POST, post_body()) == "ok"
    await asyncio.to_thread(owner_posts, small)
    for attacker in (mallory, carol):
        await attacker.bus.close()


@pytest.mark.req("ATTACK-33", "AUDIT-11")
async def test_a_log_that_lost_entries_otherwise_is_not_whole(small: Victim) -> None:
    """Somebody at the disk, or with the login of the store, who has not the node's key."""
    shell = Shell(small.home.path)
    await asyncio.to_thread(owner_posts, small)
    async with await Store.connect(small.home, "test") as store:
        await streams.trim_audit(store.js, (await AuditLog(store, small.identity).extent()).last - 2)
        await streams.reopen_audit(store.js)
    verdict = await asyncio.to_thread(shell.run, "audit", "verify")
    assert verdict.returncode == 4
    assert "entries 1 to " in verdict.stderr
    assert "are missing" in verdict.stderr
