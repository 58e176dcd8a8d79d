"""The journal of what was ingested."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.index.journal import FILE, Journal, Record


def record(number: int, **fields: str) -> Record:
    return Record("home", f"blake3:{number}", f"event {number}", "text/plain", **fields)  # type: ignore[arg-type]


def present(journal: Journal) -> list[Record]:
    return list(journal.state().present.values())


def test_records_come_back_in_order_and_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert present(journal) == []
    written = [Record("home", "blake3:1", "e1", "text/markdown", "Größe", "de", {"year": 2020}), record(2)]
    for one in [*written, record(2, title="again")]:
        journal.append(one)
    assert present(journal) == written


@pytest.mark.req("RAG-10")
@pytest.mark.parametrize("torn", [b'{"corpus": "ho', b"\n", b"not json\n", b'{"corpus": 7}\n', b"\xff\xfe\n"])
def test_a_torn_or_foreign_line_is_skipped(tmp_path: Path, torn: bytes) -> None:
    journal = Journal(tmp_path)
    journal.append(record(1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(torn)
    journal.append(record(2))
    assert present(journal) == [record(1), record(2)]


@pytest.mark.req("RAG-33")
def test_what_was_removed_or_replaced_is_gone_until_it_is_added_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    newer = Record("home", "blake3:3", "event 3", "text/plain", replaces=["blake3:2"])
    for one in [record(1), record(2), Record("home", "blake3:1", "", "", removed=True), newer]:
        journal.append(one)
    state = journal.state()
    assert list(state.present.values()) == [newer]
    assert state.gone == {("home", "blake3:1"): None, ("home", "blake3:2"): ("home", "blake3:3")}
    again = Record("home", "blake3:1", "event 4", "text/plain")
    journal.append(again)
    assert present(journal) == [newer, again]
    assert list(journal.state().gone) == [("home", "blake3:2")]


def test_a_journal_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(HearthNetError, match="see that this user may write there"):
        Journal(tmp_path).append(record(1))


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/dev/full")
    with pytest.raises(HearthNetError, match="the disk is full") as caught:
        Journal(tmp_path).append(record(1))
    assert caught.value.code == "capacity_exceeded"
