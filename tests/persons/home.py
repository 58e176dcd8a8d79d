"""A home with four people and two guests, and the facts that are planted for them."""

from __future__ import annotations

import contextlib
import random
import re
import string
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2

from hearthnet.bus.blobs.metadata import Hold
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet_file import FileService
from hearthnet_mesh import MeshService
from hearthnet_rag import RagService
from tests.helpers.full_house import UNLIMITED
from tests.helpers.gateway import Guest, House, open_house
from tests.helpers.residents import Resident

OWNER: Final = "owner"
PEOPLE: Final = (OWNER, "ada", "ben", "cleo")
GUESTS: Final = ("visitor", "program")
_FACT: Final = re.compile(r"zq[a-z]{14}")
FACTS_A_DOCUMENT: Final = 12


@dataclass
class Party:
    """Somebody who asks: the owner by the node's key and by a page, others by their clients alone."""

    name: str
    bus: Bus
    guest: Guest
    resident: Resident
    http: httpx2.AsyncClient
    facts: set[str] = field(default_factory=set)
    corpora: list[str] = field(default_factory=list)
    cids: list[str] = field(default_factory=list)
    documents: list[tuple[str, str]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """Its questions at the gateway, which its own runs show again."""

    async def call(self, capability: str, params: dict[str, Any], /, **given: Any) -> str:
        """All that a call answers, as text: its output, or its error."""
        try:
            if self.name == OWNER:
                body = {"params": params, "input": given}
                node = self.bus.peer.node_id
                return str((await self.bus.call(capability, body, node=node)).output)
            return str(await self.resident.call(capability, params, **given))
        except HearthNetError as error:
            return str(error.to_body())


def facts_below(folder: Path) -> set[str]:
    """All words in the files below `folder` that have the form of a fact."""
    files = (path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return {fact for data in files for fact in _FACT.findall(data.decode("latin-1"))}


class Home:
    """The house with its parties, and the facts of all."""

    def __init__(self, house: House, seed: int) -> None:
        self.house = house
        self.random = random.Random(seed)
        self.parties: dict[str, Party] = {}
        self.shared: set[str] = set()
        """What its person has shared, so that everybody may see it."""

    def fact(self, party: Party) -> str:
        """A new fact of that party: a word that stands nowhere else."""
        word = "zq" + "".join(self.random.choices(string.ascii_lowercase, k=14))
        party.facts.add(word)
        return word

    @property
    def planted(self) -> int:
        """How many facts there are."""
        return sum(len(one.facts) for one in self.parties.values())

    def leaked(self, party: Party, text: str, question: str = "") -> set[str]:
        """The facts in `text` that are not for that party, and that its question does not name."""
        allowed = party.facts | self.shared | set(_FACT.findall(question))
        planted = set[str]().union(*(one.facts for one in self.parties.values()))
        return set(_FACT.findall(text)) & planted - allowed

    def has_found(self, party: Party, text: str, question: str) -> bool:
        """Return whether `text` has facts that the party may know, beside those that it asked with."""
        allowed = party.facts | self.shared
        return not allowed.isdisjoint(set(_FACT.findall(text)) - set(_FACT.findall(question)))

    async def plant(self, documents: int, files: int, talks: int) -> None:
        """Give each of the people so many documents, files and conversations; ada and the owner share one."""
        for name in PEOPLE:
            party = self.parties[name]
            own = ["notes", f"private-{self.fact(party)}"]
            party.corpora += own
            for number in range(documents):
                await self._document(party, own[number % 2])
            for _ in range(files):
                await self._stored(party, f"A letter. {self.fact(party)}", self.fact(party))
            for _ in range(talks):
                await self.talk(party, f"Remember {self.fact(party)}.")
        for name in (OWNER, "ada"):
            party = self.parties[name]
            corpus = f"open-{name}"
            before = set(party.facts)
            await self._document(party, corpus)
            party.corpora.append(corpus)
            await party.call("rag.share@1.0", {"corpus": corpus}, shared=True)
            self.shared |= party.facts - before

    async def _document(self, party: Party, corpus: str) -> None:
        facts = [self.fact(party) for _ in range(FACTS_A_DOCUMENT)]
        text = f"# {facts[0]}\n\n" + "\n\n".join(f"The secret word of the day is {one}." for one in facts[1:])
        cid = await self._stored(party, text, facts[0])
        answer = await party.call(
            "rag.ingest@1.0", {"corpus": corpus}, doc_cid=cid, metadata={"path": f"{facts[0]}.md"}
        )
        if "chunks_indexed" not in answer:
            raise RuntimeError(f"{party.name} could not add a document: {answer}")
        party.documents.append((corpus, cid))

    async def _stored(self, party: Party, text: str, name: str) -> str:
        by = "" if party.name == OWNER else party.resident.principal
        async with await self.house.mesh.store() as store:
            cid = await store.blobs.put([text.encode()], Hold(by, name=name))
        party.cids.append(cid)
        return cid

    async def talk(self, party: Party, question: str, *, thread: bool = True) -> str:
        """A question at the gateway, with the search as a tool; what the client is answered."""
        given: dict[str, Any] = {
            "messages": [{"role": "user", "content": question}],
            "tools": ["search_corpus"],
        }
        body = {"params": {}, "input": given}
        party.said.append(question)
        envelope = self.house.envelope("llm.chat", body, "2.0", party.guest)
        answer = (await party.http.post("/v1/call", json=envelope)).text
        if found := re.search(r'"run":\s*"([^"]+)"', answer):
            party.runs.append(found[1])
        if thread:
            name = f"talk-{len(party.threads)}-{party.name}"
            party.threads.append(name)
            await party.call("llm.chat@2.0", {}, messages=given["messages"], thread_id=name, thread_length=0)
        return answer


@contextlib.asynccontextmanager
async def at_home(folder: Path, seed: int) -> AsyncIterator[Home]:
    """The home, whose services run in this process over a real server."""
    services = (RagService(), FileService(), MeshService())
    async with open_house(folder, UNLIMITED, more=services) as house, contextlib.AsyncExitStack() as stack:
        home = Home(house, seed)
        for name in (*PEOPLE, *GUESTS):
            guest = house.guest(key=name not in GUESTS, principal=name)
            resident = Resident(house.mesh.identity, house.bus, name, guest.identity)
            http = await stack.enter_async_context(house.http(guest))
            home.parties[name] = Party(name, house.bus, guest, resident, http)
        yield home
