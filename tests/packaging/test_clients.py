"""The packages for Node.js that tests use: exact versions, known by their hashes, from no registry in
particular.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

CLIENTS = Path(__file__).resolve().parent.parent / "clients"


def read(name: str) -> Any:
    """A JSON file of the folder."""
    return json.loads((CLIENTS / name).read_text())


@pytest.mark.req("SETUP-11")
def test_what_is_installed_is_pinned_by_hash_and_names_no_registry() -> None:
    wanted, lock = read("package.json")["dependencies"], read("package-lock.json")
    assert lock["packages"][""]["dependencies"] == wanted
    assert all(re.fullmatch(r"\d+\.\d+\.\d+(-\d+)?", version) for version in wanted.values())
    installed = {path: about for path, about in lock["packages"].items() if path}
    assert {f"node_modules/{name}" for name in wanted} <= set(installed)
    for path, about in installed.items():
        assert about["integrity"].startswith("sha512-"), path
        assert "resolved" not in about, path
    assert "://" not in (CLIENTS / "package-lock.json").read_text()
