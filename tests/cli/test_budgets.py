"""Time budgets on two cores: the best of several runs counts, so that a busy machine does not fail them."""

from __future__ import annotations

import os
import resource
import subprocess
import time

import pytest

from tests.helpers.processes import bare_environment
from tests.helpers.shell import Shell

_MOST_RUNS = 25


def best(shell: Shell, budget_seconds: float, *arguments: str) -> float:
    """The fastest of several runs, in seconds; no more runs than it takes to hold the budget.

    Where others keep all cores busy, waiting for a core is not the command's: its CPU time counts.
    """
    fastest = float("inf")
    for _ in range(_MOST_RUNS):
        wall, cpu = once(shell, *arguments)
        fastest = min(fastest, cpu if os.getloadavg()[0] > (os.cpu_count() or 1) else wall)
        if fastest < budget_seconds:
            break
    return fastest


def once(shell: Shell, *arguments: str) -> tuple[float, float]:
    """Seconds by the clock and of CPU that one run takes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [shell.program, *arguments],
        env=bare_environment(HEARTHNET_HOME=shell.home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.req("CLI-12")
def test_version_takes_under_a_quarter_second(stopped: Shell) -> None:
    assert best(stopped, 0.25, "version") < 0.25


@pytest.mark.e2e
@pytest.mark.req("CLI-12")
def test_caps_takes_under_six_tenths(shell: Shell) -> None:
    assert best(shell, 0.6, "caps") < 0.6


@pytest.mark.req("CLI-12")
def test_no_command_loads_what_it_does_not_need(stopped: Shell) -> None:
    program = "import sys; from hearthnet.cli.run import run; run(['version']); print(*sys.modules)"
    python = stopped.program.with_name("python")
    done = subprocess.run(
        [python, "-c", program], env=bare_environment(), capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"nats", "rich", "jsonschema_rs", "nacl", "blake3", "msgspec", "asyncio", "tomllib"}
