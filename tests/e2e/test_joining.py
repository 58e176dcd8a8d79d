"""Two homes on one computer become one community, and part again, by what the README says.

Real processes on both sides: `hearthnet up` twice, and every step a command that a person types.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.entry_point import run
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.supervisor.community.join import redeem
from hearthnet.supervisor.community.join_client import JoinClient, temporary_server
from hearthnet.supervisor.nats.leaf_links import Upstream
from hearthnet.trust.community import invites
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.household import make_home
from tests.helpers.shell import Shell
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for, wait_for_sync

pytestmark = pytest.mark.e2e
CUT_SECONDS = 2.0
POST = {"category": "offer", "title": "Ladder to lend", "body": "4 m, ring twice."}
QUERY = {"params": {"corpus": "system"}, "input": {"query": "rainwater safe to drink", "k": 1}}


@dataclass
class Homes:
    """The home that invites, its node running; one that joins, and an empty one."""

    hearth: Shell
    kitchen: Shell
    third: Shell
    withdrawn: str = ""

    def invite(self, *options: str) -> str:
        """A new invite of the first home."""
        text: str = self.hearth.json("invite", "create", "--json", *options)["invite"]
        return text


README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def typed(command: str) -> list[str]:
    """The words after `hearthnet` of a command that stands in the README as it is."""
    assert command in README, f"the README does not say: {command}"
    return command.split()[1:]


def a_home(folder: Path, name: str, *services: str) -> Shell:
    """A home with these services alone, not started yet."""
    listed = ", ".join(f'"{service}"' for service in services)
    return Shell(make_home(folder / name, name, f"[{listed}]").path)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    """Three homes; the first one's node runs, with its documents."""
    folder = tmp_path_factory.mktemp("joining")
    homes = Homes(
        a_home(folder, "hearth", "auth", "rag"),
        a_home(folder, "Kitchen", "auth", "market"),
        a_home(folder, "third", "auth"),
    )
    with homes.hearth.node():
        homes.withdrawn = homes.invite("--name", "Attic")
        homes.hearth.json("invite", "withdraw", "Attic", "--json")
        yield homes


