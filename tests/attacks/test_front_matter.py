"""A document whose front matter costs its reader seconds, against a node that others ask for answers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.full_house import UNLIMITED
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell

DOCUMENTS = 12


def dotted(characters: int, number: int) -> str:
    """A document with one key of so many parts, on which the parser spends time that grows faster."""
    return f"+++\n{'a' + '.a' * (characters // 2 - 8)} = {number}\n+++\n# Rain\n\nKeep the lid on.\n"


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def accents(number: int) -> str:
    """A document with so many accents on one letter, in an order that normalization has to change."""
    return "# Rain\n\nKeep the lid on a" + "\u0315\u0300" * (number // 2) + ".\n"


@pytest.mark.req("ATTACK-45")
def test_costly_front_matter_costs_the_service_nothing(tmp_path: Path) -> None:
    neighbourhood = settle_in(tmp_path, services=("rag", "file"), settings=UNLIMITED)
    shell = Shell(neighbourhood.founder.path)
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(DOCUMENTS):
        (folder / f"{number}.md").write_text(dotted(15_000, number))
    (folder / "large.md").write_text(dotted(1_000_000, 0))
    with shell.node() as state:
        [pid] = [service["pid"] for service in state["services"] if service["name"] == "rag"]
        service = psutil.Process(pid)
        before, began = _seconds(service), time.monotonic()
        done = shell.run("ingest", folder, "--corpus", "rain", "--json")
        took, spent = time.monotonic() - began, _seconds(service) - before
        summary = json.loads(done.stdout)
        assert len(summary["ingested"]) == DOCUMENTS
        [failure] = summary["failed"]
        assert "front matter of 99" in failure["message"]
        # The children spend some 0.4 s on each document, of which the service pays none.
        assert spent < took / 2
        assert spent < DOCUMENTS * 0.15
        (folder / "accents.md").write_text(accents(200_000))
        before = _seconds(service)
        done = shell.run("ingest", folder / "accents.md", "--corpus", "rain", "--json")
        assert len(json.loads(done.stdout)["ingested"]) == 1
        # Sorting them as one row takes 40 s, in which no other thread of the service runs.
        assert _seconds(service) - before < 5
