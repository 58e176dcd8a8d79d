"""Fixtures for tests of the `auth` service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.helpers.mesh import Mesh, start_mesh


@pytest_asyncio.fixture
async def street(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A founder and three members: guest, carol and dora."""
    started = await start_mesh(tmp_path, "carol", "dora")
    yield started
    started.server.stop()
