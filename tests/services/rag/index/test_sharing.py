"""The owner's answers: which corpora are shared, and which may be copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet_rag.index.journal import Journal, Record
from hearthnet_rag.index.sharing import COPIES, FILE, Sharing


@pytest.mark.req("MIRROR-10")
def test_answers_of_an_earlier_version_allow_no_copies(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"manuals": true, "taxes": false}')
    sharing = Sharing(tmp_path)
    assert (sharing.is_shared("manuals"), sharing.is_shared("taxes")) == (True, False)
    assert (sharing.copied(), sharing.ended()) == ([], [])


@pytest.mark.req("MIRROR-10")
def test_what_an_earlier_version_unshared_ends_copies(tmp_path: Path) -> None:
    Sharing(tmp_path).decide("manuals", shared=True, copies=True)
    assert Sharing(tmp_path).copied() == ["manuals"]
    # As a version that does not know of copies writes it, and reads it.
    assert (tmp_path / FILE).read_text() == '{"manuals":true}'
    (tmp_path / FILE).write_text('{"manuals":false}')
    assert (Sharing(tmp_path).copied(), Sharing(tmp_path).ended()) == ([], ["manuals"])


@pytest.mark.req("MIRROR-5", "MIRROR-9")
def test_only_a_decision_of_the_owner_ends_copies(tmp_path: Path) -> None:
    sharing = Sharing(tmp_path)
    sharing.decide("never", shared=True)
    sharing.decide("never", shared=False)
    assert sharing.ended() == []  # copies of it were never allowed: it is not to be named
    sharing.decide("manuals", shared=True, copies=True)
    sharing.decide("manuals", shared=True)  # as by `hearthnet ingest --share`: the answer stays
    assert sharing.copied() == ["manuals"]
    sharing.keep([])  # its documents got lost
    assert (sharing.copied(), sharing.ended()) == ([], [])
    sharing.end_copies("manuals")
    assert Sharing(tmp_path).ended() == ["manuals"]
    sharing.decide("manuals", shared=True, copies=True)
    assert (sharing.copied(), sharing.ended()) == (["manuals"], [])
    sharing.decide("manuals", shared=True, copies=False)
    assert (sharing.is_shared("manuals"), sharing.ended()) == (True, ["manuals"])
    (tmp_path / COPIES).write_bytes(b"\0")
    assert Sharing(tmp_path).copied() == []


@pytest.mark.req("MIRROR-2")
def test_the_journal_forgets_single_documents(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for corpus, cid in (("a@k", "1"), ("a@k", "2"), ("a", "1")):
        journal.append(Record(corpus, cid, "", "", title=f"title {cid}"))
    before = journal.changes
    journal.forget("a@k", ["1"])
    assert list(journal.state().present) == [("a@k", "2"), ("a", "1")]
    assert journal.changes > before
    journal.append(Record("a@k", "1", "", "", title="again"))
    assert journal.state().present["a@k", "1"].title == "again"
