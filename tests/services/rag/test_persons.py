"""Corpora of several persons of one home."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.token import Scope
from hearthnet.trust.keys import Identity
from hearthnet_mesh import MeshService
from hearthnet_rag import RagService
from hearthnet_rag.index.database import FILE
from tests.helpers.mesh import Mesh
from tests.helpers.residents import Resident, resident
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
NOTES = {"corpus": "notes"}


class Home(NamedTuple):
    """The rag service, the owner's bus, and two more persons of the home."""

    mesh: Mesh
    rag: RagService
    bus: Bus
    ada: Resident
    ben: Resident

    async def add(self, who: Resident | None, corpus: str, text: str) -> str:
        """The owner (None) or a person stores a document and adds it."""
        async with await self.mesh.store() as store:
            hold = None if who is None else Hold(by=who.principal)
            cid = await (
                store.put_blob(text.encode()) if hold is None else store.blobs.put([text.encode()], hold)
            )
        await self.call(who, "rag.ingest@1.0", {"corpus": corpus}, doc_cid=cid)
        return cid

    async def call(
        self, who: Resident | None, capability: str, params: dict[str, Any], /, **given: Any
    ) -> dict[str, Any]:
        """The output of a call by the owner (None) or by a person."""
        if who is not None:
            return await who.call(capability, params, **given)
        return dict((await self.bus.call(capability, {"params": params, "input": given})).output)

    async def texts(self, who: Resident | None, corpus: str, query: str = "secret") -> list[str]:
        """The texts that a query finds; none where there is no such corpus."""
        try:
            found = await self.call(who, "rag.query@1.0", {"corpus": corpus}, query=query)
        except HearthNetError as error:
            return [] if error.code == "not_found" else [error.message]
        return sorted(chunk["text"] for chunk in found["chunks"])

    async def corpora(self, who: Resident | None) -> dict[str, int]:
        """The listed corpora but the starter's, with the number of their documents."""
        listed = (await self.call(who, "rag.list_corpora@1.0", {}))["corpora"]
        return {one["name"]: one["docs"] for one in listed if one["name"] != "system"}


@contextlib.asynccontextmanager
async def at_home(mesh: Mesh) -> AsyncIterator[Home]:
    rag, tasks = RagService(), list[asyncio.Task[None]]()
    async with mesh.hosting(rag) as host, mesh.hosting(MeshService()), await mesh.bus() as bus:
        rag.on_offers_changed(lambda: tasks.append(asyncio.create_task(host.refresh())))
        people = (resident(mesh.identity, bus, name) for name in ("ada", "ben"))
        yield Home(mesh, rag, bus, *people)
        await asyncio.gather(*tasks)


async def refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    return caught.value


@pytest.mark.req("PERSON-60", "ATTACK-68")
async def test_each_person_has_corpora_that_nobody_else_sees(mesh: Mesh) -> None:
    async with at_home(mesh) as home:
        everybody = (None, home.ada, home.ben)
        for number, who in enumerate(everybody):
            await home.add(who, "notes", f"secret {number}")
        await home.add(home.ada, "diary", "secret diary of Ada")
        for number, who in enumerate(everybody):
            assert await home.texts(who, "notes") == [f"secret {number}"]
            documents = await home.call(who, "rag.list_documents@1.0", NOTES)
            assert [one["title"] for one in documents["documents"]] == [f"secret {number}"]
        assert await home.corpora(home.ada) == {"notes": 1, "diary": 1}
        for who in (None, home.ben):
            assert await home.corpora(who) == {"notes": 1}
            assert await home.texts(who, "diary") == []
        assert "diary" not in str(home.rag.note)
        assert "diary" not in str([view.params for view in await home.bus.offers()])


