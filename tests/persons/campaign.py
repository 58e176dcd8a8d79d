"""Questions by all: what is planted for one reaches no other's answer, list, prompt, trace or backup."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.backup import reader
from hearthnet.bus.session.keyring import create_identity
from hearthnet.cli.workflows import backup_flow
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home as HomeFolder
from hearthnet.trust.keys import Identity
from tests.helpers.scripted_model import Say
from tests.persons.home import OWNER, PEOPLE, Home, Party, at_home, facts_below

AT_ONCE: Final = 4
_LISTED: Final = ("rag.list_corpora@1.0", "file.list@1.0", "mesh.neighbours@1.0")
_VIEWS: Final = ("offers", "corpora", "documents", "calls", "runs")
_SQL: Final = "select * from {}"


class Totals(msgspec.Struct):
    """What a campaign did and found."""

    planted: int = 0
    questions: int = 0
    answered: int = 0
    found: int = 0
    """Answers with facts of who asked, or shared ones, that the question did not name."""
    prompts: int = 0
    steps: int = 0
    """Steps of traces that the owner was shown."""
    restored: int = 0
    """Facts in the home that the owner restored from its backup, which nobody else could."""
    seconds: float = 0.0
    kinds: Counter[str] = Counter()
    findings: list[str] = []


class Campaign:
    """One home, its facts, and so many questions, drawn by `seed`."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._seed = seed
        self._say = say
        self.totals = Totals(kinds=Counter(), findings=[])

    async def run(self, questions: int, *, documents: int = 9, files: int = 10, talks: int = 4) -> Totals:
        """Plant, ask, and return what was found."""
        began = time.monotonic()
        async with at_home(self._folder, self._seed) as home:
            await home.plant(documents, files, talks)
            self.totals.planted = home.planted
            self._say(f"{home.planted} facts planted in {time.monotonic() - began:.0f} s")
            numbers = list(range(questions))

            async def ask() -> None:
                while numbers:
                    number = numbers.pop()
                    await self._ask(home, number)
                    if number % 500 == 0 and number:
                        self._say(f"{number} questions left")

            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(ask())
            await self._trace(home, home.parties[OWNER], home.parties[OWNER])
        self._back_up(home)
        self.totals.seconds = round(time.monotonic() - began, 1)
        return self.totals

    async def _ask(self, home: Home, number: int) -> None:
        party = home.random.choice(list(home.parties.values()))
        other = home.parties[home.random.choice(PEOPLE)]
        kinds: dict[str, Callable[[Home, Party, Party], Awaitable[tuple[str, str]]]] = {
            "search": self._search,
            "list": self._list,
            "mesh": self._mesh,
            "read": self._read,
            "change": self._change,
            "gateway": self._gateway,
            "thread": self._thread,
            "ask": self._prompt,
            "trace": self._trace,
        }
        kind = list(kinds)[number % len(kinds)]
        question, answer = await kinds[kind](home, party, other)
        self.totals.questions += 1
        self.totals.kinds[kind] += 1
        self.totals.answered += "'error'" not in answer and '"error"' not in answer
        self.totals.found += home.has_found(party, answer, question)
        if leaked := home.leaked(party, answer, question):
            self.totals.findings.append(f"{kind} by {party.name}, {question[:80]}: {sorted(leaked)[:3]}")

    async def _search(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        corpus = home.random.choice(other.corpora)
        words = " ".join(home.random.sample(sorted(other.facts), 2))
        answer = await party.call("rag.query@1.0", {"corpus": corpus}, query=f"secret day {words}", k=20)
        return f"{corpus} {words}", answer

    async def _list(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        if home.random.random() < 0.4:
            corpus = home.random.choice(other.corpora)
            return corpus, await party.call("rag.list_documents@1.0", {"corpus": corpus})
        return "", await party.call(home.random.choice(_LISTED), {})

    async def _mesh(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        which, fact = home.random.random(), home.random.choice(sorted(other.facts))
        if which < 0.25:
            return fact, await party.call("mesh.search@1.0", {}, query=f"secret {fact}")
        if which < 0.4:
            name = home.random.choice(other.corpora)
            return name, await party.call("mesh.describe@1.0", {}, name=name)
        return "", await party.call("mesh.query@1.0", {}, sql=_SQL.format(home.random.choice(_VIEWS)))

    async def _read(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        cid = home.random.choice(other.cids)
        if home.random.random() < 0.5:
            return cid, await party.call("file.read@1.0", {}, cid=cid)
        corpus, doc = home.random.choice(other.documents)
        return corpus, await party.call("rag.progress@1.0", {"corpus": corpus}, doc_cid=doc)

    async def _change(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        """Take another's document into a corpus of one's own, remove or share what is another's."""
        corpus, cid = home.random.choice(other.documents)
        if other is party:
            return "", ""
        verb = home.random.choice(("ingest", "remove", "share", "file"))
        if verb == "ingest":
            answer = await party.call("rag.ingest@1.0", {"corpus": "taken"}, doc_cid=cid)
            found = await party.call("rag.query@1.0", {"corpus": "taken"}, query="secret word of the day")
            return "", answer + found
        if verb == "remove":
            return corpus, await party.call("rag.remove@1.0", {"corpus": corpus}, doc_cid=cid)
        if verb == "share" and corpus != "notes":
            return corpus, await party.call("rag.share@1.0", {"corpus": corpus}, shared=True)
        return "", await party.call("file.remove@1.0", {}, cid=cid)

    async def _gateway(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        paths = ["/v1/me", "/v1/capabilities?name=rag.query", "/v1/runs"]
        if other.runs:
            paths.append(f"/v1/runs/{home.random.choice(other.runs)}")
        answer = (await party.http.get(home.random.choice(paths))).text
        return " ".join(party.said), answer  # read afterwards: another question may have begun meanwhile

    async def _thread(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        """Go on with a conversation of another: what the model is shown counts as well."""
        question = f"go on {home.fact(party)}"
        thread = home.random.choice(other.threads)
        messages = [{"role": "user", "content": question}]
        answer = await party.call("llm.chat@2.0", {}, messages=messages, thread_id=thread)
        return question, answer + self._shown(home, question)

    async def _prompt(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        """A question at the gateway, whose model searches a corpus of another."""
        fact, corpus = home.random.choice(sorted(other.facts)), home.random.choice(other.corpora)
        question = f"what is {fact} {home.fact(party)}"
        search = ("search_corpus", {"query": f"secret day {fact}", "corpus": corpus})
        home.house.model.turns[question] = [Say("", calls=(search,)), Say("That is all.")]
        party.said.append(corpus)  # its model says the name, and the run shows what it said
        answer = await home.talk(party, question, thread=False)
        return f"{question} {corpus}", answer + self._shown(home, question)

    async def _trace(self, home: Home, party: Party, other: Party) -> tuple[str, str]:
        """Ask for the steps of the process, which the owner alone is shown: of all calls, without content."""
        limit = 1 + home.random.randrange(1000)
        answer = await party.call("node.trace.list@1.0", {}, limit=limit)
        steps = answer.count("'bytes_in'")
        if party.name == OWNER:
            self.totals.steps += steps
        elif steps:
            self.totals.findings.append(f"trace by {party.name}: {steps} steps of calls by others")
        return "", answer

    def _back_up(self, home: Home) -> None:
        """Look for facts in a backup of the home, and open it with the owner's key and with another one."""
        place = home.house.mesh.home
        recovery = create_identity(place.recovery_key)
        folder, other, own = (self._folder / name for name in ("backups", "other", "own"))
        folder.mkdir()
        backup_flow.create(place, folder, 0, _ignore)
        planted = set[str]().union(*(one.facts for one in home.parties.values()))
        if found := facts_below(folder) & planted:
            self.totals.findings.append(f"backup: {sorted(found)[:3]}")
        try:
            reader.restore(reader.choose(folder), Identity.generate(), HomeFolder(other), _ignore)
        except HearthNetError:
            pass
        else:
            self.totals.findings.append("backup: another person's key opened it")
        if other.exists():
            self.totals.findings.append(f"backup: {sorted(other.iterdir())[:3]} is left of a refused restore")
        reader.restore(reader.choose(folder), recovery, HomeFolder(own), _ignore)
        self.totals.restored = len(facts_below(own) & planted)

    def _shown(self, home: Home, question: str) -> str:
        """What the model was shown for that question, of which each is asked once."""
        requests: list[dict[str, Any]] = home.house.model.requests
        shown = [text for text in map(json.dumps, requests) if question in text]
        self.totals.prompts += len(shown)
        home.house.model.requests = [one for one in requests if question not in json.dumps(one)]
        return "".join(shown)


def _ignore(_done: int, _total: int) -> None:
    """Progress that nobody sees."""
