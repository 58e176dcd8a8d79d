"""docs/security.md names every attack that is tried, and only tests that try it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
ROW = re.compile(r"^\| (ATTACK-\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)


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
    for name in re.findall(r"`(\S+\.py)`", processes):
        assert re.search(
            r"working\(mesh\)|failing_worker\.running|processes_of_service", (TESTS / name).read_text()
        ), name


@pytest.mark.req("ATTACK-23")
@pytest.mark.parametrize(("attack", "files"), ROW.findall(PAGE))
def test_the_tests_of_an_attack_are_there(attack: str, files: str) -> None:
    named = [TESTS / file for file in re.findall(r"`([^`]+)`", files)]
    assert named
    marked = [file for file in named if re.search(rf'"{attack}"', file.read_text())]
    assert marked, f"none of {files} is marked with {attack}"
