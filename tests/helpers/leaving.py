"""The one way to leave a test out: never in CI, and never silently (style.md 21)."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

MARK = "left out: "


def in_ci() -> bool:
    """Whether this run is the continuous integration's, where everything must be there."""
    return os.environ.get("CI", "").lower() in {"1", "true"}


def leave_out(reason: str) -> NoReturn:
    """End this test because something it needs is absent: a failure in CI, elsewhere one line more."""
    if in_ci():
        pytest.fail(f"{reason} (this may be left out elsewhere, never in CI)", pytrace=False)
    pytest.skip(MARK + reason)
