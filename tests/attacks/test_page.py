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
@pytest.mark.parametrize(("attack", "files"), ROW.findall(PAGE))
def test_the_tests_of_an_attack_are_there(attack: str, files: str) -> None:
    named = [TESTS / file for file in re.findall(r"`([^`]+)`", files)]
    assert named
    marked = [file for file in named if re.search(rf'"{attack}"', file.read_text())]
    assert marked, f"none of {files} is marked with {attack}"
