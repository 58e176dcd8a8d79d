"""The journal of what was ingested."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.errors import HearthNetError
from hearthnet_rag.journal import FILE, Journal, Record


def record(number: int, **fields: str) -> Record:
    return Record("home", f"blake3:{number}", f"event {number}", "text/plain", **fields)  # type: ignore[arg-type]


def test_records_come_back_in_order_and_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert list(journal.records()) == []
    written = [Record("home", "blake3:1", "e1", "text/markdown", "Größe", "de", {"year": 2020}), record(2)]
    for one in [*written, record(2, title="again")]:
        journal.append(one)
    assert list(journal.records()) == written


@pytest.mark.req("RAG-10")
@pytest.mark.parametrize("torn", [b'{"corpus": "ho', b"\n", b"not json\n", b'{"corpus": 7}\n', b"\xff\xfe\n"])
def test_a_torn_or_foreign_line_is_skipped(tmp_path: Path, torn: bytes) -> None:
    journal = Journal(tmp_path)
    journal.append(record(1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(torn)
    journal.append(record(2))
    assert list(journal.records()) == [record(1), record(2)]


def test_a_journal_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(HearthNetError, match="see that this user may write there"):
        Journal(tmp_path).append(record(1))


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/dev/full")
    with pytest.raises(HearthNetError, match="the disk is full") as caught:
        Journal(tmp_path).append(record(1))
    assert caught.value.code == "capacity_exceeded"
