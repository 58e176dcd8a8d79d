"""A fire: every device and the paper are lost, and two of three neighbours bring the person back.

Real processes: five homes, `hearthnet up` at each, and every step a command that a person types.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.commands import helpers as commands
from hearthnet.cli.output.durations import Span
from tests.e2e.test_joining import a_home, names, quick
from tests.e2e.test_second_node import devices, home_of
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e
HELPERS = ("Hearth", "Cleo", "Dora")


def join(hearth: Shell, shell: Shell, name: str) -> None:
    """`shell` joins by an invite; its node is not started."""
    text = quick(hearth, "invite", "create", "--name", name)["invite"]
    done = shell.run("invite", "redeem", stdin=text)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[dict[str, Shell]]:
    """The helpers' homes and the one that will be lost, their nodes running; and a new one."""
    made = {name: a_home(tmp_path, name, "auth") for name in (*HELPERS, "Kitchen", "Attic")}
    with contextlib.ExitStack() as stack:
        stack.enter_context(made["Hearth"].node())
        for name in ("Cleo", "Dora", "Kitchen"):
            join(made["Hearth"], made[name], name)
            stack.enter_context(made[name].node())
        for name in (*HELPERS, "Kitchen"):
            wait_for_sync(lambda name=name: devices(made[name]) == [name], what=f"the person of {name}")  # type: ignore[misc]
        yield made


def everybody_knows(homes: dict[str, Shell], name: str) -> None:
    """Waits until the persons of all are known at `name`."""
    wait_for_sync(lambda: len(quick(homes[name], "members")["members"]) >= 4, what="the members")
    for other in (*HELPERS, "Kitchen"):
        wait_for_sync(
            lambda other=other: homes[name].run("helpers", "accept", other).returncode in (0, 2),  # type: ignore[misc]
            what=f"the person of {other}",
        )


def gave(homes: dict[str, Shell], names: tuple[str, ...], code: str) -> None:
    """The helpers with these names give their shares."""
    for name in names:
        quick(homes[name], "helpers", "give", "Kitchen", code, "--yes")


def person(shell: Shell) -> Any:
    """What `hearthnet person show` prints."""
    return quick(shell, "person", "show")


@pytest.mark.req("PERSON-46", "PERSON-47")
def test_two_of_three_helpers_bring_a_person_back(
    homes: dict[str, Shell], monkeypatch: pytest.MonkeyPatch
) -> None:
    kitchen, attic, hearth = homes["Kitchen"], homes["Attic"], homes["Hearth"]
    everybody_knows(homes, "Kitchen")
    choose = ("helpers", "choose", *HELPERS, "--yes")
    for name in HELPERS:
        done = kitchen.run(*choose, "--wait", "1d")
        assert (done.returncode, "has not agreed to help" in done.stderr) == (4, True), done.stderr
        wait_for_sync(lambda name=name: homes[name].run("helpers", "accept", "Kitchen").returncode == 0)  # type: ignore[misc]
    chosen = quick(kitchen, *choose, "--wait", "1d")
    assert [one["name"] for one in chosen["helpers"]] == list(HELPERS)
    assert (len(chosen["witnesses"]), chosen["wait_seconds"]) == (3, 86_400)
    (here,) = quick(homes["Dora"], "helpers", "kept")
    assert (here["name"], here["share_here"]) == ("Kitchen", True)

    join(hearth, attic, "Attic")
    asked = quick(attic, "helpers", "ask", "Kitchen")
    before = person(kitchen)
    with attic.node():
        wait_for_sync(lambda: "Attic" in names(homes["Dora"]), what="the new home")
        _what_is_too_little_is_refused(homes, asked["code"])
        _a_device_stops_it(homes, asked["code"])
        # The command offers a day at least; the person who signs may set a second.
        (wait,) = (one for one in commands.choose.params if one.name == "wait")
        monkeypatch.setattr(wait, "type", Span(1, 60))
        quick(kitchen, *choose, "--wait", "1s")
        gave(homes, ("Cleo", "Dora"), asked["code"])
        quick(attic, "helpers", "begin", "--lost", "Kitchen", "--yes")
        wait_for_sync(lambda: devices(attic) == ["Attic"], 60, "the end of the waiting time")
        wait_for_sync(lambda: "Kitchen" not in names(hearth), what="the removal of the lost device")
        after = person(attic)
        assert (after["person"], after["epoch"], after["recoveries"]) == (before["person"], 2, [])
        assert [one["name"] for one in after["former"]] == ["Kitchen"]
        assert not home_of(attic).recovering.exists()
        assert load_identity(home_of(attic).person_key).node_id not in (
            load_identity(home_of(kitchen).person_key).node_id,
            after["person"],
        )
        assert len(quick(attic, "helpers", "list")["witnesses"]) == 3
        # The paper is found again; from then on the shares are worth nothing.
        paper = str(home_of(kitchen).recovery_key)
        assert quick(attic, "helpers", "forget", "--words", paper, "--yes")["witnesses"] == []


