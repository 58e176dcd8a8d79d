"""Fixtures for tests of the `auth` service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hearthnet.service.community import heads_exchange
from tests.helpers.mesh import Mesh, start_mesh


@pytest.fixture(autouse=True)
def _no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test waits for comes of what happened, never of the next round."""
    monkeypatch.setattr(heads_exchange, "ANNOUNCE_SECONDS", 1_000.0)


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and three members: guest, carol and dora."""
    started = await start_mesh(tmp_path, "carol", "dora")
    yield started
    started.server.stop()
