"""A query may take its time here: how long a busy computer lets it wait says nothing of it."""

from __future__ import annotations

import pytest

from hearthnet_mesh.query import sandbox


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on time is long, but for the tests that give one."""
    monkeypatch.setattr(sandbox, "SECONDS", 60.0)
