"""A second computer of the same person: added by a text, of use at once, and removed again.

Real processes on both sides: `hearthnet up` twice, and every step a command that a person types.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.trust.community import invites
from tests.e2e.test_joining import CUT_SECONDS, POST, a_home, call, links, names, quick
from tests.helpers.shell import Shell
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e


@dataclass
class Mine:
    """A person's first computer, its node running, and a new one."""

    first: Shell
    second: Shell

    def add(self, *options: str) -> str:
        """A new text for a device."""
        text: str = quick(self.first, "device", "add", *options)["invite"]
        return text


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mine]:
    """The first one's node runs, and is its person's."""
    folder = tmp_path_factory.mktemp("devices")
    mine = Mine(a_home(folder, "Desk", "auth", "market"), a_home(folder, "Laptop", "auth", "market"))
    with mine.first.node():
        wait_for_sync(lambda: mine.first.run("device", "list").returncode == 0, what="the person")
        yield mine


def devices(shell: Shell) -> list[str]:
    """The names of the devices, as this home knows them."""
    done = shell.run("device", "list", "--json")
    return [one["name"] for one in json.loads(done.stdout)] if done.returncode == 0 else []


def home_of(shell: Shell) -> Home:
    """The folder and its names."""
    return Home.resolve(shell.home)


@pytest.mark.req("PERSON-30", "PERSON-31")
def test_a_second_computer_is_the_same_person_until_removed(mine: Mine) -> None:
    first, second = mine.first, mine.second
    with second.node():  # alone first, where it founds a person of its own
        wait_for_sync(lambda: devices(second) == ["Laptop"], what="a person of its own")
    before = home_of(second).recovery_key.read_bytes()
    text = mine.add("--name", "Laptop")
    done = second.run("device", "join", "--json", stdin=text)
    assert done.returncode == 0, done.stderr
    joined = json.loads(done.stdout)
    person = quick(first, "person", "show")["person"]
    assert (joined["person"], joined["display_name"]) == (person, "Laptop")
    assert (Path(joined["moved_aside"]) / "recovery.key").read_bytes() == before
    assert not home_of(second).recovery_key.exists()
    assert (
        load_identity(home_of(second).person_key).node_id == load_identity(home_of(first).person_key).node_id
    )

    with second.node():
        wait_for_sync(lambda: devices(first) == devices(second) == ["Desk", "Laptop"], what="both devices")
        assert len(quick(second, "person", "show")["devices"]) == 2
        _posts_of_one_are_the_others(first, second)
        _the_text_is_of_no_use_any_more(mine, text)

        linked = links(first)
        node = read_node_state(home_of(first))
        watch = Stopwatch(node.pid, node.server.pid)
        quick(first, "device", "remove", "Laptop", "--yes")
        wait_for_sync(lambda: links(first) < linked, 30, "the end of the link")
        seconds = watch.seconds()
        sys.stdout.write(f"removed to cut off: {seconds:.2f} s\n")
        assert seconds < CUT_SECONDS
        wait_for_sync(
            lambda: "this node was put out" in second.run("members").stderr, what="the news at the second"
        )
        assert devices(first) == ["Desk"]
        assert "Laptop" not in names(first)


def _posts_of_one_are_the_others(first: Shell, second: Shell) -> None:
    """Made at one, changed from the other, in both directions."""
    own = [quick(shell, "status")["node_id"] for shell in (first, second)]
    wait_for_sync(lambda: {one["node"] for one in quick(second, "caps")} == set(own), what="both homes")
    for here, there, place in ((first, second, own[0]), (second, first, own[1])):
        made = call(here, "market.post", {"params": {}, "input": POST})["output"]
        change = {"event_id": made["event_id"], "fields": {"title": "Ladder, lent"}}
        call(there, "market.update", {"params": {}, "input": change}, "--node", place)
        posts = call(here, "market.list", {"params": {}, "input": {}}, "--node", place)["output"]["posts"]
        assert [one["title"] for one in posts if one["event_id"] == made["event_id"]] == ["Ladder, lent"]


def _the_text_is_of_no_use_any_more(mine: Mine, text: str) -> None:
    """It was used: not for a third home, nor for the one that used it."""
    third = a_home(mine.first.home.parent, "third", "auth")
    refused = third.run("device", "join", "--json", stdin=text)
    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (4, "unauthorized"), refused
    assert "it was used, withdrawn or has expired" in refused.stderr
    assert not home_of(third).person_key.exists()


@pytest.mark.req("PERSON-31")
def test_texts_that_are_withdrawn_altered_or_none_are_refused(mine: Mine, tmp_path: Path) -> None:
    other = a_home(tmp_path, "other", "auth")
    withdrawn = mine.add()
    quick(mine.first, "invite", "withdraw", withdrawn)
    text = mine.add()
    altered = text[:-12] + ("A" if text[-12] != "A" else "B") + text[-11:]
    of_another = invites.decode_device(text)
    for given, code, says in (
        (withdrawn, 4, "it was used, withdrawn or has expired"),
        (altered, 2, "is damaged"),
        (quick(mine.first, "invite", "create")["invite"], 2, "hearthnet invite redeem"),
        (
            _changed(of_another, person=load_identity(home_of(mine.first).device_key).node_id),
            4,
            "not the person's",
        ),
    ):
        done = other.run("device", "join", "--json", stdin=given)
        assert done.returncode == code, done
        assert says in done.stderr.splitlines()[-1], done.stderr
        assert not home_of(other).person_key.exists()
        assert not home_of(other).roster.exists()
    redeemed = other.run("invite", "redeem", stdin=text)
    assert (redeemed.returncode, "hearthnet device join" in redeemed.stderr) == (2, True)


def _changed(text: invites.InviteText, **members: Any) -> str:
    return msgspec.structs.replace(text, **members).encode()


@pytest.mark.req("PERSON-30")
def test_a_text_on_a_terminal_and_in_a_pipe(mine: Mine) -> None:
    done = mine.first.run("device", "add")
    assert done.stdout.startswith("hndevice://v1/")
    assert done.stdout.count("\n") == 1
    assert "15 min long" in done.stderr
    assert "hearthnet device join" in done.stderr
    with mine.first.terminal("device", "add") as screen:
        screen.expect("hndevice://v1/")
        screen.expect("\u2580")
        screen.expect("hearthnet device join")
        assert screen.end() == 0
