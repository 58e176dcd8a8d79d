"""`hearthnet operator`, and what the clients of others see of a node under such a login."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from tests.cli.conftest import Here
from tests.helpers import adr32
from tests.helpers.shell import Shell
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

CLIENTS = Path(__file__).resolve().parent.parent.parent / "clients"
INBOX = "_INBOX_ops"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell whose node runs, with two services."""
    shell = Shell(tmp_path_factory.mktemp("operator") / "home")
    shell.home.mkdir()
    settings = "[server]\nport = 0\n\n[community]\nport = 0\n\n[gateway]\nenabled = false\n\n"
    settings += '[services]\nenabled = ["auth", "market"]\n'
    (shell.home / "hearthnet.toml").write_text(settings)
    with shell.node():
        yield shell


class Watcher:
    """A plain nats-py client with an operator's login, as `nats.micro` asks."""

    def __init__(self) -> None:
        self.client = Client()
        self.refusals: list[str] = []
        self.cut = asyncio.Event()

    @classmethod
    async def connect(cls, operator: dict[str, Any]) -> Watcher:
        """Connects as `operator create --json` says."""
        watcher = cls()

        async def complain(error: Exception) -> None:
            watcher.refusals.append(str(error))

        async def lose() -> None:
            watcher.cut.set()

        await watcher.client.connect(
            operator["url"],
            nkeys_seed=operator["seed_file"],
            inbox_prefix=operator["inbox_prefix"],
            error_cb=complain,
            disconnected_cb=lose,
            allow_reconnect=False,
            connect_timeout=int(DEADLINE_SECONDS),
        )
        return watcher

    async def all(self, subject: str, count: int) -> list[dict[str, Any]]:
        """So many answers, as JSON, by name."""
        inbox, found = self.client.new_inbox(), []

        async def hear(message: Any) -> None:
            found.append(json.loads(message.data))

        hearing = await self.client.subscribe(inbox, cb=hear)
        await self.client.publish(subject, reply=inbox)
        await wait_for(lambda: len(found) >= count, what=f"{count} answers to {subject}")
        await hearing.unsubscribe()
        return sorted(found, key=lambda document: str(document["name"]))

    async def settle(self) -> None:
        """After two round trips everything the server had to say is here."""
        await self.client.flush()
        await self.client.flush()


def offered(infos: list[dict[str, Any]]) -> set[tuple[str, str, str, str, str]]:
    """What INFO documents say is offered: service, version, process, node, capability."""
    return {
        (
            info["name"],
            info["version"],
            info["id"],
            info["metadata"]["node"],
            each["metadata"]["capability"],
        )
        for info in infos
        for each in info["endpoints"]
    }


def caps(shell: Shell) -> set[tuple[str, str, str, str, str]]:
    """The same of `caps --json`."""
    return {
        (each["service"], each["version"], each["instance"], each["node"], each["capability"])
        for each in shell.json("caps", "--json")
    }


