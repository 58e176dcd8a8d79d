"""What the library shows to others is small, changes only on purpose, and is all that services use."""

from __future__ import annotations

import difflib
import importlib
import re
from types import ModuleType

import pytest

from tests.helpers.public_surface import (
    GOLDEN,
    MOST_NAMES,
    PUBLIC,
    ROOT,
    lazy_places,
    listing,
    not_public,
    places,
    public_names,
    source,
)

SERVICES = sorted((ROOT / "services").glob("*/hearthnet_*/**/*.py"))


@pytest.mark.req("SETUP-6")
def test_the_public_names_are_those_listed() -> None:
    before, now = GOLDEN.read_text().splitlines(), listing(ROOT).splitlines()
    changes = [line for line in difflib.ndiff(before, now) if line[0] in "+-"]
    hint = "public names changed; if wanted: make surface"
    assert not changes, "\n".join([hint, *changes])


@pytest.mark.req("LIB-3")
def test_there_are_few_public_names() -> None:
    assert len(listing(ROOT).splitlines()) <= MOST_NAMES == 150


@pytest.mark.req("LIB-3")
def test_the_page_lists_the_public_packages() -> None:
    text = (ROOT / "docs" / "services.md").read_text().partition("## What is public")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(hearthnet[a-z.]*)`", text, re.MULTILINE)) == list(PUBLIC)
    assert len(PUBLIC) == 12, "docs/requirements.md and docs/architecture.md say so"


@pytest.mark.req("LIB-3")
def test_each_name_is_public_in_one_module() -> None:
    defined = [
        places(tree)[name]
        for tree in map(source, PUBLIC)
        for name in public_names(tree)
        if name != "__version__"
    ]
    assert len(set(defined)) == len(defined)


@pytest.mark.req("LIB-3")
@pytest.mark.parametrize("name", PUBLIC)
def test_lists_of_a_public_module_agree(name: str) -> None:
    tree = source(name)
    listed, defined, loaded = set(public_names(tree)), places(tree), lazy_places(tree)
    assert listed - defined.keys() <= {"__version__"}
    assert loaded.keys() <= listed
    assert {one: defined[one] for one in loaded} == loaded
    module = importlib.import_module(name)
    assert [one for one in listed if isinstance(getattr(module, one), ModuleType)] == []


@pytest.mark.req("LIB-4")
def test_services_use_public_names_alone() -> None:
    assert SERVICES
    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in SERVICES
        for name in not_public(ROOT, file.read_text())
    ]
    assert found == []


@pytest.mark.req("LIB-4")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from hearthnet import Bus, Buss", ["hearthnet Buss"]),
        ("from hearthnet.bus.bus import Bus", ["hearthnet.bus.bus Bus"]),
        ("from hearthnet import bus", ["hearthnet bus"]),
        ("import hearthnet.bus", ["hearthnet.bus"]),
        ("import hearthnet\nhearthnet.connect()\nhearthnet.bus.Bus", ["hearthnet bus"]),
        ("import hearthnetx\nfrom hearthnet_rag import service", []),
    ],
)
def test_uses_of_internal_names_are_found(text: str, found: list[str]) -> None:
    assert list(not_public(ROOT, text)) == found
