"""A short campaign of the suite, and the proof that it finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backup.campaign import Campaign

ROUNDS = 10


@pytest.mark.e2e
@pytest.mark.asyncio
@pytest.mark.timeout(1500)
@pytest.mark.req("BACKUP-8", "ATTACK-51")
async def test_backups_under_load_restore_to_one_moment(tmp_path: Path) -> None:
    lines: list[str] = []
    totals = await Campaign(tmp_path, 204, lines.append).run(ROUNDS)
    assert totals.findings == [], lines
    assert totals.rounds == ROUNDS
    assert totals.effects_twice == 0
    assert totals.new_backups >= ROUNDS // 3
    assert totals.killed > 0
    assert totals.unknown > 0
    assert totals.largest_pause_ms < 3_000