@pytest.mark.req("OPERATOR-1", "OPERATOR-2", "OPERATOR-3")
def test_nats_own_client_for_node_lists_the_services(shell: Shell) -> None:
    made = shell.json("operator", "create", "node-js", "--json")
    services = {service["name"] for service in shell.json("status", "--json")["services"]}
    shell.json("call", "market.list", "--body", '{"params": {}, "input": {}}', "--json")
    done = subprocess.run(
        ["node", CLIENTS / "list_services.mjs", made["url"], made["seed_file"], str(len(services))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for verb in ("ping", "info", "stats"):
        assert {document["name"] for document in seen[verb]} == services
        for document in seen[verb]:
            adr32.check(verb.upper(), document)
    assert offered(seen["info"]) == caps(shell)
    counted = {
        endpoint["name"]: (endpoint["num_requests"], endpoint["num_errors"], endpoint["last_error"])
        for document in seen["stats"]
        for endpoint in document["endpoints"]
    }
    assert counted["market-list-1-0"] == (1, 0, "")
    assert counted["market-post-1-0"] == (0, 0, "")
    first = seen["ping"][0]
    assert [document["name"] for document in seen["named"]] == [first["name"]]
    assert [(each["name"], each["id"]) for each in seen["single"]] == [(first["name"], first["id"])]


@pytest.mark.req("OPERATOR-1", "OPERATOR-2")
@pytest.mark.asyncio
async def test_plain_nats_py_lists_the_services(shell: Shell) -> None:
    watcher = await Watcher.connect(shell.json("operator", "create", "nats-py", "--json"))
    pings = await watcher.all("$SRV.PING", 2)
    infos, stats = await watcher.all("$SRV.INFO", 2), await watcher.all("$SRV.STATS", 2)
    for verb, documents in (("PING", pings), ("INFO", infos), ("STATS", stats)):
        assert [document["name"] for document in documents] == ["auth", "market"]
        for document in documents:
            adr32.check(verb, document)
    assert offered(infos) == caps(shell)
    for info, counted in zip(infos, stats, strict=True):
        places = [[(each["name"], each["subject"]) for each in one["endpoints"]] for one in (info, counted)]
        assert places[0] == places[1]
    market = pings[1]
    assert await watcher.all("$SRV.PING.market", 1) == [market]
    assert await watcher.all(f"$SRV.PING.market.{market['id']}", 1) == [market]
    await watcher.client.close()


@pytest.mark.req("OPERATOR-6", "ATTACK-24")
@pytest.mark.asyncio
async def test_an_operator_can_do_nothing_else(shell: Shell) -> None:
    watcher = await Watcher.connect(shell.json("operator", "create", "curious", "--json"))
    (info, _) = await watcher.all("$SRV.INFO", 2)
    endpoint = info["endpoints"][0]["subject"]
    said = (
        endpoint.replace("*", "x" * 43),
        *(f"hn.{family}.x.y" for family in ("call", "ctl", "find", "adv", "event", "rep")),
        f"{INBOX}.forged.1",
        "_INBOX.x.1",
        "$JS.API.INFO",
        "$KV.claims.x",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.USER.INFO",
        "mk.post.a.b",
    )
    heard = (">", "*", "hn.>", endpoint, "hn.adv.>", "_INBOX.>", "$SRV.>", "$SRV.PING", "$JS.>", "$SYS.>")
    for subject in said:
        await watcher.client.publish(subject, b"x")
    for subject in heard:
        await watcher.client.subscribe(subject)
    await watcher.settle()
    refusals = "\n".join(watcher.refusals)
    for subject in said:
        assert re.search(f'(?i)publish to "{re.escape(subject)}"', refusals), subject
    for subject in heard:
        assert re.search(f'(?i)subscription to "{re.escape(subject)}"', refusals), subject
    assert not watcher.cut.is_set()
    await watcher.client.close()


@pytest.mark.req("OPERATOR-5")
@pytest.mark.asyncio
async def test_a_removed_operator_is_cut_and_others_are_not(shell: Shell) -> None:
    gone = await Watcher.connect(shell.json("operator", "create", "gone", "--json"))
    stays = await Watcher.connect(shell.json("operator", "create", "stays", "--json"))
    pids = {service["name"]: service["pid"] for service in shell.json("status", "--json")["services"]}
    done = await asyncio.to_thread(shell.run, "operator", "remove", "gone")
    assert (done.returncode, done.stdout) == (0, "gone is no operator any more\n")
    await asyncio.wait_for(gone.cut.wait(), DEADLINE_SECONDS)
    assert len(await stays.all("$SRV.PING", 2)) == 2
    assert not stays.cut.is_set()
    after = {service["name"]: service["pid"] for service in shell.json("status", "--json")["services"]}
    assert after == pids
    await gone.client.close()
    await stays.client.close()


@pytest.mark.req("OPERATOR-5")
def test_what_is_printed_says_how_to_use_it(shell: Shell) -> None:
    done = shell.run("operator", "create", "printed")
    assert (done.returncode, done.stderr) == (0, "")
    file = shell.home / "keys" / "operators" / "printed.nk"
    url = shell.json("status", "--json")["server"]["url"]
    words = shlex.split(done.stdout.splitlines()[-1])
    assert words == ["nats", "--server", url, "--nkey", str(file), "--inbox-prefix", INBOX, "micro", "ls"]
    assert file.read_text().strip() not in done.stdout
    listed = {one["name"]: one for one in shell.json("operator", "list", "--json")}["printed"]
    assert listed["seed_file"] == str(file)
    assert listed["login"] in shell.run("operator", "list").stdout
    again = shell.run("operator", "create", "printed", "--json")
    assert again.returncode == 2
    assert json.loads(again.stdout)["error"] == "bad_request"
    assert "take another name, or remove it first: hearthnet operator remove printed" in again.stderr


@pytest.mark.req("OPERATOR-5")
def test_without_a_node_the_login_is_for_later(here: Here, home: Path) -> None:
    assert here("operator", "create", "anna") == 5
    assert "`hearthnet up` makes one" in here.err
    assert not (home / "keys" / "operators").exists()
    _found(home)
    assert here("operator", "list") == 0
    assert here.out.startswith("there is no operator; make one with")
    assert here("operator", "create", "Anna") == 2
    assert "is no name of an operator" in here.err
    assert here.json("operator", "create", "anna")["url"] is None
    assert "no node runs here: the login works once it does" in here.err
    assert here("operator", "create", "bert") == 0
    assert "--server nats://127.0.0.1:4222 --nkey" in here.out
    assert here("operator", "remove", "ana") == 5
    assert "there is no operator 'ana'; did you mean anna?" in here.err
    assert here.json("operator", "remove", "anna") == {"name": "anna", "removed": True}
    (home / "keys" / "operators" / "bert.nk").write_text("no seed")
    assert here("operator", "list") == 0
    assert "holds no seed" in here.err
    assert here("operator", "remove", "bert") == 0
    assert here("operator") == 0
    assert "operator create anna" in here.out


def _found(home: Path) -> None:
    from hearthnet.bus.session.keyring import create_identity

    create_identity(home / "keys" / "device.key")