@pytest.mark.req("PERSON-60", "ATTACK-68")
async def test_a_corpus_of_another_person_is_answered_as_none(mesh: Mesh) -> None:
    async with at_home(mesh) as home:
        cid = await home.add(home.ada, "diary", "secret")
        calls: dict[str, dict[str, Any]] = {
            "rag.query@1.0": {"query": "secret"},
            "rag.list_documents@1.0": {},
            "rag.progress@1.0": {"doc_cid": cid},
            "rag.remove@1.0": {"doc_cid": cid},
            "rag.share@1.0": {"shared": True},
        }
        for capability, given in calls.items():
            for who in (None, home.ben):
                answers = []
                for name in ("diary", "zebra"):
                    try:
                        answer = str(await home.call(who, capability, {"corpus": name}, **given))
                    except HearthNetError as error:
                        answer = str(error.to_body())
                    answers.append(answer.replace(name, "NAME"))
                assert answers[0] == answers[1], capability


@pytest.mark.req("PERSON-60")
async def test_a_corpus_is_shared_by_its_person_alone(mesh: Mesh) -> None:
    async with at_home(mesh) as home, await mesh.guest_bus() as member:
        await home.add(None, "notes", "secret of the owner")
        cid = await home.add(home.ada, "notes", "secret of Ada")
        await home.add(home.ada, "recipes", "secret soup")

        async def found(corpus: str) -> list[str]:
            try:
                reply = await member.call(
                    "rag.query@1.0", {"params": {"corpus": corpus}, "input": {"query": "secret"}}
                )
            except HearthNetError as error:
                return [] if error.code == "not_found" else [error.message]
            return [chunk["text"] for chunk in reply.output["chunks"]]

        await home.ada.call("rag.share@1.0", {"corpus": "recipes"}, shared=True)
        await wait_for(lambda: found("recipes"), what="the shared corpus")
        assert await home.texts(None, "recipes") == await home.texts(home.ben, "recipes") == ["secret soup"]
        assert home.rag.note is not None
        assert "recipes" not in home.rag.note
        # Nobody else decides about it, or puts into it what they take for a corpus of their own.
        for who in (None, home.ben):
            error = await refusal(home.call(who, "rag.share@1.0", {"corpus": "recipes"}, shared=False))
            assert error.code == "unauthorized"
            error = await refusal(home.call(who, "rag.ingest@1.0", {"corpus": "recipes"}, doc_cid=cid))
            assert error.code == "unauthorized"
        # A name may stand for a private corpus of the owner and a shared one of Ada.
        await home.ada.call("rag.share@1.0", NOTES, shared=True)
        assert await wait_for(lambda: found("notes"), what="Ada's notes") == ["secret of Ada"]
        assert await home.texts(None, "notes") == ["secret of the owner"]
        body: dict[str, Any] = {"params": {}, "input": {"sql": "select * from documents"}}
        shown = await member.call("mesh.query@1.0", body, node=mesh.identity.node_id)
        assert "of the owner" not in str(shown.output)
        # Of two shared ones a member could not tell which is meant.
        body = {"params": NOTES, "input": {"shared": True}}
        error = await refusal(home.bus.call("rag.share@1.0", body))
        assert "another shared corpus" in error.message
        await home.ada.call("rag.share@1.0", NOTES, shared=False)
        assert await found("notes") == []
        error = await refusal(home.ada.call("rag.share@1.0", {"corpus": "system"}, shared=False))
        assert error.code == "unauthorized"


@pytest.mark.req("PERSON-60")
async def test_a_person_removes_and_keeps_their_own_documents(mesh: Mesh) -> None:
    async with at_home(mesh) as home:
        cid = await home.add(home.ada, "notes", "secret")
        await home.add(home.ben, "notes", "secret of Ben")
        assert (await refusal(home.ben.call("rag.remove@1.0", NOTES, doc_cid=cid))).code == "not_found"
        assert (await home.ada.call("rag.progress@1.0", NOTES, doc_cid=cid))["state"] == "there"
        assert (await home.ada.call("rag.remove@1.0", NOTES, doc_cid=cid))["chunks_removed"] == 1
        assert await home.corpora(home.ada) == {}
        assert await home.texts(home.ben, "notes") == ["secret of Ben"]
    # The journal knows whose each document is, also where the index is lost.
    (mesh.home.service("rag") / FILE).write_bytes(b"broken" * 1000)
    async with at_home(mesh) as home:
        again = Resident(mesh.identity, home.bus, "ben", Identity.generate())
        assert await home.texts(again, "notes") == ["secret of Ben"]
        assert await home.texts(None, "notes") == await home.texts(home.ada, "notes") == []


