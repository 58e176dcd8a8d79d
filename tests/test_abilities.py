"""Every ability of the seeds names requirements that there are, and a test that proves one of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "abilities.md"
LEAST = {"000": 9, "001": 1, "002": 7, "003": 6, "004": 16}


class Ability(NamedTuple):
    """A line of the table."""

    seed: str
    words: str
    requirements: list[str]
    tests: list[str]


def abilities() -> list[Ability]:
    """The lines of the table."""
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| \d{3} \|", line):
            seed, words, _where, ids, tests = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Ability(seed, words, ids.split(", "), re.findall(r"`([^`]+)`", tests)))
    return found


@pytest.mark.req("SETUP-13")
def test_each_seed_has_all_its_abilities() -> None:
    lines = abilities()
    assert {seed: sum(one.seed == seed for one in lines) for seed in LEAST} == LEAST


@pytest.mark.req("SETUP-13")
@pytest.mark.parametrize("ability", abilities(), ids=lambda one: f"{one.seed} {one.words[:40]}")
def test_an_ability_has_requirements_and_a_test(ability: Ability) -> None:
    known = set(re.findall(r"^\| ([A-Z]+-\d+) \|", (ROOT / "docs" / "requirements.md").read_text(), re.M))
    assert ability.requirements
    assert set(ability.requirements) <= known
    assert ability.tests
    proved = set[str]()
    for name in ability.tests:
        text = (ROOT / "tests" / name).read_text()
        proving = {one for one in ability.requirements if f'"{one}"' in text}
        assert proving, name
        proved |= proving
    assert proved == set(ability.requirements), "each is proved by a test of the line"
