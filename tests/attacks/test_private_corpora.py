"""A neighbour who wants what a home has ingested and not shared, or wants to know that it is there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from tests.attacks.attacker import Attacker
from tests.attacks.conftest import Victim
from tests.helpers.full_house import UNLIMITED
from tests.helpers.neighbourhood import settle_in
from tests.helpers.served import served
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for

TAXES = b"# Tax return\n\nThe income of the household was 31337 crowns.\n"
CID = content_hash(TAXES)
PRIVATE, UNKNOWN = "taxes", "zebra"
SIGNED = {"rag.ingest@1.0", "rag.remove@1.0", "rag.share@1.0"}
CALLS: dict[str, dict[str, Any]] = {
    "rag.query@1.0": {"query": "income of the household"},
    "rag.list_documents@1.0": {},
    "rag.progress@1.0": {"doc_cid": CID},
    "rag.ingest@1.0": {"doc_cid": CID},
    "rag.remove@1.0": {"doc_cid": CID},
    "rag.share@1.0": {"shared": True},
    "rag.manifest@1.0": {},
    "rag.read_document@1.0": {"doc_cid": CID, "offset": 0, "length": 1_000},
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A home whose owner has ingested a tax return where nobody could be asked, and has said no more."""
    folder: Path = tmp_path_factory.mktemp("house")
    neighbourhood = settle_in(
        folder, "mallory", "tess", services=("auth", "rag", "file", "mesh"), settings=UNLIMITED
    )
    shell = Shell(neighbourhood.founder.path)
    paper = folder / "return.md"
    paper.write_bytes(TAXES)
    with shell.node() as state:
        assert shell.run("ingest", paper, "--corpus", PRIVATE).returncode == 0
        assert shell.run("members", "promote", "tess", "trusted").returncode == 0
        key = load_identity(neighbourhood.founder.device_key)
        yield Victim(neighbourhood.founder, str(state["server"]["url"]), key, neighbourhood)


@pytest_asyncio.fixture
async def mallory(house: Victim) -> AsyncIterator[Attacker]:
    """A plain member."""
    attacker = await house.attacker()
    yield attacker
    await attacker.bus.close()


@pytest_asyncio.fixture
async def tess(house: Victim) -> AsyncIterator[Attacker]:
    """A trusted member."""
    attacker = await house.attacker("tess")
    yield attacker
    await attacker.bus.close()


async def answer(attacker: Attacker, view: OfferView, capability: str, corpus: str) -> str:
    """What a crafted call to the process in `view` is answered, without what names corpus, call and time."""
    body = {"params": {"corpus": corpus}, "input": CALLS[capability]}
    frames = await attacker._crafted(view, capability, body, signed=capability in SIGNED)
    text = " ".join(repr((frame.header.event, frame.body)) for frame in frames)
    return re.sub(r'"ms":\d+', '"ms":0', text.replace(corpus, "NAME"))


async def told(work: Any) -> str:
    """The error that the library raises for an honest call, or its output."""
    try:
        return str((await work).output)
    except HearthNetError as error:
        return str(error.to_body())


async def found(attacker: Attacker) -> list[str]:
    """The texts that an honest query of the corpus finds."""
    body = {"params": {"corpus": PRIVATE}, "input": CALLS["rag.query@1.0"]}
    try:
        chunks = (await attacker.bus.call("rag.query@1.0", body)).output["chunks"]
    except HearthNetError as error:
        return [] if error.code == "not_found" else [error.message]
    return [chunk["text"] for chunk in chunks]


async def everything_seen(attacker: Attacker, node: str) -> str:
    """All that listings, searches, offers and stored content show of the home."""

    async def ask(capability: str, params: dict[str, Any], **fields: Any) -> str:
        body = {"params": params, "input": fields}
        return await told(attacker.bus.call(capability, body, node=node))

    seen = [str([view.params for view in await attacker.bus.offers()])]
    seen.append(await ask("rag.list_corpora@1.0", {}))
    seen.append(await ask("rag.list_documents@1.0", {"corpus": "system"}))
    seen.append(await ask("rag.query@1.0", {"corpus": "system"}, query="income household crowns 31337", k=20))
    seen.append(await ask("mesh.search@1.0", {}, query="taxes return"))
    seen.append(await ask("mesh.describe@1.0", {}, name="tax"))
    for view in ("offers", "corpora", "documents"):
        seen.append(await ask("mesh.query@1.0", {}, sql=f"select * from {view}"))  # noqa: PERF401
    seen.append(await ask("file.list@1.0", {}))
    return "\n".join(seen)


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-46")
@pytest.mark.parametrize("capability", sorted(CALLS))
@pytest.mark.parametrize("name", ["mallory", "tess"])
async def test_a_private_corpus_is_answered_as_none(
    house: Victim, mallory: Attacker, tess: Attacker, capability: str, name: str
) -> None:
    attacker = {"mallory": mallory, "tess": tess}[name]
    view = await attacker.target("rag.list_corpora@1.0", house.node)
    private = await answer(attacker, view, capability, PRIVATE)
    unknown = await answer(attacker, view, capability, UNKNOWN)
    assert private == unknown
    assert "error" in private or capability == "rag.progress@1.0"
    body = {"params": {"corpus": PRIVATE}, "input": CALLS[capability]}
    other = {"params": {"corpus": UNKNOWN}, "input": CALLS[capability]}
    honest = [
        (await told(attacker.bus.call(capability, one, node=house.node))).replace(corpus, "NAME")
        for one, corpus in ((body, PRIVATE), (other, UNKNOWN))
    ]
    assert honest[0] == honest[1]


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-46")
async def test_nothing_shows_a_private_corpus(house: Victim, mallory: Attacker, tess: Attacker) -> None:
    for attacker in (mallory, tess):
        seen = await everything_seen(attacker, house.node)
        assert "system" in seen
        assert not any(word in seen for word in (PRIVATE, "Tax return", "31337", CID))


