"""The fire drill of docs/operations.md: a disk is lost, and the home is back from its backup."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hearthnet.backup.words import to_words
from hearthnet.bus.session.keyring import create_identity
from hearthnet.core.home import Home
from tests.helpers.family import Browser
from tests.helpers.processes import processes_of
from tests.helpers.scripted_model import NAME, Say, ScriptedModel
from tests.helpers.served import SETTINGS, Served, address
from tests.helpers.shell import READY_SECONDS, Shell
from tests.helpers.waiting import wait_for_sync
from tests.services.mcp.houses import Plain, tool

pytestmark = pytest.mark.e2e
WATER = "experimental.mcp.garden.water"
TEXT = {"text": "the roses"}
DRILL_SECONDS = 300.0
NOTE = "The key of the shed hangs behind the third flower pot.\n"


@dataclass
class House:
    """A home with a garden that its model may water, and a folder for backups."""

    shell: Shell
    model: ScriptedModel
    garden: Plain
    backups: Path
    words: Path

    @contextlib.contextmanager
    def running(self) -> Iterator[Served]:
        """The node, which is killed with all its processes at the end."""
        ready, log = self.shell.home.with_suffix(".ready"), self.shell.home.with_suffix(".log")
        ready.unlink(missing_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [self.shell.program, "up", "--ready-file", ready],
                env=self.shell.environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            wait_for_sync(
                lambda: ready.exists() or process.poll() is not None, READY_SECONDS, "the ready-file"
            )
            assert process.poll() is None, log.read_text()
            node = Served(self.shell, self.model)
            node.url = address(json.loads(ready.read_text()))
            with node.http(node.key("llm.chat")) as http:
                wait_for_sync(lambda: NAME in http.get("/v1/models").text, 60, "the model")
            yield node
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_for_sync(lambda: not processes_of(self.shell.home), what="the end of all processes")

    @property
    def watered(self) -> int:
        return len(self.garden.heard("tools/call"))

    def titles(self) -> list[str]:
        body = json.dumps({"params": {}, "input": {"limit": 100}})
        posts = self.shell.json("call", "market.list", "--body", body, "--json")["output"]["posts"]
        return [post["title"] for post in posts]

    def post(self, title: str) -> dict[str, Any]:
        posted = self.shell.json("market", "post", "--title", title, "--body", "To lend.", "--json")
        assert not posted["waits"]
        return dict(posted)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    garden = Plain(tmp_path / "garden", "garden")
    garden.lists(tool("water"))
    garden.answers(water={"result": {"content": [{"type": "text", "text": "Watered."}]}})
    shell = Shell(tmp_path / "home")
    home = Home(shell.home)
    recovery = create_identity(home.recovery_key)
    words = tmp_path / "words"
    words.write_text(" ".join(to_words(recovery.seed)))
    (tmp_path / "backups").mkdir()
    with ScriptedModel() as model:
        services = '"llm", "auth", "market", "rag", "file", "mcp"'
        text = SETTINGS.format(
            services=services, settings=garden.toml(share=True), llm="", model=model.config
        )
        (shell.home / "hearthnet.toml").write_text(text)
        yield House(shell, model, garden, tmp_path / "backups", words)


@contextlib.contextmanager
def posting(house: House) -> Iterator[None]:
    """Posts one after the other in the block."""
    stop = threading.Event()

    def go_on() -> None:
        number = 0
        while not stop.is_set():
            house.post(f"Load {number}")
            number += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def asked(http: Any, node: Served, name: str, arguments: dict[str, Any], tool_name: str) -> tuple[str, Any]:
    """A run whose model wants to call a tool with effects, and the call that waits."""
    messages = node.ask(Say(calls=((name, arguments),)), Say("Done."))
    body = {"model": NAME, "messages": messages, "hearthnet": {"tools": [tool_name]}}
    answer = http.post("/v1/chat/completions", json=body).json()
    (pending,) = answer["hearthnet"]["pending"]
    return answer["hearthnet"]["run"], pending


def approve(http: Any, run: str, pending: dict[str, Any]) -> Any:
    """The answer after a yes."""
    word = {"call": pending["tool_call_id"], "decision": "approve", "shown": pending["arguments_digest"]}
    said = http.post(f"/v1/runs/{run}/decisions", json=word)
    assert said.status_code == 200, said.text
    body = {"model": NAME, "messages": [{"role": "user", "content": "Go on."}], "hearthnet": {"run": run}}
    done = http.post("/v1/chat/completions", json=body)
    assert done.status_code == 200, done.text
    return done.json()


@dataclass
class Life:
    """What the home had when its backup was made, and what came later."""

    node_id: str
    ladder: str
    secret: str
    water: tuple[str, Any]
    other: tuple[str, Any]
    post: tuple[str, Any]
    backup: dict[str, Any]
    load: list[str]
    family: tuple[Browser, ...]


def family_of(house: House, url: str) -> tuple[Browser, ...]:
    """An adult and a child, with a browser, a conversation and a corpus of one name each."""
    browsers = []
    for name, limits in (("anna", ()), ("ben", ("--child", "--questions", "5"))):
        added = house.shell.json("person", "add", name, *limits, "--json")
        browser = Browser.open(house.shell.home, name, added["url"])
        browser.talk(url, f"What {name} asked")
        asyncio.run(browser.add("notes", f"The secret of {name} is a word."))
        browsers.append(browser)
    return tuple(browsers)


def check_family(house: House, url: str, family: tuple[Browser, ...]) -> None:
    """Each has what they had, and nothing of another one; then one of them is removed."""
    anna, ben = family
    for one, other in ((anna, ben), (ben, anna)):
        me = one.me(url)
        assert me["principal"].endswith(f"/{one.name}")
        assert (me["device"]["added"], me["device"]["key"]) == (True, one.key.node_id)
        assert [device["key"] for device in me["person"]["devices"]] == [one.key.node_id]
        assert me["person"].get("limits", {}).get("questions") == (5 if one is ben else None)
        assert f"What {one.name} asked" in one.talks(url)
        assert f"What {other.name} asked" not in one.talks(url)
        assert asyncio.run(one.texts("notes", "secret")) == [f"The secret of {one.name} is a word."]
    body = json.dumps({"params": {"corpus": "notes"}, "input": {"query": "secret of anna ben", "k": 20}})
    assert "The secret of" not in house.shell.run("call", "rag.query", "--body", body, "--json").stdout
    assert [one["kind"] for one in house.shell.json("person", "list", "--json")] == [
        "owner",
        "adult",
        "child",
    ]

    gone = house.shell.json("person", "remove", "anna", "--yes", "--json")
    assert (gone["unfinished"], gone["documents_removed"], gone["files_removed"]) == ("", 1, 1)
    with anna.http(url) as http:
        assert http.get("/v1/me").status_code == 401
    assert asyncio.run(ben.texts("notes", "secret")) == ["The secret of ben is a word."]


def lived(house: House, note: Path) -> Life:
    """Posts, a corpus, a program, three runs that wait, a backup under load; then one run goes on."""
    offer = {"category": "offer", "title": "From a run", "body": "To lend."}
    name = WATER.replace(".", "_")
    with house.running() as node:
        ladder = house.post("Ladder")["event_id"]
        ingested = house.shell.run("ingest", note, "--corpus", "notes")
        assert ingested.returncode == 0, ingested.stderr
        family = family_of(house, node.url)
        secret = node.key("llm.chat", WATER, "market.post", "market.list")
        with node.http(secret) as http:
            water, other = (asked(http, node, name, TEXT, WATER) for _ in range(2))
            post = asked(http, node, "market_post", offer, "market_post")
            with posting(house):
                made = house.shell.json("backup", "create", house.backups, "--json")
            # The restored home cannot know of this one.
            approve(http, *water)
            assert house.watered == 1
        house.post("Lost")
        node_id = house.shell.json("status", "--json")["node_id"]
        load = [title for title in house.titles() if title.startswith("Load")]
    assert made["pause_ms"] < 2_000, made
    return Life(node_id, ladder, secret, water, other, post, made, load, family)


def check_posts(house: House, life: Life) -> None:
    """They are those of one moment, and still one's own to edit."""
    titles = house.titles()
    assert "Ladder" in titles
    assert "Lost" not in titles
    load = {title for title in titles if title.startswith("Load")}
    assert load == {f"Load {number}" for number in range(len(load))}
    assert load <= set(life.load)
    body = {"params": {}, "input": {"event_id": life.ladder, "fields": {"title": "Long ladder"}}}
    edited = house.shell.run("call", "market.update", "--body", json.dumps(body))
    assert edited.returncode == 0, edited.stderr
    assert "Long ladder" in house.titles()


