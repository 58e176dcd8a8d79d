"""What routing may cost, where that can be said without a clock; the times are in `make bench`."""

from __future__ import annotations

import pytest

from tests.bench.routing_bench import offer_bytes


@pytest.mark.req("BUS-35")
def test_an_offer_takes_less_than_two_kilobytes_with_its_health() -> None:
    assert 500 < offer_bytes(300) < 2_048
