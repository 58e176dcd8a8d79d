"""Homes that abuse copies: forged contents, contents without end, and files that are nobody's to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.corpus_statement import CorpusStatement, sign_statement
from hearthnet.trust.keys import Identity
from hearthnet_rag.index.journal import Record
from hearthnet_rag.mirror.contents import (
    MAX_DOCUMENTS,
    MAX_RECORD_BYTES,
    PAGE_DOCUMENTS,
    Contents,
    page_at,
    record_of,
)
from hearthnet_rag.mirror.source import Source
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.rag.two_homes import MANUALS, RagHome, refusal, texts, two_homes

hosted = [pytest.mark.asyncio, pytest.mark.usefixtures("hurried")]
BOILER, SECRET = "The boiler needs three bars.", "The income of the household was 31337 crowns."
TITLE = "x" * 20_000
KITCHEN, OTHER = Identity.generate(), Identity.generate()
STATED = CorpusStatement(
    community="c", home=KITCHEN.node_id, corpus=MANUALS, copies=True, count=0, digest="", time=1
)


def record(number: int, title: str = "") -> dict[str, Any]:
    """The record of a document as a home sends it."""
    return record_of(Record(MANUALS, f"blake3:{number:064x}", "", "text/plain", title))


def json_of(statement: CorpusStatement, signer: Identity = KITCHEN) -> dict[str, Any]:
    signed: dict[str, Any] = msgspec.to_builtins(sign_statement(statement, signer))
    return signed


@pytest.mark.req("MIRROR-8", "ATTACK-133")
@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ([[record(1)], []], "is empty"),
        ([[record(1)], [record(1)]], "twice"),
        ([[record(number) for number in range(4)]], "more documents than it said"),
        ([[record(1, "x" * MAX_RECORD_BYTES)]], "records of more"),
        (
            [[record(page * 50 + one, "x" * 20_000) for one in range(50)] for page in range(20)],
            "records of more",
        ),
    ],
)
def test_contents_without_end_are_refused(pages: list[list[dict[str, Any]]], words: str) -> None:
    contents = Contents(3 if len(pages) < 3 else MAX_DOCUMENTS)

    def arrive() -> None:
        for page in pages:
            contents.add(page)

    with pytest.raises(HearthNetError, match=words):
        arrive()
    with pytest.raises(HearthNetError, match="a copy has at most"):
        Contents(MAX_DOCUMENTS + 1)


@pytest.mark.req("MIRROR-1")
def test_pages_give_every_record_once() -> None:
    documents = [record(number, "x" * (number % 7) * 3_000) for number in range(3 * PAGE_DOCUMENTS)]
    found, following = list[dict[str, Any]](), list[int | None]([0])
    while (offset := following.pop()) is not None:
        page, after = page_at(documents, offset)
        following.append(after)
        assert 0 < len(page) <= PAGE_DOCUMENTS
        found += page
    assert found == documents


class Hostile:
    """A home whose program was changed in what it says of its corpus."""

    def __init__(self, patch: pytest.MonkeyPatch, victim: RagHome, home: str) -> None:
        self._patch = patch
        self._victim = victim
        self._home = home

    async def says(self, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
        """The problem of the copy, once `change` was made to what the method `name` returns."""
        original = getattr(Source, name)

        async def changed(source: Source, *given: Any) -> dict[str, Any]:
            return change(await original(source, *given))

        with self._patch.context() as patch:
            patch.setattr(Source, name, changed)
            before = str((await self._victim.copies())[0].get("problem"))

            async def problem() -> str | None:
                await self._victim.mirror(self._home)
                [row] = await self._victim.copies()
                now = str(row.get("problem"))
                return now if now not in ("None", before) else None

            return await wait_for(problem, what=f"a problem other than {before}")


async def answers(m: RagHome, home: str) -> list[str]:
    """What the copy finds."""
    body = {"params": {"corpus": MANUALS, "copy_of": home}, "input": {"query": "boiler income"}}
    return texts(await m.bus.call("rag.query@1.0", body, node=m.node, instance=""))


@pytest.mark.asyncio
@pytest.mark.usefixtures("hurried")
@pytest.mark.req("MIRROR-8", "ATTACK-132", "ATTACK-133")
async def test_a_copy_takes_only_what_its_home_signed(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    mallory = load_identity(mesh.guest.device_key)
    async with two_homes(mesh) as (k, m):
        await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        await m.mirror(k.node)
        first = await m.whole(documents=1)
        await k.add(MANUALS, "Not the next version.")
        await m.whole(documents=2)
        hostile = Hostile(monkeypatch, m, k.node)

        def signed(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
            """The page with other fields in its statement, signed by another home."""

            def change(page: dict[str, Any]) -> dict[str, Any]:
                draft = msgspec.convert({**page["statement"], **fields}, CorpusStatement)
                return {**page, "statement": json_of(draft, mallory)}

            return change

        def honest(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
            """The same, signed by the home itself, which is the hostile one."""

            def change(page: dict[str, Any]) -> dict[str, Any]:
                draft = msgspec.convert({**page["statement"], **fields}, CorpusStatement)
                return {**page, "statement": json_of(draft, load_identity(mesh.home.device_key))}

            return change

        other = "blake3:" + "1" * 64
        assert "is not signed by" in await hostile.says("page", signed(copies=False, count=0))
        assert "others than their home has signed" in await hostile.says("page", honest(digest=other))
        assert "a copy has at most" in await hostile.says("page", honest(digest=other, count=10**9))
        rows = await m.copies()
        assert (rows[0]["documents"], rows[0]["version"] != first["version"]) == (2, True)

        # The hash of a file that the other home keeps to itself, as a document: it is not to publish it.
        secret = await m.add("diary", SECRET)
        await k.add(MANUALS, SECRET)
        async with await mesh.store(k.home) as store:
            await store.blobs.remove(secret)

        async def took() -> bool:
            [row] = await m.copies()
            return bool(row["documents"] == 3 and row["unreadable"] == 1)

        await wait_for(took, what="the version with a file that its home does not have")
        await k.stop()
        await m.whole(answers=True)
        assert BOILER in await answers(m, k.node)
        assert SECRET not in await answers(m, k.node)


@pytest.mark.asyncio
@pytest.mark.usefixtures("hurried")
@pytest.mark.req("MIRROR-8", "ATTACK-133")
async def test_a_file_too_large_or_of_other_content_is_not_kept(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_homes(mesh) as (k, m):
        cid = await k.add(MANUALS, BOILER)
        await k.share(MANUALS)
        with monkeypatch.context() as patch:
            patch.setattr(Source, "read", _endless)
            await m.mirror(k.node)

            async def refused() -> bool:
                [row] = await m.copies()
                return "too large" in str(row.get("problem"))

            await wait_for(refused, what="the refusal of a file without end")
        hostile = Hostile(monkeypatch, m, k.node)
        other = await hostile.says("read", lambda part: {**part, "data_b64": "AAAA", "size_bytes": 3})
        assert "is not that of" in other
        ends = await hostile.says("read", lambda part: {**part, "data_b64": "", "size_bytes": 3})
        assert "ends before" in ends
        assert await m.held(cid) == []


async def _endless(_source: Source, *_given: Any) -> dict[str, Any]:
    return {"data_b64": "AAAA", "size_bytes": 1 << 40}


@pytest.mark.asyncio
@pytest.mark.usefixtures("hurried")
@pytest.mark.req("MIRROR-9", "ATTACK-134")
async def test_nobody_reads_a_file_that_may_not_be_copied(mesh: Mesh) -> None:
    async with two_homes(mesh) as (k, m):
        named = {
            "copied": await k.add("copied", BOILER),
            "shared": await k.add("shared", "Shared without copies."),
            "taxes": await k.add("taxes", SECRET),
        }
        await k.share("copied")
        await k.share("shared", copies=False)

        async def read(corpus: str, cid: str) -> Any:
            given = {"doc_cid": cid, "offset": 0, "length": 100}
            body = {"params": {"corpus": corpus}, "input": given}
            return await m.bus.call("rag.read_document@1.0", body, node=k.node)

        async def manifest(corpus: str) -> Any:
            return await m.bus.call(
                "rag.manifest@1.0", {"params": {"corpus": corpus}, "input": {}}, node=k.node
            )

        assert (await read("copied", named["copied"])).output["size_bytes"] == len(BOILER)
        assert [one["doc_cid"] for one in (await manifest("copied")).output["documents"]] == [named["copied"]]
        for corpus, cid, code in (
            ("shared", named["shared"], "unauthorized"),
            ("taxes", named["taxes"], "not_found"),
            ("copied", named["taxes"], "not_found"),
            ("copied", named["shared"], "not_found"),
        ):
            assert (await refusal(read(corpus, cid))).code == code
        unknown = str((await refusal(manifest("zebra"))).message).replace("zebra", "taxes")
        assert (await refusal(manifest("taxes"))).message == unknown
        assert (await refusal(m.mirror(k.node, "shared"))).code == "unauthorized"
        await k.share("copied", shared=False, copies=False)
        assert (await refusal(read("copied", named["copied"]))).code == "not_found"
        assert (await manifest("copied")).output["statement"]["copies"] is False
    for name in ("rag.manifest@1.0", "rag.read_document@1.0"):
        assert contracts().get(name).trust_required == "member"
