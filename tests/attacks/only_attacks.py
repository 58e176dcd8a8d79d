"""A pytest plugin that leaves only the tests of attacks: those whose `req` mark names one."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect every other test."""
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        names = [name for mark in item.iter_markers("req") for name in mark.args]
        (chosen if any(name.startswith("ATTACK-") for name in names) else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)