def check_corpus(house: House) -> None:
    """Its documents are found."""
    body = {"params": {"corpus": "notes"}, "input": {"query": "key of the shed", "k": 1}}
    found = house.shell.json("call", "rag.query", "--body", json.dumps(body), "--json")
    assert "flower pot" in json.dumps(found)


def check_runs(house: House, life: Life, http: Any) -> None:
    """They wait; what may have been done is not done again, and what is in the home alone is done."""
    listed = {run["run"] for run in house.shell.json("runs", "list", "--json")}
    assert {life.water[0], life.other[0], life.post[0]} <= listed
    for waiting in (life.water, life.other):
        happened = approve(http, *waiting)["hearthnet"]["happened"]
        assert [effect["state"] for effect in happened] == ["unknown"], happened
    assert house.watered == 1
    approve(http, *life.post)
    assert house.titles().count("From a run") == 1


@pytest.mark.req("BACKUP-1", "BACKUP-8", "BACKUP-9", "BACKUP-12", "ATTACK-51", "PERSON-80")
def test_home_is_back_from_its_backup(house: House, tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text(NOTE * 5)
    life = lived(house, note)
    shutil.rmtree(house.shell.home)

    began = time.monotonic()
    restored = house.shell.run("backup", "restore", house.backups, "--words", house.words)
    assert restored.returncode == 0, restored.stderr
    with house.running() as node:
        assert time.monotonic() - began < DRILL_SECONDS
        status = house.shell.json("status", "--json")
        assert status["node_id"] == life.node_id
        assert status["backup"]["restored"]["backup"] == life.backup["id"]
        check_posts(house, life)
        check_corpus(house)
        with node.http(life.secret) as http:
            assert NAME in http.get("/v1/models").text
            check_runs(house, life, http)
        check_family(house, node.url, life.family)
        assert house.shell.run("audit", "verify").returncode == 0
