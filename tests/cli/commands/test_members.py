"""Who belongs to the community, and putting somebody out of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hearthnet.core import ids
from hearthnet.trust.community import proposals
from hearthnet.trust.keys import Identity
from tests.cli.conftest import Here, Village
from tests.helpers.household import Household, settle
from tests.helpers.members import let_in_any_name, take_in
from tests.helpers.waiting import wait_for_sync


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """A founder, two whom it trusts and a plain member, none of them running."""
    return settle(tmp_path, {"attic": "trusted", "barn": "trusted", "cellar": "member"})


def run_at(here: Here, household: Household, name: str, *arguments: str) -> int:
    """A command in the home of `name`, the founder's where it is empty."""
    home = household.founder if not name else household[name]
    return here(*arguments, "--home", home.path)


@pytest.mark.req("MEMBERS-1")
def test_members_are_listed_without_a_running_node_and_it_says_so(here: Here, household: Household) -> None:
    household.invite("Shed")
    assert run_at(here, household, "attic", "members") == 0
    title, _, headings, *rows = here.out.splitlines()
    assert title == "founder's community, 4 members"
    assert headings.split() == ["name", "id", "level", "since"]
    shown = {row.split()[0]: row for row in rows if "ed25519:" in row}
    assert list(shown) == ["founder", "attic", "barn", "cellar"]
    assert ids.short_id(household.key("attic").node_id) in shown["attic"]
    assert shown["attic"].endswith("this node")
    assert " trusted " in shown["barn"]
    assert " today " in shown["cellar"]
    assert "1 open invite; see: hearthnet invite list" in here.out
    assert here.err == "no node runs here: this is what it knew when it last ran\n"


@pytest.mark.req("MEMBERS-1")
def test_members_for_scripts_hold_the_revoked_and_the_open_invites(here: Here, tmp_path: Path) -> None:
    household = settle(tmp_path, {"cellar": "member", "attic": "member"})
    household.revoke("cellar")
    invite = household.invite("Shed")
    assert run_at(here, household, "", "members", "--json") == 0
    page = json.loads(here.out)
    assert here.err == ""
    assert page["node_id"] == household.key().node_id
    assert page["community_id"] == household.roster.community_id
    assert page["running"] is False
    assert page["policy"]["min_signatures_to_revoke"] == 3
    assert [(one["display_name"], one["level"]) for one in page["members"]] == [
        ("founder", "anchor"),
        ("attic", "member"),
    ]
    assert [one["node_id"] for one in page["revoked"]] == [household.key("cellar").node_id]
    (open_invite,) = page["invites"]
    assert open_invite["event_id"] == invite.event_id
    assert open_invite["display_name"] == "Shed"
    assert "login" not in open_invite
    assert run_at(here, household, "", "members") == 0
    assert "1 put out" in here.out


