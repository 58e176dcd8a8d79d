"""What contracts were when last looked at on purpose: hashes.json, and released.json for compatibility.

`python -m tests.contracts.golden` writes the hashes after a wanted change; with `--release`, when a version
is released and at no other time, also the contracts that later changes are compared with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts

HASHES: Final = Path(__file__).with_name("hashes.json")
RELEASED: Final = Path(__file__).with_name("released.json")
"""The last release; before the first one, what was first handed over."""
CHANGELOG: Final = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
_DRAFT: Final = "not released yet"


def hashes() -> dict[str, str]:
    """The schema hash of every contract there is, by id."""
    return {contract.id: contract.schema_hash for contract in contracts()}


def released() -> list[Contract]:
    """The contracts of the last release."""
    return msgspec.json.decode(RELEASED.read_bytes(), type=list[Contract])


def versions(changelog: str) -> list[str]:
    """The headings of the versions in the changelog, newest first."""
    return [line[3:] for line in changelog.splitlines() if line.startswith("## ")]


def allowed(changelog: str) -> frozenset[str]:
    """What may become of a contract of the last release without a new version.

    Nothing, once a version was released. Before that it may grow, and callers of it must go on working.
    """
    drafts = all(_DRAFT in heading for heading in versions(changelog))
    return frozenset({"equal", "additive"} if drafts else {"equal"})


def release(changelog: str) -> str:
    """Why the contracts as they are now are no release; empty where they are one."""
    if _DRAFT in versions(changelog)[0]:
        return (
            f'the newest version in CHANGELOG.md is "{_DRAFT}"; released.json changes when a version is '
            "released and not with a contract"
        )
    return ""


def write(path: Path, value: Any) -> None:
    """`value` as JSON that shows changes line by line."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(HASHES, hashes())
    if "--release" in sys.argv[1:]:
        if reason := release(CHANGELOG.read_text(encoding="utf-8")):
            sys.exit(reason)
        write(RELEASED, msgspec.to_builtins(list(contracts())))
