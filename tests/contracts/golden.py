"""What contracts were when last looked at on purpose: hashes.json, and released.json for compatibility.

`python -m tests.contracts.golden` writes the hashes after a wanted change; with `--release` also the
contracts that later changes are compared with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.contracts import Contract, contracts

HASHES: Final = Path(__file__).with_name("hashes.json")
RELEASED: Final = Path(__file__).with_name("released.json")


def hashes() -> dict[str, str]:
    """The schema hash of every contract there is, by id."""
    return {contract.id: contract.schema_hash for contract in contracts()}


def released() -> list[Contract]:
    """The contracts of the last release."""
    return msgspec.json.decode(RELEASED.read_bytes(), type=list[Contract])


def write(path: Path, value: Any) -> None:
    """`value` as JSON that shows changes line by line."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(HASHES, hashes())
    if "--release" in sys.argv[1:]:
        write(RELEASED, msgspec.to_builtins(list(contracts())))
