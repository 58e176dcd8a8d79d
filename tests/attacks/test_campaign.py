"""A few seconds of the campaign that `make attacks` runs for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.campaign import campaign
from tests.attacks.random_attacks import FAMILIES


@pytest.mark.req("ATTACK-23")
def test_random_attacks_find_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    totals = campaign(tmp_path, seed=11, seconds=5, say=said.append)
    assert totals.wrong == []
    assert set(totals.attacks) == set(FAMILIES)
