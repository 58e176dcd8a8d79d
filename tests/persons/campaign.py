"""Questions by all of them: nothing planted for one reaches another's answer, list, prompt or trace."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.helpers.scripted_model import Say
from tests.persons.home import PEOPLE, Home, Party, at_home

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
                    await self._ask(home)
                    if number % 500 == 0 and number:
                        self._say(f"{number} questions left")

            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(ask())
        self.totals.seconds = round(time.monotonic() - began, 1)
        return self.totals

    async def _ask(self, home: Home) -> None:
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
        }
        kind = home.random.choice(list(kinds))
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

    def _shown(self, home: Home, question: str) -> str:
        """What the model was shown for that question, of which each is asked once."""
        requests: list[dict[str, Any]] = home.house.model.requests
        shown = [text for text in map(json.dumps, requests) if question in text]
        self.totals.prompts += len(shown)
        home.house.model.requests = [one for one in requests if question not in json.dumps(one)]
        return "".join(shown)
