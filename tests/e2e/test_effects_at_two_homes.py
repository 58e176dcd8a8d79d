"""Two homes offer the same tool: a model's call of it goes to one of them, which its person has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.helpers.scripted_model import NAME, Say
from tests.helpers.served import Served, served
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync
from tests.services.mcp.houses import Plain, tool

pytestmark = pytest.mark.e2e
WATER = "experimental.mcp.garden.water"
TEXT = {"text": "the roses"}
KITCHEN = """\
[node]
display_name = "Kitchen"
[server]
port = 0
[community]
port = 0
[services]
enabled = ["auth", "mcp"]
[gateway]
enabled = false
"""


@dataclass
class Homes:
    """The home whose model calls, its neighbour, and the garden that each of them waters."""

    hearth: Served
    kitchen: Shell
    here: Plain
    there: Plain

    @property
    def watered(self) -> tuple[int, int]:
        """How often, at either home."""
        return len(self.here.heard("tools/call")), len(self.there.heard("tools/call"))

    def offering(self) -> int:
        """How many homes offer it, as the first one sees it."""
        return len({row["node"] for row in self.hearth.shell.json("caps", WATER, "--json")})


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    """Both run, members of one community, and both offer the tool."""
    folder = tmp_path_factory.mktemp("homes")
    gardens = [Plain(folder / name, "garden") for name in ("here", "there")]
    for garden in gardens:
        garden.lists(tool("water"))
        garden.answers(water={"result": {"content": [{"type": "text", "text": "Watered."}]}})
    here, there = gardens
    kitchen = Shell(folder / "kitchen")
    kitchen.home.mkdir()
    (kitchen.home / "hearthnet.toml").write_text(f"{KITCHEN}\n{there.toml(share=True)}")
    settings = f'[node]\ndisplay_name = "Hearth"\n\n{here.toml(share=True)}'
    with served(folder / "hearth", "auth", "mcp", settings=settings) as hearth:
        invite = hearth.shell.json("invite", "create", "--name", "Kitchen", "--json")["invite"]
        joined = kitchen.run("invite", "redeem", "--json", stdin=invite)
        assert joined.returncode == 0, joined.stderr
        with kitchen.node():
            homes = Homes(hearth, kitchen, here, there)
            wait_for_sync(lambda: homes.offering() == 2, 60, "both offers")
            yield homes


def asked(http: Any, homes: Homes, **more: str) -> tuple[str, dict[str, Any]]:
    """A run whose model wants to water, and what waits in it."""
    messages = homes.hearth.ask(Say(calls=((WATER.replace(".", "_"), {**TEXT, **more}),)), Say("Done."))
    body = {"model": NAME, "messages": messages, "hearthnet": {"tools": [WATER]}}
    answer = http.post("/v1/chat/completions", json=body).json()
    (pending,) = answer["hearthnet"]["pending"]
    return answer["hearthnet"]["run"], pending


def approved(http: Any, run: str, pending: dict[str, Any]) -> str:
    """What the run comes to after a yes."""
    word = {"call": pending["tool_call_id"], "decision": "approve", "shown": pending["arguments_digest"]}
    said = http.post(f"/v1/runs/{run}/decisions", json=word)
    assert said.status_code == 200, said.text
    body = {"model": NAME, "messages": [{"role": "user", "content": "Go on."}], "hearthnet": {"run": run}}
    done = http.post("/v1/chat/completions", json=body)
    assert done.status_code == 200, done.text
    return str(done.json()["choices"][0]["message"]["content"]).strip()


@pytest.mark.req("TOOL-90", "GATHER-6")
def test_the_own_home_is_meant_first_and_its_name_shown(homes: Homes) -> None:
    shell = homes.hearth.shell
    with homes.hearth.http(homes.hearth.key("llm.chat", WATER)) as http:
        run, pending = asked(http, homes)
        assert pending["provider"] == shell.json("status", "--json")["node_id"]
        assert pending["home"].startswith("Hearth (ed25519:")
        assert "at this home: Hearth" in shell.run("runs", "show", run).stdout
        assert approved(http, run, pending) == "Done."
        assert homes.watered == (1, 0)

        # The model names the other home, and its person sees that.
        run, pending = asked(http, homes, home="kitchen")
        assert pending["home"].startswith("Kitchen (ed25519:")
        assert approved(http, run, pending) == "Done."
        assert homes.watered == (1, 1)

        # A yes that was given for one home is never carried out at the other.
        run, pending = asked(http, homes)
        removed = shell.run("mcp", "remove", "garden")
        assert removed.returncode == 0, removed.stderr
        wait_for_sync(lambda: homes.offering() == 1, 60, "the other offer alone")
        assert approved(http, run, pending) == "Done."
        assert homes.watered == (1, 1)
        told = [one for one in homes.hearth.model.requests[-1]["messages"] if one["role"] == "tool"]
        assert told[-1]["content"].removeprefix("ERROR: ").startswith("not_found: "), told[-1]

        run, pending = asked(http, homes)
        assert pending["home"].startswith("Kitchen (ed25519:")
        assert approved(http, run, pending) == "Done."
        assert homes.watered == (1, 2)
