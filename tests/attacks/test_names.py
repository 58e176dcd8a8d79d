"""Homes that call themselves something that people take for another home, or for this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import commands
from hearthnet.trust.keys import Identity
from tests.attacks.conftest import Victim
from tests.helpers.members import let_in_any_name, take_in
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell

pytestmark = pytest.mark.req("ATTACK-35")
LOOKS_LIKE_ANNA = "\u0430nn\u0430"


def test_a_home_cannot_join_as_this_node(victim: Victim, tmp_path: Path) -> None:
    shell, newcomer = Shell(victim.home.path), Shell(tmp_path / "newcomer")
    refused = shell.run("invite", "create", "--name", "th\u0456s node")
    assert refused.returncode != 0
    assert "word for a role" in refused.stderr
    text = str(shell.json("invite", "create", "--json")["invite"])
    newcomer.home.mkdir()
    (newcomer.home / "hearthnet.toml").write_text('[node]\ndisplay_name = "an\\u202ena"\n')
    refused = newcomer.run("invite", "redeem", text)
    assert refused.returncode != 0
    assert "characters that nobody sees" in refused.stderr
    assert not (newcomer.home / "community" / "roster.json").exists()


def test_the_inviter_refuses_it_whatever_the_newcomer_runs(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hearthnet.bus.session.keyring import load_roster

    held, newcomer = load_roster(victim.home.roster), Identity.generate()
    monkeypatch.setattr(commands, "check_name", lambda name: None)
    with pytest.raises(HearthNetError, match="word for a role"):
        take_in(held, victim.identity, newcomer, "this node")


def test_names_of_before_are_shown_as_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of the version before has let them in."""
    let_in_any_name(monkeypatch)
    names = ("anna", LOOKS_LIKE_ANNA, "this node", "\u200b\u202ebert")
    neighbourhood = settle_in(tmp_path, *names, services=())
    shell = Shell(neighbourhood.founder.path)
    page = shell.json("members", "--json")
    shown = {one["display_name"]: one["node_id"] for one in page["members"]}
    short = {name: ids.short_id(node) for name, node in shown.items()}
    assert sorted(name.partition(" (")[0] for name in shown) == sorted(
        [
            "founder",
            "anna",
            LOOKS_LIKE_ANNA,
            "bert",
            next(name for name in shown if name.startswith("ed25519:")),
        ]
    )
    assert all(name.partition(" (")[2] in ("", f"{short[name]})") for name in shown)
    assert {"founder", "bert"} <= shown.keys()
    assert not {"anna", LOOKS_LIKE_ANNA} & shown.keys(), "neither keeps the plain name"
    unclear = shell.run("call", "market.list", "--node", "anna")
    assert "2 members are called 'anna'" in unclear.stderr
    own = [line for line in shell.run("members").stdout.splitlines() if "this node" in line]
    assert [ids.short_id(page["node_id"]) in line for line in own] == [True]


@pytest.mark.parametrize(("name", "other"), [("Emma", "Emrna"), ("Walter", "VValter"), ("Dora", "Clora")])
def test_pairs_of_letters_read_as_one_do_not_pass_for_another_home(
    tmp_path: Path, name: str, other: str
) -> None:
    """A newcomer joins under a name that looks like a member's: both are shown with ids."""
    neighbourhood = settle_in(tmp_path, name, services=("auth",))
    shell, newcomer = Shell(neighbourhood.founder.path), Shell(tmp_path / "newcomer")
    with shell.node():
        text = str(shell.json("invite", "create", "--json")["invite"])
        newcomer.home.mkdir()
        (newcomer.home / "hearthnet.toml").write_text(f'[node]\ndisplay_name = "{other}"\n')
        joined = newcomer.run("invite", "redeem", text)
        assert joined.returncode == 0, joined.stderr
        page = shell.json("members", "--json")
        shown = {one["node_id"]: one["display_name"] for one in page["members"]}
        alike = {node: text for node, text in shown.items() if text.partition(" (")[0] in (name, other)}
        assert sorted(alike.values()) == sorted(
            f"{text.partition(' (')[0]} ({ids.short_id(node)})" for node, text in alike.items()
        )
        assert {text.partition(" (")[0] for text in alike.values()} == {name, other}
        listed = shell.run("members").stdout
        assert all(ids.short_id(node) in listed for node in alike)
        refused = shell.run("invite", "create", "--name", "0wn")
        assert (refused.returncode != 0, "word for a role" in refused.stderr) == (True, True)
