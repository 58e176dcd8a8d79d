"""A stolen computer: the recovery key replaces the person key, at a home that is left and at a new one.

Real processes: `hearthnet up` at each home, and every step a command that a person types.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from hearthnet.backup.words import to_words
from hearthnet.bus.session.keyring import create_identity, load_identity
from hearthnet.core.node_state import read_node_state
from tests.e2e.test_joining import CUT_SECONDS, POST, a_home, call, links, quick
from tests.e2e.test_second_node import devices, home_of
from tests.helpers.shell import Shell
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e


def recovered(shell: Shell, paper: Path, *options: str) -> tuple[int, str]:
    """Exit code and errors of `hearthnet recover`."""
    done = shell.run("recover", "--words", paper, *options)
    return done.returncode, done.stderr


@pytest.mark.req("PERSON-32", "PERSON-33")
def test_keys_are_replaced_at_what_is_left_and_at_a_new_home(tmp_path: Path) -> None:
    desk = a_home(tmp_path, "Desk", "auth", "market")
    laptop, attic = a_home(tmp_path, "Laptop", "auth", "market"), a_home(tmp_path, "Attic", "auth")
    paper = tmp_path / "paper.key"
    with desk.node():
        wait_for_sync(lambda: devices(desk) == ["Desk"], what="the person")
        shutil.move(home_of(desk).recovery_key, paper)
        person = quick(desk, "person", "show")
        text = quick(desk, "device", "add")["invite"]
        assert laptop.run("device", "join", stdin=text).returncode == 0
        with laptop.node():
            wait_for_sync(lambda: devices(desk) == ["Desk", "Laptop"], what="both devices")
            old = load_identity(home_of(desk).person_key).node_id
            own = quick(desk, "status")["node_id"]
            wait_for_sync(lambda: own in {one["node"] for one in quick(laptop, "caps")}, what="the desk")
            made = call(laptop, "market.post", {"params": {}, "input": POST}, "--node", own)
            _what_says_no_changes_nothing(desk, paper, tmp_path, old)

            linked = links(desk)
            node = read_node_state(home_of(desk))
            watch = Stopwatch(node.pid, node.server.pid)
            done = quick(desk, "recover", "--words", str(paper), "--lost", "Laptop", "--yes")
            wait_for_sync(lambda: links(desk) < linked, 30, "the end of the link")
            seconds = watch.seconds()
            sys.stdout.write(f"recovered to cut off: {seconds:.2f} s\n")
            assert seconds < CUT_SECONDS
            assert (done["epoch"], done["written"], len(done["removed"])) == (2, True, 1)
        page = quick(desk, "person", "show")
        assert (page["person"], page["epoch"]) == (person["person"], 2)
        assert [one["name"] for one in page["devices"]] == ["Desk"]
        assert [one["name"] for one in page["former"]] == ["Laptop"]
        assert load_identity(home_of(desk).person_key).node_id == done["key"] != old
        assert not home_of(desk).recovery_statements.exists()
        change = {"event_id": made["output"]["event_id"], "fields": {"title": "Ladder, back"}}
        call(desk, "market.update", {"params": {}, "input": change})
        _at_a_new_home(desk, attic, paper)


def _what_says_no_changes_nothing(desk: Shell, paper: Path, folder: Path, old: str) -> None:
    """The key of somebody else, a damaged one, none, no word about the devices, or none of that name."""
    other, damaged = folder / "other.key", folder / "damaged.key"
    create_identity(other)
    damaged.write_text(paper.read_text().replace("hearthnet-key-1 ", "hearthnet-key-1 A", 1))
    damaged.chmod(0o600)
    for given, options, code, says in (
        (other, ("--keep-all", "--yes"), 5, "no person in"),
        (damaged, ("--keep-all", "--yes"), 2, "damaged.key"),
        (folder / "none.key", ("--keep-all", "--yes"), 5, "none.key"),
        (paper, ("--yes",), 2, "say which devices are lost"),
        (paper, ("--lost", "Phone", "--yes"), 5, "Phone"),
        (paper, ("--lost", "Laptop"), 7, "say it with --yes"),
    ):
        ended, errors = recovered(desk, given, *options)
        assert (ended, says in errors) == (code, True), errors
    assert load_identity(home_of(desk).person_key).node_id == old
    assert not home_of(desk).recovery_statements.exists()


def _at_a_new_home(desk: Shell, attic: Shell, paper: Path) -> None:
    """All that was left is lost as well: a home that has joined by an invite and was not started since."""
    invite = quick(desk, "invite", "create", "--name", "Attic")["invite"]
    assert attic.run("invite", "redeem", stdin=invite).returncode == 0
    words = paper.with_name("words.txt")
    words.write_text("\n".join(to_words(load_identity(paper).seed)))
    done = json.loads(attic.run("recover", "--words", words, "--keep-all", "--yes", "--json").stdout)
    assert (done["epoch"], done["written"]) == (3, False)
    with attic.node():
        for shell in (attic, desk):
            wait_for_sync(lambda shell=shell: devices(shell) == ["Desk", "Attic"], what="the new device")  # type: ignore[misc]
        assert quick(attic, "person", "show")["epoch"] == 3
        # The desk has the key of before, and takes the new one from the attic when it needs it.
        assert load_identity(home_of(desk).person_key).node_id != done["key"]
        quick(desk, "device", "add")
        assert load_identity(home_of(desk).person_key).node_id == done["key"]
        assert attic.run("device", "remove", "Desk", "--yes").returncode == 0
        wait_for_sync(lambda: devices(attic) == ["Attic"], what="the removal")
