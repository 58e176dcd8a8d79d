"""A small fixed sample of the campaign, and the proof that it finds what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.blobs.metadata import BlobRecord
from hearthnet.service.hosting.context import NodeContext
from hearthnet_rag.ownership import Corpora, name_of
from tests.persons.campaign import Campaign, Totals

pytestmark = [pytest.mark.asyncio, pytest.mark.req("PERSON-63", "ATTACK-68")]


async def sample(folder: Path, questions: int = 60) -> Totals:
    return await Campaign(folder, 207, print).run(questions, documents=2, files=1, talks=1)


async def test_what_is_planted_for_one_reaches_nobody_else(tmp_path: Path) -> None:
    totals = await sample(tmp_path)
    assert totals.findings == []
    assert totals.planted > 100
    assert totals.questions == 60
    assert totals.answered > 20
    assert totals.found > 10
    assert totals.prompts > 0
    assert totals.steps > 0
    assert totals.restored > 100
    assert len(totals.kinds) == 9


async def test_campaign_finds_what_is_seen_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def any_corpus(self: Corpora, call: Any, corpus: str) -> str | None:
        return next((key for key in self._keys if name_of(key) == corpus), None)

    def any_file(self: NodeContext, call: Any, entry: BlobRecord) -> list[Any]:
        return list(entry.holds(0))

    monkeypatch.setattr(Corpora, "find", any_corpus)
    monkeypatch.setattr(NodeContext, "known_holds", any_file)
    totals = await sample(tmp_path)
    # Admission keeps a search from a corpus that is not offered to the caller, whatever the service says.
    assert "list" in {line.partition(" ")[0] for line in totals.findings}
