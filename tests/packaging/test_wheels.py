"""Wheels, an empty environment outside the checkout, and a node from them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.processes import bare_environment, processes_of
from tests.helpers.waiting import wait_for_sync

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECTS = [
    ".",
    "services/auth",
    "services/embed",
    "services/file",
    "services/llm",
    "services/market",
    "services/mcp",
    "services/mesh",
    "services/rag",
    "services/trans",
]
READY_SECONDS = 180.0
STOP_SECONDS = 60.0

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(400)]


@dataclass
class Environment:
    """A virtualenv that knows nothing of the checkout."""

    folder: Path

    def environ(self, **extra: str | Path) -> dict[str, str]:
        """Of a shell that just opened; the pins reach pip and its build environments."""
        return bare_environment(PIP_CONSTRAINT=ROOT / "constraints.txt", PIP_NO_INPUT="1", **extra)

    def run(self, command: str, *arguments: str | Path, **extra: str | Path) -> str:
        """The output of a command of this virtualenv; a failure shows both of its streams."""
        done = subprocess.run(
            [self.folder / "bin" / command, *arguments],
            cwd=self.folder,
            env=self.environ(**extra),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def installed(self) -> set[str]:
        """The names of the distributions in here."""
        found = json.loads(self.run("python", "-m", "pip", "list", "--format=json"))
        return {one["name"].lower().replace("_", "-") for one in found}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder outside the checkout, short enough for every socket."""
    with tempfile.TemporaryDirectory(prefix="hn-wheels-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def wheels(place: Path) -> dict[str, Path]:
    """One wheel a project, by distribution name, built from this checkout."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        # With the pinned build backend that is here: an environment of its own for each takes a minute.
        "--no-build-isolation",
        "-w",
        str(place / "wheels"),
        *PROJECTS,
    ]
    environment = bare_environment(PIP_CONSTRAINT=ROOT / "constraints.txt")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {wheel.name.split("-")[0]: wheel for wheel in (place / "wheels").glob("*.whl")}


@pytest.fixture(scope="module")
def small(place: Path, wheels: dict[str, Path]) -> Environment:
    """A machine that offers only `market`."""
    subprocess.run([sys.executable, "-m", "venv", place / "env"], check=True)
    environment = Environment(place / "env")
    environment.run(
        "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        wheels["hearthnet"],
        wheels["hearthnet_market"],
    )
    return environment


@pytest.mark.req("SETUP-1")
def test_wheels_hold_their_data_and_nothing_of_the_checkout(wheels: dict[str, Path]) -> None:
    held = {name: zipfile.ZipFile(wheel).namelist() for name, wheel in wheels.items()}
    contracts = {f"hearthnet/_contracts/{file.name}" for file in (ROOT / "contracts").glob("*.json")}
    assert contracts <= set(held["hearthnet"])
    page = ROOT / "hearthnet" / "gateway" / "page" / "static"
    assert {str(file.relative_to(ROOT)) for file in page.rglob("*.*")} <= set(held["hearthnet"])
    starter = ROOT / "services" / "rag" / "hearthnet_rag" / "starter"
    documents = {f"hearthnet_rag/starter/{file.name}" for file in starter.glob("*.md")}
    assert len(documents) >= 60
    assert documents <= set(held["hearthnet_rag"])
    for name, files in held.items():
        assert f"{name}/py.typed" in files
        assert {file.partition("/")[0].partition("-")[0] for file in files} == {name}


@pytest.mark.req("SETUP-2")
def test_only_market_brings_no_model_engine(small: Environment) -> None:
    assert {"hearthnet", "hearthnet-market"} <= small.installed()
    assert not {"xllamacpp", "hearthnet-llm", "hearthnet-rag", "snowballstemmer"} & small.installed()


@pytest.mark.req("SETUP-1", "SETUP-10")
def test_a_node_from_wheels_starts_answers_and_ends(
    small: Environment, wheels: dict[str, Path], place: Path
) -> None:
    small.run(
        "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        wheels["hearthnet_llm"],
        wheels["hearthnet_rag"],
    )
    assert "0.1.0" in small.run("hearthnet", "version")
    home, ready, log = place / "home", place / "ready.json", place / "up.log"
    with log.open("w") as output:
        node = subprocess.Popen(
            [small.folder / "bin" / "hearthnet", "up", "--ready-file", ready],
            cwd=place,
            env=small.environ(HEARTHNET_HOME=home),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for_sync(lambda: ready.exists() or node.poll() is not None, READY_SECONDS, "the ready-file")
        assert node.poll() is None, log.read_text()
        body = '{"params":{},"input":{}}'
        reply = small.run(
            "hearthnet", "call", "market.list@1.0", "--body", body, "--json", HEARTHNET_HOME=home
        )
        assert "output" in json.loads(reply)
        node.send_signal(signal.SIGTERM)
        assert node.wait(STOP_SECONDS) == 0, log.read_text()
    finally:
        if node.poll() is None:
            node.kill()
            node.wait()
    assert wait_for_sync(lambda: not processes_of(home), what="the end of every process")
