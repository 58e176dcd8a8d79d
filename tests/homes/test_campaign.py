"""A short campaign of the suite: five homes under cuts and kills, first with a hub, then with doors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.homes.campaign import Campaign
from tests.homes.network import need_namespaces

ROUNDS = 20


@pytest.mark.e2e
@pytest.mark.asyncio
@pytest.mark.timeout(900)
@pytest.mark.req("HOMES-1", "HOMES-7")
async def test_five_homes_show_the_same_market_after_cuts_and_kills(tmp_path: Path) -> None:
    need_namespaces()
    lines: list[str] = []
    totals = await Campaign(tmp_path, 2630, lines.append).run(ROUNDS)
    assert totals.findings == [], lines
    assert totals.rounds == ROUNDS
    happened = (totals.cuts, totals.killed_nodes, totals.killed_markets, totals.lost_doors, totals.acts)
    assert min(*happened, totals.steps, totals.contested) > 0, totals
