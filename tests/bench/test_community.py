"""The benchmark of a community, in small."""

from __future__ import annotations

import pytest

from tests.bench import community_bench
from tests.bench.community_newcomer import newcomer_figures


@pytest.mark.req("BENCH-1", "SCALE-8")
def test_a_size_is_measured_with_real_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(community_bench, "_SETTLE_SECONDS", 2)
    monkeypatch.setattr(community_bench, "_HEAR_SECONDS", 1)
    found = {figure.name: figure.value for figure in community_bench.size_figures(6)}
    assert {name.removeprefix("community.6.") for name in found} == {
        *("roster_mb", "load_ms", "verify_ms", "join_ms", "config_mb", "reload_ms", "found_ms"),
        *("heads_min", "heads_kb_s"),
    }
    assert all(value > 0 for name, value in found.items() if "heads" not in name)


@pytest.mark.req("BENCH-1", "SCALE-8")
def test_a_newcomer_lists_the_posts_of_all_members() -> None:
    found = {figure.name: figure.value for figure in newcomer_figures(6, 600)}
    assert found["community.newcomer_600_s"] > 0
    assert found["community.newcomer_600_taker_us"] > 0