@pytest.mark.asyncio
@pytest.mark.req("ATTACK-46")
async def test_sharing_opens_a_corpus_and_unsharing_closes_it(
    house: Victim, mallory: Attacker, tess: Attacker, tmp_path: Path
) -> None:
    shell = Shell(house.home.path)
    assert await found(mallory) == []
    assert (await asyncio.to_thread(shell.json, "corpus", "share", PRIVATE, "--json"))["shared"] is True
    [text] = await wait_for(lambda: found(mallory), what="the shared corpus")
    assert "31337" in text
    views = await mallory.bus.offers("rag.query@1.0")
    cached = next(view for view in views if view.params["corpus"] == PRIVATE)
    # The passages are shared, the file is not.
    read = {"params": {}, "input": {"cid": CID}}
    assert "not_found" in await told(mallory.bus.call("file.read@1.0", read, node=house.node))
    # Nor is another file of the home, by way of the corpus to which a trusted member may add.
    (tmp_path / "diary.md").write_bytes(b"# Diary\n\nSecret.\n")
    put = await asyncio.to_thread(shell.json, "file", "put", str(tmp_path / "diary.md"), "--json")
    answers = []
    for cid in (put["cid"], content_hash(b"nothing")):
        body = {"params": {"corpus": PRIVATE}, "input": {"doc_cid": cid}}
        said = await told(tess.bus.call("rag.ingest@1.0", body, node=house.node))
        answers.append(said.replace(cid[:23], ""))
    assert answers[0] == answers[1]
    assert "keeps no blob" in answers[0]
    await asyncio.to_thread(shell.json, "corpus", "unshare", PRIVATE, "--json")
    # At once, also for a process that still has the offer.
    assert "31337" not in await answer(mallory, cached, "rag.query@1.0", PRIVATE)

    async def closed() -> bool:
        views = await mallory.bus.offers("rag.query@1.0")
        return all(view.params["corpus"] != PRIVATE for view in views)

    await wait_for(closed, what="the offer to be withdrawn")
    assert await answer(mallory, cached, "rag.query@1.0", PRIVATE) == await answer(
        mallory, cached, "rag.query@1.0", UNKNOWN
    )
    assert await found(mallory) == []


@pytest.mark.req("ATTACK-46", "RAG-54")
def test_corpora_of_an_older_home_are_private_until_decided(tmp_path: Path) -> None:
    neighbourhood = settle_in(tmp_path, "mallory", services=("auth", "rag", "file"), settings=UNLIMITED)
    home, shell = neighbourhood.founder, Shell(neighbourhood.founder.path)
    paper = tmp_path / "return.md"
    paper.write_bytes(TAXES)
    with shell.node():
        assert shell.run("ingest", paper, "--corpus", PRIVATE, "--share").returncode == 0
    # What a home of an older version lacks is the answers.
    (home.service("rag") / "sharing.json").unlink()
    command = f"hearthnet corpus share {PRIVATE}"
    with shell.node() as state:
        assert asyncio.run(_visit(neighbourhood.home("mallory"), str(state["server"]["url"]))) == []
        notes = [service["note"] for service in shell.json("status", "--json")["services"]]
        assert any(note and command in note for note in notes)
        # `up` shows it in a table, in lines of its own.
        shown = "".join(home.path.with_suffix(".log").read_text().split())
        assert "privateuntilyoudecide:taxes" in shown
        assert shell.run("corpus", "unshare", PRIVATE).returncode == 0
        notes = [service["note"] for service in shell.json("status", "--json")["services"]]
        assert not any(note and command in note for note in notes)


async def _visit(home: Any, url: str) -> list[str]:
    attacker = Attacker(await Bus.join(home, url, "mallory"))
    try:
        return await found(attacker)
    finally:
        await attacker.bus.close()


@pytest.mark.req("ATTACK-46", "RAG-54")
def test_clients_of_the_gateway_search_what_they_were_let_into(tmp_path: Path) -> None:
    paper = tmp_path / "return.md"
    paper.write_bytes(TAXES)
    added = {
        "a guest": (),
        "a program": ("--scope", "rag.query", "--scope", "rag.list_corpora"),
        "of another corpus": ("--corpus", "recipes"),
        "of the corpus": ("--corpus", PRIVATE),
        "of the owner": ("--guest", "owner"),
    }
    with served(tmp_path, "rag", "file") as node:
        assert node.shell.run("ingest", paper, "--corpus", PRIVATE).returncode == 0
        for number, (name, options) in enumerate(added.items()):
            made = node.shell.json("clients", "add", f"client-{number}", *options, "--json")
            with node.http(made["secret"]) as http:
                seen, answers = _seen(http), [_asked(http, corpus) for corpus in (PRIVATE, UNKNOWN)]
            if name in {"of the corpus", "of the owner"}:
                assert "31337" in answers[0], name
                assert PRIVATE in seen, name
            else:
                assert answers[0] == answers[1], name
                assert not any(word in seen for word in (PRIVATE, "Tax return", "31337")), name


def _asked(http: httpx2.Client, corpus: str) -> str:
    body = {"params": {"corpus": corpus}, "input": CALLS["rag.query@1.0"]}
    answer = http.post("/v1/call/rag.query", json=body)
    return f"{answer.status_code} {answer.text}".replace(corpus, "NAME")


def _seen(http: httpx2.Client) -> str:
    listed = http.get("/v1/capabilities", params={"name": "rag.query"}).text
    return listed + http.post("/v1/call/rag.list_corpora", json={"params": {}, "input": {}}).text
