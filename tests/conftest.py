"""Fixtures for every folder of tests, and the rule that nothing is left out silently."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from hearthnet.core.times import CLOCK
from tests.helpers.leaving import pytest_configure, pytest_sessionfinish, pytest_terminal_summary
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.nats_server import NatsServer
from tests.helpers.service_child import Child

# The suite runs in several processes at once: how long one example took says nothing. Where time is what is
# tested, the test measures it.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

MEASURED = "COVERAGE_PROCESS_CONFIG"
"""The variable by which coverage measures the processes that a test starts."""
PROGRAMS = (
    "tests/cli/",
    "tests/backup/",
    "tests/e2e/test_fire_drill.py",
    "tests/e2e/test_helpers.py",
    "tests/e2e/test_joining.py",
    "tests/e2e/test_mcp_everything.py",
    "tests/e2e/test_new_service.py",
    "tests/e2e/test_own_service.py",
    "tests/e2e/test_persons_of_a_home.py",
    "tests/e2e/test_recovery.py",
    "tests/e2e/test_runs_on_devices.py",
    "tests/e2e/test_second_node.py",
    "tests/gateway/auth/",
    "tests/gateway/test_mcp.py",
    "tests/gateway/test_up.py",
    "tests/service/",
    "tests/services/rag/",
    "tests/supervisor/",
)
"""Tests of programs: their processes are measured. Those of all others took 40 % of the suite's processor
time and covered nothing more (docs/decisions/0192-coverage-of-processes.md)."""
LONGEST = (
    "tests/attacks/test_strange_providers.py",
    "tests/backup/test_campaign.py",
    "tests/bad_input/",
    "tests/e2e/test_first_answer.py",
    "tests/e2e/test_helpers.py",
    "tests/homes/",
    "tests/load/",
    "tests/packaging/test_wheels.py",
    "tests/quality/test_model_queries.py",
)

# A shell without job control starts a background command with SIGINT ignored, and children inherit that:
# Ctrl-C on a test's terminal would end nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins first, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    """No later collection of garbage walks through all that 7,000 tests have imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def computers_clock() -> Iterator[None]:
    """No later test goes by the time of a home that a command of this one has followed."""
    yield
    CLOCK.unfollow()


@pytest.fixture(scope="session", autouse=True)
def coverage_of_processes() -> str | None:
    """Take the variable away from the processes to come; what `measured_programs` gives them back."""
    return os.environ.pop(MEASURED, None)


@pytest.fixture(scope="module", autouse=True)
def measured_programs(request: pytest.FixtureRequest, coverage_of_processes: str | None) -> Iterator[None]:
    """Measure the processes that a module in `PROGRAMS` starts."""
    with pytest.MonkeyPatch.context() as patch:
        if coverage_of_processes is not None and request.node.nodeid.startswith(PROGRAMS):
            patch.setenv(MEASURED, coverage_of_processes)
        yield


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


__all__ = ["pytest_configure", "pytest_sessionfinish", "pytest_terminal_summary"]


@pytest.fixture
def children() -> Iterator[list[Child]]:
    """Service processes, which end with the test."""
    started: list[Child] = []
    yield started
    for child in started:
        child.close()
