"""A node with its gateway: `house` for one test, `shared` for all tests of a module.

Tests that use `shared` run in the module's event loop: `pytest.mark.asyncio(loop_scope="module")`.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.helpers.gateway import House, open_house


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A node with its gateway, for this test alone."""
    async with open_house(tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared() -> AsyncIterator[House]:
    """A node with its gateway, for the module."""
    with tempfile.TemporaryDirectory(prefix="hn-gateway-") as folder:
        async with open_house(Path(folder)) as opened:
            yield opened
