"""Copies of corpora between two homes: they are fetched, kept up to date, answer, and end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from hearthnet.contracts.registry import contracts
from hearthnet_rag.index.database import FILE
from hearthnet_rag.index.journal import FILE as JOURNAL
from hearthnet_rag.mirror.copy_files import FOLDER, KeptCopy
from hearthnet_rag.mirror.transfer import Transfer
from tests.agent.tools.test_everybody import content
from tests.helpers.contract_examples import missing_from_output, request_of
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.rag.two_homes import MANUALS, RagHome, refusal, texts, two_homes

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("hurried")]
BOILER, PUMP, STOVE = "The boiler needs three bars.", "The pump is loud.", "The stove takes wood."


async def gone(home: RagHome) -> None:
    """Wait until a home has no copy."""

    async def none() -> bool:
        return not await home.copies()

    await wait_for(none, what="the copies to end")


def traces(home: RagHome, *words: str) -> list[str]:
    """Those of `words` that the journal of a home or its files of copies have."""
    folder = home.home.service("rag")
    files = [folder / JOURNAL, *(folder / FOLDER).glob("*")]
    text = b"".join(file.read_bytes() for file in files if file.exists())
    return [word for word in words if word.encode() in text]


@pytest.mark.req("MIRROR-1", "MIRROR-3", "MIRROR-4")
async def test_a_copy_answers_where_its_home_does_not(mesh: Mesh) -> None:
    async with two_homes(mesh) as (k, m):
        await k.add(MANUALS, BOILER, metadata={"path": "/home/ada/boiler.txt"})
        await k.add(MANUALS, "x" * 300_000 + PUMP)
        await k.share(MANUALS)
        await m.mirror(k.node)
        row = await m.whole(documents=2, unreadable=0)
        assert row["answers"] is False
        original = await m.ask(MANUALS, "boiler")
        assert (original.provider, original.meta["version"]) == (k.node, row["version"])
        assert "copy_of" not in original.meta
        await k.stop()
        await m.whole(answers=True)
        for corpus in (MANUALS, f"{MANUALS}@{k.node}"):
            found = await m.ask(corpus, "boiler")
            assert found.provider == m.node
            assert texts(found) == [BOILER]
            assert found.output["chunks"][0]["metadata"]["path"] == "boiler.txt"
            assert (found.meta["copy_of"], found.meta["version"]) == (k.node, row["version"])
            assert found.meta["as_of"] >= row["as_of"]
        body = {"params": {"corpus": f"{MANUALS}@{k.node}"}, "input": {}}
        listed = await k.bus.call("rag.list_documents@1.0", body)
        assert (len(listed.output["documents"]), listed.meta["copy_of"]) == (2, k.node)
        corpora = await k.bus.call("rag.list_corpora@1.0", {"params": {}, "input": {}}, node=m.node)
        [row_of_copy] = [one for one in corpora.output["corpora"] if one["name"] == MANUALS]
        assert (row_of_copy["copy_of"], row_of_copy["docs"]) == (k.node, 2)
        everywhere = await k.bus.gather("rag.query@1.0", {"params": {}, "input": {"query": "boiler"}})
        assert [reply.meta["copy_of"] for reply in everywhere.replies if "copy_of" in reply.meta] == [k.node]
        await k.start()
        await m.whole(answers=False)
        assert (await m.ask(MANUALS, "boiler")).provider == k.node


@pytest.mark.req("MIRROR-2")
async def test_a_copy_follows_what_comes_changes_and_goes(mesh: Mesh) -> None:
    async with two_homes(mesh) as (k, m):
        boiler = await k.add(MANUALS, BOILER, title="Boiler of Ada")
        pump = await k.add(MANUALS, PUMP)
        await k.share(MANUALS)
        first = await m.mirror(k.node) and await m.whole(documents=2)
        holder = KeptCopy(k.node, MANUALS).holder
        assert await m.held(boiler) == [holder]
        await k.add(MANUALS, STOVE)
        await k.call("rag.remove@1.0", MANUALS, doc_cid=boiler)
        await k.call("rag.remove@1.0", MANUALS, doc_cid=pump)
        await k.call("rag.ingest@1.0", MANUALS, doc_cid=pump, title="Another title")

        async def is_last() -> bool:
            row = await m.whole(other_than=first["version"])
            body = {"params": {"corpus": MANUALS}, "input": {"query": "pump"}}
            return bool((await k.bus.call("rag.query@1.0", body)).meta["version"] == row["version"])

        await wait_for(is_last, what="the copy to have the last version")

        async def cleared() -> bool:
            return not await m.held(boiler) and not traces(m, "Boiler of Ada")

        await wait_for(cleared, what="what left the corpus to leave the copy")
        body = {"params": {"corpus": MANUALS, "copy_of": k.node}, "input": {"query": "boiler pump stove"}}
        await k.stop()
        await m.whole(answers=True)
        found = await m.bus.call("rag.query@1.0", body)
        titles = {chunk["metadata"]["doc_title"] for chunk in found.output["chunks"]}
        assert (texts(found), titles) == ([PUMP, STOVE], {"Another title", STOVE})


@pytest.mark.req("MIRROR-5")
@pytest.mark.parametrize("how", ["unshare", "no copies", "remove", "here"])
async def test_the_end_of_a_copy_leaves_nothing_of_it(mesh: Mesh, how: str) -> None:
    async with two_homes(mesh) as (k, m):
        boiler = await k.add(MANUALS, BOILER, title="Boiler of Ada")
        pump = await k.add(MANUALS, PUMP)
        await m.add("mine", PUMP) if how != "unshare" else None
        await k.share(MANUALS)
        await m.mirror(k.node)
        await m.whole(documents=2)
        assert traces(m, boiler) == [boiler]
        if how == "unshare":
            await k.share(MANUALS, shared=False, copies=False)
        elif how == "no copies":
            await k.share(MANUALS, copies=False)
        elif how == "remove":
            for cid in (boiler, pump):
                await k.call("rag.remove@1.0", MANUALS, doc_cid=cid)
        else:
            await m.mirror(k.node, end=True)
        await gone(m)
        assert traces(m, boiler, "Boiler of Ada", k.node) == []
        assert await m.held(boiler) == []
        assert await m.held(pump) == ([""] if how != "unshare" else [])
        found = await refusal(m.bus.call("rag.query@1.0", {
            "params": {"corpus": MANUALS, "copy_of": k.node}, "input": {"query": "boiler"}
        }))  # fmt: skip
        assert found.code == "not_found"


@pytest.mark.req("MIRROR-5", "MIRROR-6")
async def test_a_home_that_was_away_ends_its_copy_when_it_is_back(mesh: Mesh) -> None:
    async with two_homes(mesh) as (k, m):
        await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        await m.whole(documents=1)
        await k.stop()
        await m.stop()
        await m.start()
        await m.whole(answers=True)  # the absence of its home has not ended it, here or at the restart
        await m.stop()
        await k.start()
        await k.share(MANUALS, shared=False, copies=False)
        await m.start()
        await gone(m)


@pytest.mark.req("MIRROR-6")
async def test_a_copy_goes_on_where_it_was_cut_off(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, fetch = list[str](), Transfer._read
    reached = asyncio.Event()

    async def up_to_two(self: Transfer, doc_cid: str, room: int) -> bytes:
        if len(fetched) == 2:
            reached.set()
            await asyncio.Event().wait()
        data = await fetch(self, doc_cid, room)
        fetched.append(doc_cid)
        return data

    async with two_homes(mesh) as (k, m):
        for text in (BOILER, PUMP, STOVE):
            await k.add(MANUALS, text)
        await k.share(MANUALS)
        monkeypatch.setattr(Transfer, "_read", up_to_two)
        await m.mirror(k.node)
        await asyncio.wait_for(reached.wait(), 20)
        [row] = await m.copies()
        assert (row["state"], row["documents_fetched"], row["documents_wanted"]) == ("fetching", 2, 3)
        copied = {"corpus": MANUALS, "copy_of": k.node}
        body = {"params": copied, "input": {"query": "boiler"}}
        assert (await refusal(m.bus.call("rag.query@1.0", body, node=m.node))).code == "not_found"
        await m.stop()
        before, again = list(fetched), list[str]()

        async def count(self: Transfer, doc_cid: str, room: int) -> bytes:
            again.append(doc_cid)
            return await fetch(self, doc_cid, room)

        monkeypatch.setattr(Transfer, "_read", count)
        await m.start()
        await m.whole(documents=3)
        assert len(again) == 1
        assert set(again).isdisjoint(before)


@pytest.mark.req("MIRROR-12")
async def test_a_copy_answers_soon_after_its_home_was_lost_without_a_word(mesh: Mesh) -> None:
    """Its offers would go on for 30 s."""
    async with two_homes(mesh) as (k, m):
        await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        await m.whole(answers=False)
        await k.lose()
        lost = time.monotonic()
        await m.whole(answers=True)
        assert time.monotonic() - lost < 20
        corpus = f"{MANUALS}@{k.node}"
        assert texts(await m.ask(corpus, "boiler")) == [BOILER]
        fixed = await content(m.bus, "search_corpus", {"corpus": corpus}, query="boiler", k=1)
        assert [chunk["text"] for chunk in fixed["chunks"]] == [BOILER]


@pytest.mark.req("MIRROR-3")
async def test_a_version_answers_alone_until_the_next_is_whole(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched, fetch = list[str](), Transfer._read
    reached = asyncio.Event()

    async def only_one(self: Transfer, doc_cid: str, room: int) -> bytes:
        if fetched:
            reached.set()
            await asyncio.Event().wait()
        fetched.append(doc_cid)
        return await fetch(self, doc_cid, room)

    async with two_homes(mesh) as (k, m):
        await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        first = await m.whole(documents=1)
        monkeypatch.setattr(Transfer, "_read", only_one)
        whole = {first["version"]: [BOILER]}
        for text in (f"{BOILER} {PUMP}", f"{BOILER} {STOVE}"):
            await k.add(MANUALS, text)
            now = await k.ask(MANUALS, "boiler")
            whole[now.meta["version"]] = texts(now)
        del whole[now.meta["version"]]  # of which one document is never fetched
        await asyncio.wait_for(reached.wait(), 20)
        await k.stop()
        await m.whole(answers=True)
        found = await m.ask(MANUALS, "boiler")
        assert texts(found) == whole[found.meta["version"]]
        body = {"params": {"corpus": MANUALS, "copy_of": k.node}, "input": {}}
        listed = (await m.bus.call("rag.list_documents@1.0", body)).output["documents"]
        assert len(listed) == len(texts(found))


@pytest.mark.req("MIRROR-7")
async def test_a_damaged_index_gets_its_copies_back(mesh: Mesh) -> None:
    async with two_homes(mesh) as (k, m):
        await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        await m.whole(documents=1)
        await k.stop()
        await m.stop()
        (m.home.service("rag") / FILE).write_bytes(b"no database at all" * 1000)
        await m.start()
        await m.whole(answers=True)
        assert texts(await m.ask(MANUALS, "boiler")) == [BOILER]


@pytest.mark.req("MIRROR-4")
async def test_a_corpus_of_the_home_itself_goes_before_a_copy(mesh: Mesh) -> None:
    async with two_homes(mesh) as (k, m):
        await m.add(MANUALS, STOVE)
        await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        await m.whole(documents=1)
        await k.stop()
        await m.whole(answers=True)
        own = await m.ask(MANUALS, "boiler stove")
        assert texts(own) == [STOVE]
        assert "copy_of" not in own.meta
        assert texts(await m.ask(f"{MANUALS}@{k.node}", "boiler stove")) == [BOILER]


@pytest.mark.req("MIRROR-1")
async def test_the_examples_of_the_contracts_of_copies(mesh: Mesh) -> None:
    names = ("rag.manifest@1.0", "rag.read_document@1.0", "rag.list_mirrors@1.0", "rag.mirror@1.0")
    async with two_homes(mesh) as (k, m):
        await k.add("examples", "# Soup\n\nBoil the soup.\n")
        await k.share("examples")
        for name, example in ((one, each) for one in names for each in contracts().get(one).examples):
            node = m.node if contracts().get(name).trust_required == "self" else k.node
            work: Any = m.bus.call(name, request_of(example, {"home": k.node}), node=node)
            if "error" in example:
                error = await refusal(work)
                assert error.code == example["error"]
                assert error.details.get("path") == example.get("path", error.details.get("path"))
            else:
                assert missing_from_output(example["expect"], (await work).output) == []
