"""Fixtures for every folder of tests, and the rule that nothing is left out silently."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from tests.helpers.leaving import MARK, in_ci
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.nats_server import NatsServer

# The suite runs in several processes at once: how long one example took says nothing. Where time is what is
# tested, the test measures it.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder of its own, also named by HEARTHNET_HOME for child processes."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HEARTHNET_HOME", str(folder))
    return folder


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[Callable[..., NatsServer]]:
    """Start real servers: `server = nats_server('jetstream { ... }')`, then connect to `server.url`."""
    started: list[NatsServer] = []

    def start(config: str = "", **options: float) -> NatsServer:
        started.append(NatsServer.start(tmp_path / f"nats-{len(started)}", config, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest_asyncio.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A community of one with its real server; services are hosted in the test's process."""
    started = await start_mesh(tmp_path)
    yield started
    started.server.stop()


def _skipped(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    reports: list[pytest.TestReport] = reporter.stats.get("skipped", [])
    texts = [(report.nodeid, str(report.longrepr)) for report in reports]
    return [(name, text.rpartition(MARK)[2].rstrip("')") if MARK in text else text) for name, text in texts]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why."""
    if left := _skipped(terminalreporter):
        terminalreporter.section("left out")
        for name, reason in left:
            terminalreporter.line(f"{name}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skip by any other way than `leave_out` is a failure in CI, too."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if in_ci() and exitstatus == 0 and isinstance(reporter, pytest.TerminalReporter) and _skipped(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