@pytest.mark.req("PERSON-60", "ATTACK-68")
async def test_a_client_without_a_key_is_no_person_of_the_home(mesh: Mesh) -> None:
    async with at_home(mesh) as home, await mesh.guest_bus() as member:
        cid = await home.add(home.ada, "diary", "secret")
        await home.add(None, "notes", "secret notes")
        keyless = Resident(mesh.identity, home.bus, "ada")
        assert await home.texts(keyless, "diary") == []
        assert (
            await refusal(keyless.call("rag.ingest@1.0", {"corpus": "new"}, doc_cid=cid))
        ).code == "not_found"
        scope = Scope(("rag.query", "rag.ingest", "rag.share"), {"corpus": ["notes"]})
        let_in = resident(mesh.identity, home.bus, "eve", scope)
        assert await home.texts(let_in, "notes") == ["secret notes"]
        error = await refusal(let_in.call("rag.share@1.0", NOTES, shared=True))
        assert error.code == "unauthorized"
        # Another home's word about its guest of that name, and the node's about a guest who is elsewhere.
        for issuer in (member.peer.identity, mesh.identity):
            stranger = Resident(issuer, member, "ada", Identity.generate())
            stranger.provider = mesh.identity.node_id
            assert await home.texts(stranger, "diary") == []


@pytest.mark.req("PERSON-60")
async def test_what_is_shared_meanwhile_gets_no_document(mesh: Mesh) -> None:
    async with at_home(mesh) as home:
        await home.add(home.ada, "recipes", "secret soup")
        async with await mesh.store() as store:
            cid = await store.blobs.put([b"private bread"], Hold(by=home.ben.principal))
        read = home.rag._read

        async def reading(*given: Any) -> bytes:
            data = await read(*given)
            await home.ada.call("rag.share@1.0", {"corpus": "recipes"}, shared=True)
            return data

        home.rag._read = reading  # type: ignore[method-assign, assignment]
        error = await refusal(home.ben.call("rag.ingest@1.0", {"corpus": "recipes"}, doc_cid=cid))
        assert error.code == "unauthorized"
        assert await home.texts(None, "recipes", "bread") == []


async def recipes_and_notes(home: Home) -> str:
    """Ada and the owner have a corpus `recipes`, Ada's is shared; she has private notes, too.

    Returns the CID of what she shared.
    """
    await home.add(None, "recipes", "secret bread")
    cid = await home.add(home.ada, "recipes", "secret soup")
    await home.ada.call("rag.share@1.0", {"corpus": "recipes"}, shared=True)
    await home.add(home.ada, "notes", "secret of Ada")
    await home.add(home.ben, "notes", "secret of Ben")
    return cid


