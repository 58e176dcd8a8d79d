"""The checks of the source tree's shape find what they are named for, and pass on this tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_house
from tools.check_house import CHECKS, Tree

ROOT = Path(__file__).resolve().parents[1]
GONE = "gone"
PLAIN = '"""A module."""\n\n\nclass Frame:\n    """A frame."""\n'


def found(root: Path, title: str) -> list[str]:
    """The violations below `root` that the check with `title` in its name reports."""
    (check,) = (one for one in CHECKS if title in one.title)
    return check.violations(Tree(root))


def tree(root: Path, **modules: str) -> Path:
    """A source tree of modules with these texts, in one package."""
    package = root / "hearthnet" / "bus"
    package.mkdir(parents=True)
    names = ", ".join(f"Name{number}" for number in range(check_house.LEAST_OFFERED))
    (root / "hearthnet" / "__init__.py").write_text(f"from hearthnet.bus import {names}\n")
    (root / "docs").mkdir()
    (root / "docs" / "cli.md").write_text("# The command line\n")
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    return root


@pytest.mark.req("SETUP-16")
def test_folder_with_many_modules_is_reported(tmp_path: Path) -> None:
    root = tree(tmp_path, **{f"m{number}": PLAIN for number in range(check_house.MAX_MODULES)})
    assert found(root, "folders") == []
    (root / "hearthnet" / "bus" / "more.py").write_text(PLAIN)
    assert found(root, "folders") == [f"hearthnet/bus: {check_house.MAX_MODULES + 1}"]


@pytest.mark.req("SETUP-16")
@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("classes and functions", "def told() -> None: ...\n"),
        ("classes and functions", "class Ballot: ...\n"),
        ("in code to pages", f"# See docs/{GONE}.md.\n"),
        ("question word", '"""What a frame is."""\n'),
        ("banned phrases", '"""The frame that somebody sent."""\n'),
        ("without 'Raises'", '"""Open a frame; `not_found` without one."""\n'),
    ],
)
def test_each_violation_is_reported(tmp_path: Path, title: str, text: str) -> None:
    assert len(found(tree(tmp_path, frame=text), title)) == 1


@pytest.mark.req("SETUP-16")
@pytest.mark.parametrize("title", [check.title for check in CHECKS if "subjects" not in check.title])
def test_plain_module_passes(tmp_path: Path, title: str) -> None:
    docstring = "Open a frame (docs/cli.md).\n\n    Raises:\n        X: `expired`.\n    "
    text = f'{PLAIN}\n\ndef opened() -> Frame:\n    """{docstring}"""\n'
    assert found(tree(tmp_path, frame=text), title) == []


@pytest.mark.req("SETUP-16")
def test_module_and_repeated_class_names_are_reported(tmp_path: Path) -> None:
    root = tree(tmp_path, told=PLAIN, one=PLAIN, two=PLAIN)
    assert found(root, "module names") == ["hearthnet/bus/told.py"]
    assert len(found(root, "meanings")) == 1


@pytest.mark.req("SETUP-16")
def test_pages_that_pages_refer_to_are_looked_for(tmp_path: Path) -> None:
    root = tree(tmp_path)
    text = f"See cli.md, [here](../README.md), {GONE}.md and Resolution 3.\n\n```\nask -f letter.md\n```\n"
    (root / "docs" / "cli.md").write_text(text)
    assert found(root, "in docs to pages") == [f"docs/cli.md:1: {GONE}.md", "docs/cli.md:1: Resolution 3"]


@pytest.mark.req("SETUP-16")
def test_public_names_are_counted(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "tests").mkdir()
    (root / "tests" / "public_surface.txt").write_text("hearthnet Bus\nhearthnet Call\n")
    assert found(root, "public names") == ["hearthnet Bus", "hearthnet Call"]


@pytest.mark.req("SETUP-16")
def test_narrow_front_door_is_reported(tmp_path: Path) -> None:
    root = tree(tmp_path)
    assert found(root, "import hearthnet") == []
    (root / "hearthnet" / "__init__.py").write_text("from hearthnet.bus import Bus\n")
    assert found(root, "import hearthnet") == ["it offers Bus"]


@pytest.mark.req("SETUP-16")
def test_long_commit_subject_is_reported(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        author = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for length in (check_house.MAX_SUBJECT, check_house.MAX_SUBJECT + 1):
        git("commit", "--allow-empty", "-m", "x" * length)
    assert found(tmp_path, "subjects") == ["x" * (check_house.MAX_SUBJECT + 1)]


@pytest.mark.req("SETUP-16")
def test_this_tree_passes() -> None:
    done = subprocess.run(
        [sys.executable, "tools/check_house.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