def quick(shell: Shell, *arguments: str) -> Any:
    """What a command that must succeed prints as JSON; run in this process, to save the start of another."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run([*arguments, "--json", "--home", str(shell.home)])
    assert code == 0, f"{arguments} ended with {code}: {printed.getvalue()}"
    return json.loads(printed.getvalue())


def call(shell: Shell, name: str, body: dict[str, Any], *options: str) -> Any:
    """The reply of a call that must succeed."""
    return quick(shell, "call", name, "--body", json.dumps(body), *options)


def names(shell: Shell) -> list[str]:
    """Who belongs to the community, as this home knows it."""
    return [one["display_name"] for one in quick(shell, "members")["members"]]


def links(shell: Shell) -> int:
    """How many leaf links of other homes the server of this one has accepted and not closed."""
    log = (shell.home / "logs" / "nats-server.log").read_text()
    return log.count("Leafnode connection created") - log.count("Leafnode connection closed")


@pytest.mark.req("JOIN-1", "JOIN-5", "JOIN-6", "MEMBERS-4")
def test_a_neighbour_comes_in_is_of_use_and_is_put_out(homes: Homes) -> None:
    hearth, kitchen = homes.hearth, homes.kitchen
    with kitchen.node():  # alone first: a post, and invites in a community of its own
        call(kitchen, "market.post", {"params": {}, "input": POST})
        for _ in range(2):
            quick(kitchen, "invite", "create")
    before = names(hearth)
    invite = quick(hearth, *typed("hearthnet invite create --name Kitchen"))["invite"]
    done = kitchen.run(*typed("hearthnet invite redeem"), "--json", stdin=invite)
    assert done.returncode == 0, done.stderr
    joined = json.loads(done.stdout)
    assert joined["members"] == len(before) + 1
    assert {"roster.json", "community.key", "COMMUNITY"} == {
        path.name for path in Path(joined["moved_aside"]).iterdir()
    }
    assert "no node runs here" in kitchen.run("members").stderr

    with kitchen.node() as state:
        assert names(hearth) == names(kitchen) == [*before, "Kitchen"]
        _each_uses_what_the_other_offers(homes)
        _the_newcomer_is_a_member_like_others(homes)

        # A used invite opens nothing, not even for its own maker's computer.
        again = homes.third.run("invite", "redeem", invite, "--json")
        assert (again.returncode, json.loads(again.stdout)["error"]) == (4, "unauthorized")
        assert "it was used, withdrawn or has expired" in again.stderr

        linked = links(hearth)
        said = hearth.run(*typed("hearthnet revoke Kitchen"), "--reason", "inactive", "--yes").stdout
        node = read_node_state(Home.resolve(hearth.home))
        watch = Stopwatch(node.pid, node.server.pid)
        assert said.startswith(f"Kitchen ({ids.short_id(state['node_id'])}) is put out")
        wait_for_sync(lambda: links(hearth) < linked, 30, "the end of the link")
        assert watch.seconds() < CUT_SECONDS
        wait_for_sync(
            lambda: "this node was put out" in kitchen.run("members").stderr,
            what="the news at the other home",
        )
        refused = kitchen.run("call", "rag.query", "--body", json.dumps(QUERY))
        assert (refused.returncode, "this node was put out" in refused.stderr) == (4, True)
        assert state["node_id"] not in {offer["node"] for offer in quick(hearth, "caps")}
        page = quick(hearth, "members")
        assert [one["reason"] for one in page["revoked"]] == ["inactive"]


def _each_uses_what_the_other_offers(homes: Homes) -> None:
    """Calls across, in both directions, and under a token."""
    hearth, kitchen = homes.hearth, homes.kitchen
    own = [quick(shell, "status")["node_id"] for shell in (hearth, kitchen)]
    wait_for_sync(lambda: {offer["node"] for offer in quick(kitchen, "caps")} == set(own), what="both homes")
    (found,) = call(kitchen, "rag.query", QUERY)["output"]["chunks"]
    assert "rainwater" in found["text"].lower()
    (post,) = call(hearth, "market.list", {"params": {}, "input": {}})["output"]["posts"]
    assert post["author"] == own[1]
    issued = quick(hearth, "token", "issue", "--to", "Kitchen", "--cap", "rag.query", "--corpus", "system")
    assert call(kitchen, "rag.query", QUERY, "--token", issued["token"])["output"]["chunks"]
    assert quick(kitchen, "token", "show", issued["token"])["active"] is True
    quick(hearth, "token", "revoke", issued["token"])
    late = kitchen.run("call", "rag.query", "--body", json.dumps(QUERY), "--token", issued["token"], "--json")
    assert (late.returncode, json.loads(late.stdout)["error"]) == (4, "token_revoked")


def _the_newcomer_is_a_member_like_others(homes: Homes) -> None:
    """It invites in its turn, though its log held one of its earlier community in that place."""
    text = quick(homes.kitchen, "invite", "create")
    (heard,) = wait_for_sync(
        lambda: [one for one in quick(homes.hearth, "invite", "list") if one["event_id"] == text["event_id"]],
        what="the invite at the other home",
    )
    assert heard["inviter"] == quick(homes.kitchen, "members")["node_id"]
    quick(homes.kitchen, "invite", "withdraw", text["invite"])


@pytest.mark.req("JOIN-4")
def test_a_withdrawn_invite_and_one_for_another_node_are_refused(homes: Homes) -> None:
    foreign = homes.invite("--for", Identity.generate().node_id)
    for text, says in (
        (homes.withdrawn, "it was used, withdrawn or has expired"),
        (foreign, "the invite is for another node"),
    ):
        done = homes.third.run("invite", "redeem", "--json", stdin=text)
        assert (done.returncode, json.loads(done.stdout).get("error")) == (4, "unauthorized"), done
        assert says in done.stderr.splitlines()[-1], done.stderr
    assert not (homes.third.home / "community" / "roster.json").exists()
    assert not (homes.third.home / "run" / "joining").exists()


@pytest.mark.req("JOIN-2", "JOIN-3")
def test_an_invite_on_a_terminal_and_in_a_pipe(homes: Homes) -> None:
    done = homes.hearth.run("invite", "create", "--expires", "2h")
    assert done.stdout.startswith("hninvite://v1/")
    assert done.stdout.count("\n") == 1
    assert "good for one home, 2 h long" in done.stderr
    assert "only homes on this computer can use it" in done.stderr
    with homes.hearth.terminal("invite", "create") as screen:
        screen.expect("hninvite://v1/")
        screen.expect("\u2580")
        screen.expect("hearthnet invite withdraw ")
        assert screen.end() == 0


@pytest.mark.req("JOIN-7")
def test_a_new_home_that_is_let_in_and_cut_off_comes_in_by_its_own_key(
    homes: Homes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a slow machine, where the used invite's connection ends before its answer is there."""
    text, home, asked = homes.invite("--name", "Porch"), Home.resolve(tmp_path / "porch"), JoinClient.join

    async def cut_off(newcomer: JoinClient, *given: Any) -> Roster:
        await asked(newcomer, *given)
        way = Upstream(invites.decode(text).address)

        async def opens() -> bool:
            with contextlib.suppress(HearthNetError):
                async with temporary_server(tmp_path / "look", load_identity(home.device_key), way):
                    return True
            return False

        await wait_for(opens, what="the door to open for the new member")
        raise HearthNetError("unauthorized", "the home does not accept this invite: it was used")

    monkeypatch.setattr(JoinClient, "join", cut_off)
    joined = redeem(home, text, print)
    assert (joined.display_name, joined.members) == ("Porch", len(names(homes.hearth)))
    assert home.roster.exists()


@pytest.mark.req("JOIN-7", "JOIN-9")
def test_the_answer_that_was_lost_does_no_harm(homes: Homes, tmp_path: Path) -> None:
    """Let in, but cut off before anything was written: the same invite completes it.

    In a home of its own: a member is not refused an invite, whatever test comes next.
    """
    text = homes.invite("--name", "Garage")
    shell = a_home(tmp_path, "garage")
    (shell.home / "hearthnet.toml").write_text("[server]\nport = 0\n")
    quick(shell, "invite", "redeem", text)
    for name in ("roster.json", "upstream.json"):
        (shell.home / "community" / name).unlink()
    again = quick(shell, "invite", "redeem", text)
    assert again["members"] == len(names(homes.hearth))
    # Its settings name it not, so it is what the inviter called it.
    assert "Garage" in names(shell)
    upstream = json.loads((shell.home / "community" / "upstream.json").read_text())
    assert upstream["address"] == quick(homes.hearth, "status")["server"]["address"]

    # A member that redeems another invite takes its address, and leaves it to somebody else.
    (shell.home / "community" / "upstream.json").unlink()
    other = homes.invite()
    done = shell.run("invite", "redeem", other, "--json")
    assert "the invite stays unused" in done.stderr
    assert json.loads((shell.home / "community" / "upstream.json").read_text()) == upstream
    assert len(names(homes.hearth)) == again["members"]
