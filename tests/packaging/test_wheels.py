"""Wheels, an empty environment outside the checkout, and nodes from them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hearthnet.trust.keys import Identity
from tests.helpers.packages import contract, service_code, sign, write_project
from tests.helpers.processes import bare_environment
from tests.helpers.shell import Shell

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES = {file.parent.name for file in ROOT.glob("services/*/pyproject.toml")}
LIST = '{"params":{},"input":{}}'
GREET = '{"params":{},"input":{"name":"Ada"}}'

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(400)]


class BareShell(Shell):
    """A shell that just opened, and knows nothing of the checkout."""

    def environ(self) -> dict[str, str]:
        return bare_environment(HEARTHNET_HOME=self.home, COLUMNS="100")


@dataclass
class Environment:
    """A virtualenv that knows nothing of the checkout; it has no pip, which takes seconds to install."""

    folder: Path

    def pip(self, *arguments: str | Path) -> str:
        """The output of the pip of the tests about this virtualenv; the pins reach it."""
        command = [sys.executable, "-m", "pip", "--python", self.folder / "bin" / "python", *arguments]
        return done(command, self.folder)

    def installed(self) -> set[str]:
        """The names of the distributions in here."""
        found = self.folder.glob("lib/python*/site-packages/*.dist-info")
        return {path.name.partition("-")[0].lower().replace("_", "-") for path in found}

    def shell(self, name: str) -> BareShell:
        """Commands of this virtualenv with a new home, whose gateway and server take any port."""
        shell = BareShell(self.folder.parent / name, self.folder / "bin" / "hearthnet")
        shell.home.mkdir()
        (shell.home / "hearthnet.toml").write_text("[server]\nport = 0\n[gateway]\nport = 0\n")
        return shell


def done(command: list[str | Path], folder: Path) -> str:
    """The output of a command that must succeed; a failure shows both of its streams."""
    environment = bare_environment(PIP_CONSTRAINT=ROOT / "constraints.txt", PIP_NO_INPUT="1")
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{command} ended with {run.returncode}:\n{run.stdout}\n{run.stderr}"
    return run.stdout


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder outside the checkout, short enough for every socket."""
    with tempfile.TemporaryDirectory(prefix="hn-wheels-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def wheels(place: Path) -> dict[str, Path]:
    """One wheel a project, by distribution name, built from this checkout as `make wheels` does."""
    printed = done([sys.executable, "-m", "tools.build_wheels", place / "wheels"], ROOT)
    return {wheel.name.split("-")[0]: wheel for wheel in map(Path, printed.splitlines())}


@pytest.fixture(scope="module")
def hello(place: Path) -> Path:
    """The wheel of a package of somebody else: a service with a signed contract of its own."""
    project = place / "hello"
    sign(write_project(project, "hello", contract(), code=service_code("hello")), Identity.generate())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done([*command, "-w", project / "dist", project], project)
    (wheel,) = (project / "dist").glob("hello-*.whl")
    return wheel


@pytest.fixture(scope="module")
def small(place: Path, wheels: dict[str, Path]) -> Environment:
    """A machine that offers only `market`."""
    done([sys.executable, "-m", "venv", "--without-pip", place / "env"], place)
    environment = Environment(place / "env")
    environment.pip("install", "--quiet", "--no-compile", wheels["hearthnet"], wheels["hearthnet_market"])
    return environment


@pytest.mark.req("SETUP-1", "SETUP-17")
def test_wheels_hold_their_data_and_nothing_of_the_checkout(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {"hearthnet", *(f"hearthnet_{name}" for name in SERVICES)}
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


@pytest.mark.req("SETUP-2", "SETUP-17", "OTHERS-8")
def test_a_node_runs_what_is_installed_with_a_package_of_others(small: Environment, hello: Path) -> None:
    assert {"hearthnet", "hearthnet-market"} <= small.installed()
    assert not {"xllamacpp", "hearthnet-llm", "hearthnet-rag", "snowballstemmer"} & small.installed()
    small.pip("install", "--quiet", "--no-deps", hello)
    shell = small.shell("some")
    with shell.node() as node:
        states = {service["name"]: service["state"] for service in node["services"]}
        assert states == {"market": "ready", "hello": "ready", "gateway": "ready"}
        assert node["package_errors"] == []
        assert "output" in shell.json("call", "market.list@1.0", "--body", LIST, "--json")
        reply = shell.json("call", "hello.greet", "--body", GREET, "--json")
        assert reply["output"] == {"text": "Hello Ada"}
        offered = [offer["capability"] for offer in shell.json("caps", "--json")]
        assert any(name.startswith("experimental.key.") for name in offered)


@pytest.mark.req("SETUP-1", "SETUP-10")
def test_a_node_from_all_wheels_starts_answers_and_ends(
    small: Environment, wheels: dict[str, Path], hello: Path
) -> None:
    small.pip("install", "--quiet", "--no-deps", hello)
    small.pip(
        "install",
        "--quiet",
        "--no-compile",
        *(wheel for name, wheel in wheels.items() if name != "hearthnet"),
    )
    shell = small.shell("all")
    assert "0.1.0" in shell.run("version").stdout
    with shell.node() as node:
        states = {service["name"]: service["state"] for service in node["services"]}
        assert states == dict.fromkeys([*SERVICES, "gateway", "hello"], "ready")
        assert "output" in shell.json("call", "market.list@1.0", "--body", LIST, "--json")
