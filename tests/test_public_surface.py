"""What the library shows to others changes only on purpose (tests/public_surface.txt)."""

from __future__ import annotations

import difflib

import pytest

from tests.helpers.public_surface import GOLDEN, ROOT, listing, public_names


@pytest.mark.req("SETUP-6")
def test_the_public_names_are_those_listed() -> None:
    before, now = GOLDEN.read_text().splitlines(), listing(ROOT).splitlines()
    changes = [line for line in difflib.ndiff(before, now) if line[0] in "+-"]
    hint = "public names changed; if wanted: make surface"
    assert not changes, "\n".join([hint, *changes])


def test_names_with_an_underscore_and_imports_are_not_public() -> None:
    source = "import os\nfrom a import b\nX = 1\n_y = 2\nz: int = 3\ndef f(): ...\nclass C:\n    n: int\n"
    assert public_names(source) == ["C", "X", "f", "z"]


def test_all_decides_where_it_stands() -> None:
    assert public_names("from a import b, c\n__all__ = ['c', 'b']\ndef f(): ...\n") == ["b", "c"]
