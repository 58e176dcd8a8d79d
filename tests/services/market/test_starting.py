"""Several processes of the market that start at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hearthnet_market.view import View


@pytest.mark.req("MARKET-2")
def test_processes_that_start_together_make_one_view(tmp_path: Path) -> None:
    for number in range(10):
        file, together = tmp_path / f"{number}.db", threading.Barrier(6)

        def make(file: Path = file, together: threading.Barrier = together) -> View:
            together.wait()
            return View(file)

        with ThreadPoolExecutor(6) as pool:
            views = [made.result() for made in [pool.submit(make) for _ in range(6)]]
        for view in views:
            view.close()