@pytest.mark.req("CLI-3", "MEMBERS-1")
def test_a_members_name_cannot_steer_the_terminal(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in_any_name(monkeypatch)
    household = settle(tmp_path, {"evil\x1b[2J\u202e": "member"})
    for options in ([], ["--json"]):
        assert run_at(here, household, "", "members", *options) == 0
        assert "evil" in here.out
        assert "\x1b" not in here.out
        assert "\u202e" not in here.out


@pytest.mark.req("MEMBERS-1")
def test_a_home_without_a_community_says_what_to_do(here: Here) -> None:
    assert here("members") == 5
    assert here.err.endswith("`hearthnet up` makes one\n")


@pytest.mark.req("MEMBERS-3")
def test_a_proposal_goes_round_until_there_are_enough_signatures(here: Here, household: Household) -> None:
    assert run_at(here, household, "", "revoke", "cellar", "--reason", "inactive", "--yes") == 0
    first = here.out.strip()
    assert "it takes 2 more signatures" in here.err
    assert "hearthnet revoke --sign TEXT" in here.err
    assert run_at(here, household, "attic", "revoke", "--sign", first, "--yes", "--json") == 0
    second = json.loads(here.out)
    assert (second["done"], second["signatures"], second["needed"]) == (False, 2, 3)
    proposal = proposals.decode(second["proposal"])
    assert len(proposal.check(household.roster)) == 2
    assert run_at(here, household, "barn", "revoke", "--sign", second["proposal"], "--yes") == 0
    assert "enough have signed, but no node runs here" in here.err
    assert len(proposals.decode(here.out.strip()).check(household.roster)) == 3


@pytest.fixture
def family(tmp_path: Path) -> Household:
    """The cellar let in the shed, the shed the hut; the attic is of its own."""
    family = settle(tmp_path, {"cellar": "member", "attic": "member"})
    for by, number, name in ((family.key("cellar"), 41, "shed"), (Identity(bytes([41]) * 32), 42, "hut")):
        later = take_in(family.roster, by, Identity(bytes([number]) * 32), name)
        family.happen(*(one for one in later.events if family.roster.history.get(one.hash) is None))
    return family


@pytest.mark.req("MEMBERS-3")
def test_those_who_came_by_a_member_are_named_when_it_is_put_out(here: Here, family: Household) -> None:
    assert run_at(here, family, "", "revoke", "cellar", "--yes") == 0
    assert "came by invites of cellar, or of those whom it invited: shed (ed25519:" in here.err
    assert f"hearthnet revoke {family.key('cellar').node_id} --with-invited" in here.err
    assert here.out.count("hnproposal://") == 1
    assert run_at(here, family, "", "revoke", "cellar", "--yes", "--json") == 0
    page = json.loads(here.out)
    assert [sorted(one) for one in page["invited"]] == [["display_name", "node_id"]] * 2
    assert run_at(here, family, "", "revoke", "attic", "--yes", "--json") == 0
    assert json.loads(here.out)["invited"] == []


@pytest.mark.req("MEMBERS-3")
def test_those_who_came_by_a_member_are_put_out_with_it_or_later(here: Here, family: Household) -> None:
    assert run_at(here, family, "", "revoke", "cellar", "--with-invited", "--yes", "--json") == 0
    page = json.loads(here.out)
    texts = [page["proposal"], *(one["proposal"] for one in page["invited"])]
    targets = [proposals.decode(text).target_node_id for text in texts]
    assert targets == [family.key("cellar").node_id, *(one["node_id"] for one in page["invited"])]
    assert [one["display_name"] for one in page["invited"]] == ["shed", "hut"]
    assert run_at(here, family, "", "revoke", "cellar", "--with-invited") == 7
    family.revoke("cellar")
    node = family.key("cellar").node_id
    assert run_at(here, family, "", "revoke", node, "--with-invited", "--yes", "--json") == 0
    page = json.loads(here.out)
    assert (page["done"], [one["display_name"] for one in page["invited"]]) == (True, ["shed", "hut"])


@pytest.mark.req("MEMBERS-3")
def test_signing_twice_adds_nothing_and_a_plain_member_cannot(here: Here, household: Household) -> None:
    assert run_at(here, household, "", "revoke", "cellar", "--yes", "--json") == 0
    first = json.loads(here.out)["proposal"]
    assert run_at(here, household, "", "revoke", "--sign", first, "--yes", "--json") == 0
    assert json.loads(here.out)["signatures"] == 1
    assert run_at(here, household, "cellar", "revoke", "attic", "--yes") == 4
    assert "it takes level trusted" in here.err


@pytest.mark.req("MEMBERS-3")
def test_what_is_proposed_is_signed_with_the_command_for_it(here: Here, household: Household) -> None:
    assert run_at(here, household, "", "members", "demote", "attic", "member", "--yes") == 0
    text = here.out.strip()
    assert "hearthnet members demote --sign TEXT" in here.err
    assert run_at(here, household, "barn", "revoke", "--sign", text, "--yes") == 2
    assert "hearthnet members demote --sign" in here.err
    damaged = text[:40] + ("A" if text[40] != "A" else "B") + text[41:]
    assert run_at(here, household, "barn", "members", "demote", "--sign", damaged, "--yes") == 2
    assert "the proposal is damaged" in here.err


@pytest.mark.req("MEMBERS-2")
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["revoke"], 2, "name the member, or pass --sign"),
        (["revoke", "attic", "--sign", "x"], 2, "name the member, or pass --sign"),
        (["revoke", "atic", "--yes"], 5, "did you mean attic"),
        (["revoke", "founder", "--yes"], 2, "no node decides about itself"),
        (["revoke", "attic", "--reason", "noise"], 2, "'noise' is not one of"),
        (["revoke", "attic"], 7, "say it with --yes"),
        (["members", "promote", "attic", "king"], 2, "'king' is not one of"),
        (["members", "demote", "attic"], 2, "name the member and its new level"),
        (["members", "promote", "nobody", "trusted"], 5, "there is no member 'nobody'"),
        (["members", "promote", "cellar", "trusted"], 3, "no node is running"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_its_exit_code(
    here: Here, household: Household, arguments: list[str], status: int, said: str
) -> None:
    assert run_at(here, household, "", *arguments) == status
    assert said in here.err
    assert here.err.count("\n") == 1


# --- with a running node


@pytest.mark.e2e
@pytest.mark.req("MEMBERS-3")
def test_the_last_signature_carries_it_out(village: Village, here: Here) -> None:
    text = here.json("revoke", "mill", "--yes", *village.at("attic"))["proposal"]
    text = here.json("revoke", "--sign", text, "--yes", *village.at("barn"))["proposal"]
    with village.shell.terminal("revoke", "--sign", text) as screen:
        question = screen.expect("[y]es or [n]o? ")
        assert question.startswith("Put mill (ed25519:")
        assert "Signed by attic (ed25519:" in question
        screen.type("maybe\n")
        assert screen.end() == 4
    assert "mill" in [one["display_name"] for one in here.json("members", *village.at())["members"]]
    with village.shell.terminal("revoke", "--sign", text) as screen:
        screen.expect("[y]es or [n]o? ")
        screen.type("y\n")
        screen.expect("is put out")
        assert screen.end() == 0
    wait_for_sync(
        lambda: [one["reason"] for one in here.json("members", *village.at())["revoked"]] == ["other"],
        what="the roster on the disk",
    )
    assert here("revoke", "--sign", text, "--yes", *village.at()) == 5
    assert "is no member of founder's community" in here.err


@pytest.mark.e2e
@pytest.mark.req("MEMBERS-2")
def test_a_member_is_promoted_and_demoted(village: Village, here: Here) -> None:
    at = village.at()

    def level() -> str:
        members = here.json("members", *at)["members"]
        return next(str(one["level"]) for one in members if one["display_name"] == "shed")

    assert here("members", "promote", "shed", "trusted", *at) == 0
    assert here.out.startswith("shed (ed25519:")
    wait_for_sync(lambda: level() == "trusted", what="the promotion on the disk")
    demotion = here.json("members", "demote", "shed", "member", "--yes", *village.at("attic"))
    assert demotion["needed"] == 3
    text = here.json("members", "demote", "--sign", demotion["proposal"], "--yes", *village.at("barn"))
    assert here("members", "demote", "--sign", text["proposal"], "--yes", *at) == 0, here.err
    assert "is member now" in here.out
    wait_for_sync(lambda: level() == "member", what="the demotion on the disk")
