"""docs/security.md names every attack that is tried, and only tests that try it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
ROW = re.compile(r"^\| (ATTACK-\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)
_PROCESSES = re.compile(r"working\(mesh\)|failing_worker\.running|processes_of_service")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@pytest.mark.req("ATTACK-23")
def test_every_attack_stands_in_the_table() -> None:
    requirements = (TESTS.parent / "docs" / "requirements.md").read_text()
    listed = set(re.findall(r"^\| (ATTACK-\d+) \|", requirements, re.MULTILINE))
    assert {found for found, _ in ROW.findall(PAGE)} == listed - {"ATTACK-23"}


@pytest.mark.req("ATTACK-23")
def test_the_page_says_which_providers_are_no_processes() -> None:
    """A service that a test hosts is a part of the test's own process."""
    words = PAGE.partition("## Attacks that are tried")[2].partition("<!--")[0]
    in_process, processes = words.split("host the service in")[0].rsplit("The other files", 1)[::-1]
    hosted = {
        path.relative_to(TESTS).as_posix()
        for path in (TESTS / "attacks").glob("test_*.py")
        if ".hosting(" in path.read_text() and path != Path(__file__).resolve()
    }
    assert hosted == set(re.findall(r"`(attacks/\S+\.py)`", in_process))
    tried = {name for _, files in ROW.findall(PAGE) for name in re.findall(r"`([^`]+)`", files)}
    elsewhere = {name for name in tried if not name.startswith(("attacks/", "cli/", "trust/", "protocol/"))}
    assert {name for name in elsewhere if _has_processes(TESTS / name)} == set(
        re.findall(r"`(\S+\.py)`", processes)
    )


def _has_processes(file: Path) -> bool:
    """Whether the tests of an attack in `file`, or the fixtures that they name, start provider processes."""
    functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, _FUNCTIONS)]
    code = {function.name: ast.unparse(function) for function in functions}
    starting = {name for name, text in code.items() if _PROCESSES.search(text)}
    while more := {
        name
        for name, text in code.items()
        if starting & set(re.findall(r"\w+", text)) and name not in starting
    }:
        starting |= more
    return any("'ATTACK-" in code[name] for name in starting)


@pytest.mark.req("ATTACK-23")
@pytest.mark.parametrize(("attack", "files"), ROW.findall(PAGE))
def test_the_tests_of_an_attack_are_there(attack: str, files: str) -> None:
    named = [TESTS / file for file in re.findall(r"`([^`]+)`", files)]
    assert named
    marked = [file for file in named if re.search(rf'"{attack}"', file.read_text())]
    assert marked, f"none of {files} is marked with {attack}"