def _what_is_too_little_is_refused(homes: dict[str, Shell], code: str) -> None:
    """No share, one, a wrong code, one's own person, or no word about the devices."""
    attic, hearth = homes["Attic"], homes["Hearth"]
    begin = ("helpers", "begin", "--lost", "Kitchen", "--yes")
    for shell, command, ends, says in (
        (attic, begin, 2, "these shares do not make"),
        (attic, ("helpers", "begin", "--yes"), 2, "say which devices are lost"),
        (
            hearth,
            ("helpers", "give", "Kitchen", "aaaa-bbbb-cccc", "--yes"),
            5,
            "no member's node has that code",
        ),
        (hearth, ("helpers", "give", "Dora", code, "--yes"), 5, "no share of that person"),
        (hearth, ("helpers", "give", "Kitchen", code), 7, "say it with --yes"),
        (hearth, ("helpers", "accept", "Hearth"), 2, "yourself"),
        (hearth, ("helpers", "begin", "--keep-all", "--yes"), 5, "nobody is recovered here"),
        (hearth, ("helpers", "ask", "Kitchen"), 2, "a person of its own"),
        (hearth, ("helpers", "choose", "Cleo", "Dora", "--yes"), 2, "3 different neighbours"),
        (hearth, ("recover", "--object", "--yes"), 5, "no recovery of your person"),
    ):
        done = shell.run(*command)
        assert (done.returncode, says in done.stderr) == (ends, True), (command, done.stderr)
    gave(homes, ("Hearth",), code)
    assert attic.run(*begin).returncode == 2


def _a_device_stops_it(homes: dict[str, Shell], code: str) -> None:
    """The person is told at the device that is there, and stops what two helpers have begun."""
    attic, kitchen = homes["Attic"], homes["Kitchen"]
    gave(homes, ("Cleo",), code)
    begun = quick(attic, "helpers", "begin", "--lost", "Kitchen", "--yes")
    assert (begun["witnessed"], begun["objected"]) == (0, [])
    assert not list(home_of(attic).recovering.glob("*.share"))
    again = attic.run("helpers", "begin", "--keep-all", "--yes")
    assert (again.returncode, "the recovery has begun" in again.stderr) == (2, True)
    wait_for_sync(lambda: person(kitchen)["recoveries"], what="the news at the device")
    for shell, *command in ((kitchen, "person", "show"), (kitchen, "status"), (attic, "status")):
        assert "helpers have begun to replace the person key" in shell.run(*command).stdout
    assert "your helpers have begun to replace your keys" in kitchen.home.with_suffix(".log").read_text()
    quick(kitchen, "recover", "--object", "--yes")
    (stopped,) = person(kitchen)["recoveries"]
    assert stopped["objected"] == [quick(kitchen, "status")["node_id"]]
    assert json.dumps(person(kitchen)["epoch"]) == "1"
