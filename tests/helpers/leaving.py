"""The ways to leave a test out: never silently.

See: docs/style.md#tests, docs/decisions/0175.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

MARK = "left out: "
RECORDINGS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "providers"
"""Exchanges of vendors that others recorded; they lie beside a checkout, never in it."""
RECORDED = (
    "tests/conformance/test_providers.py::test_every_recorded_exchange_passes",
    "tests/pains/test_pain_16_recorded_streams.py::test_recorded_calls_run_as_meant",
    "tests/pains/test_pain_16_recorded_streams.py::test_recorded_calls_cut_off_run_as_meant",
)
"""The tests that read them: deselected where they are absent, also in CI. Others read our own exchanges."""


def absent() -> tuple[str, ...]:
    """The tests that cannot run in this checkout because nothing lies beside it."""
    return () if RECORDINGS.is_dir() else RECORDED


def in_ci() -> bool:
    """Whether this run is the continuous integration's, where everything must be there."""
    return os.environ.get("CI", "").lower() in {"1", "true"}


def leave_out(reason: str) -> NoReturn:
    """End this test because something it needs is absent: a failure in CI, elsewhere one line more."""
    if in_ci():
        pytest.fail(f"{reason} (this may be left out elsewhere, never in CI)", pytrace=False)
    pytest.skip(MARK + reason)


def pytest_configure(config: pytest.Config) -> None:
    """Deselect the listed tests that have nothing to read in this checkout (the workers too)."""
    config.option.deselect = [*(config.option.deselect or ()), *absent()]


def _skipped(reporter: pytest.TerminalReporter) -> list[tuple[str, str, bool]]:
    """Name, reason, and whether it is by `leave_out`."""
    reports: list[pytest.TestReport] = reporter.stats.get("skipped", [])
    texts = [(report.nodeid, str(report.longrepr)) for report in reports]
    return [(name, text.rpartition(MARK)[2].rstrip("')"), MARK in text) for name, text in texts]


def _silent(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    return [(name, reason) for name, reason, named in _skipped(reporter) if not named]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why."""
    left = [(name, reason) for name, reason, named in _skipped(terminalreporter) if named]
    left += [(name, f"there is no {RECORDINGS}; tests/conformance/exchanges was read") for name in absent()]
    if left:
        terminalreporter.section("left out")
        for name, reason in left:
            terminalreporter.line(f"{name}: {reason}")
    if silent := _silent(terminalreporter):
        terminalreporter.section("skipped silently: this fails the run", red=True)
        for name, reason in silent:
            terminalreporter.line(f"{name}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skip by any other way than `leave_out` fails the run, whatever else happened."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    stopped = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
    if not stopped and isinstance(reporter, pytest.TerminalReporter) and _silent(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
