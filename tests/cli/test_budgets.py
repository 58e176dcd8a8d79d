"""Time budgets of commands on two cores, less what they wait for a core that others keep busy.

A core whose twin works on something else is slower, too. How much is seen by a program that does the like and
is measured in between: budgets are for a computer on which that takes `REFERENCE_SECONDS`.
"""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path

import pytest

from tests.helpers.processes import bare_environment
from tests.helpers.shell import Shell
from tests.helpers.stopwatch import seconds_of

_RUNS = 5
REFERENCE_SECONDS = 0.09
"""What Python and two of its libraries take to start on two cores that do nothing else."""


def usual(shell: Shell, *arguments: str) -> float:
    """Seconds that a command usually takes: the median of a few runs, on a core of its own."""
    environment = bare_environment(HEARTHNET_HOME=shell.home)
    reference: list[str | Path] = [shell.program.with_name("python"), "-c", "import asyncio, json"]
    command: list[str | Path] = [shell.program, *arguments]
    runs = [(seconds_of(command, environment), seconds_of(reference, environment)) for _ in range(_RUNS)]
    seconds, slowed = (statistics.median(run[column] for run in runs) for column in (0, 1))
    return seconds / max(1.0, slowed / REFERENCE_SECONDS)


@pytest.mark.req("CLI-12")
def test_version_takes_under_a_quarter_second(stopped: Shell) -> None:
    assert usual(stopped, "version") < 0.25


@pytest.mark.e2e
@pytest.mark.req("CLI-12")
def test_caps_takes_under_six_tenths(shell: Shell) -> None:
    assert usual(shell, "caps") < 0.6


@pytest.mark.req("CLI-12")
def test_version_loads_no_library_that_it_does_not_need(stopped: Shell) -> None:
    program = "import sys; from hearthnet.cli.entry_point import run; run(['version']); print(*sys.modules)"
    python = stopped.program.with_name("python")
    done = subprocess.run(
        [python, "-c", program], env=bare_environment(), capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "hearthnet.cli.commands.node" in loaded
    assert not loaded & {"nats", "rich", "jsonschema_rs", "nacl", "blake3", "msgspec", "asyncio", "tomllib"}
