from __future__ import annotations

import pytest

from tests.bench.file_bench import measure


@pytest.mark.req("BENCH-1", "FILE-12")
def test_content_goes_both_ways_in_chunks_that_nobody_holds_together() -> None:
    found = {figure.name: figure for figure in measure(8 << 20)}
    assert set(found) == {"file.put_mb_s", "file.read_mb_s", "file.service_grew", "file.caller_grew"}
    assert found["file.put_mb_s"].value > 0
    assert found["file.service_grew"].value >= 0
