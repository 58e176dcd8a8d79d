"""Copies under races, ends at the wrong moment, and disks that are full."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.service.sharing.terms import Terms, changing_terms
from hearthnet_rag.index.journal import Journal
from hearthnet_rag.index.sharing import Sharing
from hearthnet_rag.mirror import copies
from hearthnet_rag.mirror.transfer import Transfer
from tests.helpers.mesh import Mesh
from tests.helpers.small_disk import fill, small_disk
from tests.helpers.waiting import wait_for
from tests.services.rag.test_copies import gone, traces
from tests.services.rag.two_homes import MANUALS, RagHome, refusal, two_homes

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("hurried")]
BOILER, PUMP = "The boiler needs three bars.", "The pump is loud."


@pytest.mark.req("MIRROR-8")
async def test_a_copy_that_is_asked_for_twice_at_once_is_one(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, asked, both = Transfer.statement, list[str](), asyncio.Event()

    async def together(self: Transfer) -> Any:
        found = await statement(self)
        asked.append(self._corpus)
        if len(asked) % 2 == 0:
            both.set()
        await both.wait()
        return found

    async with two_homes(mesh) as (k, m):
        for corpus in (MANUALS, "recipes", "poems"):
            await k.add(corpus, BOILER)
            await k.share(corpus)
        with monkeypatch.context() as patch:
            patch.setattr(Transfer, "statement", together)
            patch.setattr(copies, "MAX_COPIES", 1)
            two = (m.mirror(k.node, corpus) for corpus in ("recipes", "poems"))
            begun, refused = sorted(
                await asyncio.gather(*two, return_exceptions=True), key=lambda row: isinstance(row, Exception)
            )
            assert isinstance(begun, dict)
            assert isinstance(refused, HearthNetError)
            assert refused.code == "capacity_exceeded"
            assert [row["corpus"] for row in await m.copies()] == [begun["corpus"]]
        await m.mirror(k.node, begun["corpus"], end=True)
        await gone(m)
        monkeypatch.setattr(Transfer, "statement", together)
        asked.clear()
        both.clear()
        await asyncio.gather(m.mirror(k.node), m.mirror(k.node))
        assert len(await m.copies()) == 1
        ends = await asyncio.gather(m.mirror(k.node, end=True), m.mirror(k.node, end=True))
        assert [row["state"] for row in ends] == ["ending", "ending"]
        await gone(m)


@pytest.mark.req("MIRROR-5")
async def test_removing_the_last_document_ends_copies_also_after_a_crash(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_homes(mesh) as (k, m):
        boiler = await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        await m.whole(documents=1)

        def crash(*_: Any) -> None:
            raise SystemError("the process ends here")

        with monkeypatch.context() as patch:
            for name in ("end_copies", "keep"):
                patch.setattr(Sharing, name, crash)
            assert (await refusal(k.call("rag.remove@1.0", MANUALS, doc_cid=boiler))).code == "internal_error"
            await k.stop()
        await k.start()
        await gone(m)
        assert await m.held(boiler) == []


@pytest.mark.req("ATTACK-143")
async def test_new_titles_of_all_documents_write_the_journal_once(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, rewritten = Journal.forget, list[int]()

    def counted(self: Journal, corpus: str, doc_cids: Collection[str]) -> None:
        rewritten.append(len(doc_cids))
        forget(self, corpus, doc_cids)

    async with two_homes(mesh) as (k, m):
        cids = [await k.add(MANUALS, f"{BOILER} {number}") for number in range(4)]
        await k.share(MANUALS)
        await m.mirror(k.node)
        first = await m.whole(documents=4)
        await m.stop()
        for cid in cids[1:]:
            await k.call("rag.remove@1.0", MANUALS, doc_cid=cid)
            await k.call("rag.ingest@1.0", MANUALS, doc_cid=cid, title="Another title")
        monkeypatch.setattr(Journal, "forget", counted)
        await m.start()
        await m.whole(documents=4, other_than=first["version"])
        assert rewritten == [3]
        await k.stop()
        await m.whole(answers=True)
        body = {"params": {"corpus": MANUALS, "copy_of": k.node}, "input": {}}
        listed = (await m.bus.call("rag.list_documents@1.0", body)).output["documents"]
        assert [one["title"] for one in listed].count("Another title") == 3


@pytest.mark.req("MIRROR-5", "ATTACK-149")
@pytest.mark.parametrize(
    "terms", [Terms(audience="nobody"), Terms(audience="trusted")], ids=["nobody", "trusted"]
)
async def test_copies_end_also_where_the_service_is_not_shared_any_more(mesh: Mesh, terms: Terms) -> None:
    """Whoever stops sharing altogether takes back copies, too, and is in reach for that."""
    async with two_homes(mesh, level="member") as (k, m):
        boiler = await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        await m.whole(documents=1)
        with changing_terms(k.home.sharing) as known:
            known["rag"] = terms
        body = {"params": {"corpus": MANUALS}, "input": {"doc_cid": boiler, "offset": 0, "length": 9}}

        async def is_closed() -> bool:
            with contextlib.suppress(HearthNetError):
                await m.bus.call("rag.read_document@1.0", body, node=k.node)
                return False
            return True

        await wait_for(is_closed, what="the terms to be in force")
        await k.share(MANUALS, shared=False, copies=False)
        await gone(m)
        assert await m.held(boiler) == []


@pytest.mark.req("MIRROR-5")
async def test_a_copy_on_a_full_disk_says_so_and_ends_once_there_is_room(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "AGAIN_SECONDS", 0.5)
    async with two_homes(mesh) as (k, m):
        await m.stop()
        folder = m.home.service("rag")
        shutil.rmtree(folder)
        with small_disk(folder) as mounted:
            mounted("size=8m")
            await m.start()
            try:
                await _end_on_a_full_disk(k, m, folder / "ballast")
            finally:
                await m.stop()


async def _end_on_a_full_disk(k: RagHome, m: RagHome, ballast: Path) -> None:
    notes = {"note": "x" * 15_000}
    for number in range(4):
        await m.add("mine", f"{PUMP} {number}", metadata=notes)
    boiler = await k.add(MANUALS, BOILER, title="Boiler of Ada", metadata=notes)
    await k.share(MANUALS)
    await m.mirror(k.node)
    await m.whole(documents=1)
    _fill_but(ballast, 12 * 1024)
    assert (await m.mirror(k.node, end=True))["state"] == "ending"

    async def is_told() -> bool:
        [row] = await m.copies()
        return "the disk is full; free some space" in str(row.get("problem"))

    await wait_for(is_told, what="the full disk in the row of the copy")
    assert await m.held(boiler) == []
    _fill_but(ballast, None)
    await gone(m)
    assert traces(m, boiler, "Boiler of Ada", k.node) == []


def _fill_but(ballast: Path, room: int | None) -> None:
    """Fill the disk but for `room` bytes; with None give it back."""
    if room is None:
        ballast.unlink()
        return
    fill(ballast)
    with ballast.open("r+b") as file:
        file.truncate(ballast.stat().st_size - room)
