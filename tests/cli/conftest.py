"""One real node for all tests of the command line, with a scripted model beside the built-in one.

It ends with the last of them that a worker runs: ten idle services take processor time from other tests.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hearthnet.cli.entry_point import run
from hearthnet.trust.community.events import Level
from tests.helpers.household import Household, settle
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.shell import Shell


@pytest.fixture(scope="package")
def model() -> Iterator[ScriptedModel]:
    """The model that says what a test wrote for it."""
    with ScriptedModel() as running:
        yield running


@pytest.fixture(scope="package")
def shell(model: ScriptedModel) -> Iterator[Shell]:
    """A shell whose node runs, with every service and both models."""
    with tempfile.TemporaryDirectory(prefix="hn-cli-") as folder:
        shell = Shell(Path(folder) / "home")
        shell.home.mkdir()
        # Vectors of the starter corpus are not looked at here, and would take a minute and a half of a core.
        settings = "[server]\nport = 0\n\n[embed]\nbuiltin = false\n\n[llm]\nthreads = 1\n\n"
        (shell.home / "hearthnet.toml").write_text(f"{settings}{model.config}")
        with shell.node():
            yield shell


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Shell]:
    """A shell whose node runs without a single service."""
    shell = Shell(tmp_path / "bare")
    shell.home.mkdir()
    settings = "[server]\nport = 0\n\n[gateway]\nenabled = false\n\n[services]\nenabled = []\n"
    (shell.home / "hearthnet.toml").write_text(settings)
    with shell.node():
        yield shell


@dataclass
class Village:
    """Six homes of one community; only the founder's node runs, with the service `auth`."""

    household: Household
    shell: Shell

    def at(self, name: str = "") -> tuple[str, Path]:
        """Options that put a command into the home of `name`, where no node runs, or into the founder's."""
        return "--home", (self.household[name] if name else self.household.founder).path


@pytest.fixture(scope="package")
def village() -> Iterator[Village]:
    """A community with two trusted members and three plain ones; the mill is put out by a test."""
    with tempfile.TemporaryDirectory(prefix="hn-village-") as folder:
        levels: dict[str, Level] = {
            "attic": "trusted",
            "barn": "trusted",
            "cellar": "member",
            "mill": "member",
            "shed": "member",
        }
        household = settle(Path(folder), levels, '["auth"]')
        shell = Shell(household.founder.path)
        with shell.node():
            yield Village(household, shell)


@pytest.fixture
def stopped(tmp_path: Path) -> Shell:
    """A shell where no node runs."""
    return Shell(tmp_path / "stopped")


class Here:
    """Commands in this process, for what needs no process of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        """Runs a command and returns its exit code; `out` and `err` hold what it printed."""
        code = run([str(argument) for argument in arguments])
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self, *arguments: str | Path) -> Any:
        """What a command that must succeed prints as JSON."""
        code = self(*arguments, "--json")
        assert code == 0, f"{arguments} ended with {code}: {self.err}"
        return json.loads(self.out)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], home: Path) -> Here:
    """Commands in this process, with an empty home."""
    return Here(capsys)
