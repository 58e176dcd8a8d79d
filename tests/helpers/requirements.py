"""Reads docs/requirements.md, and which requirement ids the tests name."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

_ROW = re.compile(
    r"^\|\s*`?(?P<id>[A-Z][A-Z0-9]*-\d+[a-z]?)`?\s*\|(?P<text>[^|]*(?:\\\|[^|]*)*)\|(?P<where>[^|]*)\|\s*$"
)
_FIRST_CELL = re.compile(r"^\|\s*(?P<cell>[^|]*?)\s*\|")
_HEADINGS = {"id", ""}


def listed(page: str) -> Counter[str]:
    """How often each id stands in the tables of `page`; `ValueError` for a row of another form."""
    ids: Counter[str] = Counter()
    for number, line in enumerate(page.splitlines(), start=1):
        if (
            not (cell := _FIRST_CELL.match(line))
            or cell["cell"] in _HEADINGS
            or set(cell["cell"]) <= set("-: ")
        ):
            continue
        row = _ROW.match(line)
        if row is None or not row["text"].strip() or not row["where"].strip():
            raise ValueError(f"line {number} is no row `| ID-1 | requirement | where specified |`: {line}")
        ids[row["id"]] += 1
    return ids


def named(source: str) -> set[str]:
    """The ids in the `req(...)` marks of one test file."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {
        argument.value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "req"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def named_in(folder: Path) -> dict[str, list[str]]:
    """Each id that a test file below `folder` names, with those files."""
    where: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        for requirement in sorted(named(file.read_text())):
            where.setdefault(requirement, []).append(file.relative_to(folder).as_posix())
    return where


def complaints(page: str, where: dict[str, list[str]]) -> list[str]:
    """What is wrong between the list and the tests, one line each."""
    ids = listed(page)
    twice = [f"{name} is listed {count} times" for name, count in ids.items() if count > 1]
    untested = [f"{name} is named by no test" for name in ids if name not in where]
    unlisted = [
        f"{name} is named in {', '.join(files)} but not listed"
        for name, files in where.items()
        if name not in ids
    ]
    return twice + untested + unlisted