@pytest.mark.req("PERSON-80", "ATTACK-115")
async def test_corpora_of_a_removed_person_go_or_are_the_owners(mesh: Mesh) -> None:
    async with at_home(mesh) as home:
        cid = await recipes_and_notes(home)
        listed = await home.call(None, "rag.list_person@1.0", {}, person="ada")
        assert (listed["private"]["corpora"], listed["private"]["docs"]) == (1, 1)
        assert [(one["name"], one["docs"]) for one in listed["shared"]] == [("recipes", 1)]
        assert "notes" not in str(listed)
        for who in (home.ada, home.ben):
            error = await refusal(who.call("rag.list_person@1.0", {}, person="ada"))
            assert error.code in ("unauthorized", "trust_insufficient")
        done = await home.call(None, "rag.remove_person@1.0", {}, person="ada")
        assert done == {"documents_removed": 1, "corpora": ["recipes-ada"]}
        assert await home.texts(None, "recipes-ada") == ["secret soup"]
        assert await home.texts(None, "recipes") == ["secret bread"]
        assert await home.texts(None, "notes") == await home.texts(home.ben, "recipes-ada") == []
        assert await home.texts(home.ben, "notes") == ["secret of Ben"]
        assert "recipes-ada" in str(home.rag.note)
        again = await home.call(None, "rag.remove_person@1.0", {}, person="ada")
        assert again == {"documents_removed": 0, "corpora": []}
        # The file is the home's now, so that the index is made anew from it after her files are gone.
        async with await mesh.store() as store:
            assert await store.blobs.release(cid, {home.ada.principal}) is False
    (mesh.home.service("rag") / FILE).write_bytes(b"broken" * 1000)
    async with at_home(mesh) as home:
        assert await home.texts(None, "recipes-ada") == ["secret soup"]
        assert await home.corpora(None) == {"recipes": 1, "recipes-ada": 1}


@pytest.mark.req("PERSON-80", "ATTACK-115")
async def test_private_corpora_that_are_kept_are_nobodys_to_read(mesh: Mesh) -> None:
    async with at_home(mesh) as home:
        await recipes_and_notes(home)
        kept = {"keep_private": True, "keep_shared": True}
        done = await home.call(None, "rag.remove_person@1.0", {}, person="ada", **kept)
        assert done == {"documents_removed": 0, "corpora": ["recipes-ada"]}
        assert await home.texts(home.ben, "recipes-ada") == ["secret soup"]
        assert "of Ada" not in str([await home.texts(who, "notes") for who in (None, home.ben)])
        left = await home.call(None, "rag.list_person@1.0", {}, person="ada")
        assert (left["private"]["docs"], left["shared"]) == (1, [])
        done = await home.call(None, "rag.remove_person@1.0", {}, person="ada")
        assert done["documents_removed"] == 1


@pytest.mark.req("PERSON-80", "ATTACK-115")
async def test_a_document_that_is_being_read_is_not_added_once_its_person_is_removed(mesh: Mesh) -> None:
    async with at_home(mesh) as home:
        await recipes_and_notes(home)
        async with await mesh.store() as store:
            cid = await store.blobs.put([b"private bread"], Hold(by=home.ada.principal))
        read = home.rag._read

        async def reading(*given: Any) -> bytes:
            data = await read(*given)
            await home.call(None, "rag.remove_person@1.0", {}, person="ada")
            return data

        home.rag._read = reading  # type: ignore[method-assign, assignment]
        error = await refusal(home.ada.call("rag.ingest@1.0", {"corpus": "notes"}, doc_cid=cid))
        assert error.code == "unauthorized"
        left = await home.call(None, "rag.list_person@1.0", {}, person="ada")
        assert left["private"]["docs"] == 0


@pytest.mark.req("PERSON-81")
async def test_a_corpus_whose_handing_over_was_cut_off_is_whole(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_given: str) -> None:
        raise HearthNetError("partition", "the service ended")

    async with at_home(mesh) as home:
        await recipes_and_notes(home)
        await home.add(None, "recipes-ada", "an older corpus of that name")
        with monkeypatch.context() as patch:
            patch.setattr(home.rag._library.index, "rename", killed)
            await refusal(home.call(None, "rag.remove_person@1.0", {}, person="ada"))
    async with at_home(mesh) as home:
        assert await home.corpora(None) == {"recipes": 1, "recipes-ada": 1, "recipes-ada-2": 1}
        assert await home.texts(None, "recipes-ada-2") == ["secret soup"]
        listed = await home.call(None, "rag.list_person@1.0", {}, person="ada")
        assert (listed["private"]["corpora"], listed["shared"]) == (0, [])
