"""The street and its browser, one of each for a module."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.gateway.page.street import Street, open_street


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def street() -> AsyncIterator[Street]:
    """A node with its gateway, real services, a scripted model and a browser."""
    with tempfile.TemporaryDirectory(prefix="hn-page-") as folder:
        async with open_street(Path(folder)) as opened:
            yield opened
