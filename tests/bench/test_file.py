from __future__ import annotations

import pytest

from tests.bench.file_bench import measure


@pytest.mark.req("BENCH-1", "FILE-12")
def test_content_goes_both_ways_in_chunks_that_nobody_holds_together() -> None:
    found = {figure.name: figure for figure in measure(40 << 20)}
    assert set(found) == {"file.put_mb_s", "file.read_mb_s", "file.service_grew", "file.caller_grew"}
    assert found["file.put_mb_s"].value > 0
    assert found["file.read_mb_s"].value > 0
    for name in ("file.service_grew", "file.caller_grew"):
        assert found[name].goal == "< 64"
        assert 0 <= found[name].value < 32, "MB, of 40 that went through"
