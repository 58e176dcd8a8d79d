"""`hearthnet service new`: the package passes its own test, and a node runs it once it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import bare_environment
from tests.helpers.shell import HEARTHNET, Shell

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """\
[server]
port = 0

[community]
port = 0

[gateway]
enabled = false

[services]
enabled = ["garden-shed"]
"""


class InstalledShell(Shell):
    """A shell of an environment with another package."""

    def environ(self) -> dict[str, str]:
        """With the folder of the package."""
        return {**super().environ(), "PYTHONPATH": str(self.home.parent / "site")}


def run_in(place: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as in a plain shell."""
    return subprocess.run(
        command,
        cwd=place,
        # The one of a make that runs the tests is named as seen from there.
        env=bare_environment(PIP_CONSTRAINT=ROOT / "constraints.txt"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.req("AUTHOR-7")
def test_new_package_passes_its_own_test(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    made = shell.run("service", "new", "garden-shed", "--dir", tmp_path / "work")
    place = tmp_path / "work" / "garden-shed"
    assert (made.returncode, made.stdout) == (0, f"{place}\n"), made
    done = run_in(place, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    again = shell.run("service", "new", "garden-shed", "--dir", tmp_path / "work")
    assert (again.returncode, "exists; take another name or --dir" in again.stderr) == (2, True), again


@pytest.mark.req("AUTHOR-7", "AUTHOR-6")
def test_node_runs_an_installed_package(tmp_path: Path) -> None:
    shell = InstalledShell(tmp_path / "home")
    assert shell.run("service", "new", "garden-shed", "--dir", tmp_path).returncode == 0
    frozen = run_in(tmp_path / "garden-shed", HEARTHNET, "contract", "freeze", "garden_shed")
    assert frozen.returncode == 0, frozen.stderr
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    )
    done = run_in(tmp_path, *pip, "--target", tmp_path / "site", tmp_path / "garden-shed")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/garden_shed/contracts/garden-shed.greet@1.0.json").is_file()
    shell.home.mkdir()
    (shell.home / "hearthnet.toml").write_text(SETTINGS)
    with shell.node():
        (state,) = shell.json("status", "--json")["services"]
        assert (state["name"], state["offers"]) == ("garden-shed", ["garden-shed.greet@1.0"])
        assert shell.json("call", "garden-shed.greet", "name=Ada", "--json")["output"] == "Hello Ada"


@pytest.mark.req("AUTHOR-7")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rag", "HearthNet's own"),
        ("json", "there is a module json already"),
        ("Shed", "cannot name a service"),
        ("class", "class is a word of Python's own"),
    ],
)
def test_name_that_is_taken_makes_no_package(tmp_path: Path, name: str, says: str) -> None:
    done = Shell(tmp_path / "home").run("service", "new", name, "--dir", tmp_path / "work")
    assert (done.returncode, says in done.stderr) == (2, True), done
    assert not (tmp_path / "work").exists()
