"""Helpers at the command line, as far as no node has to run: who agrees, who is shown, and the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hearthnet.backup.shares import split
from hearthnet.bus.session import keyring
from hearthnet.cli.input.member_lookup import KnownMember
from hearthnet.cli.workflows import helping
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.community import recovery_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.cli.commands.test_person import Owner, begin
from tests.cli.conftest import Here
from tests.helpers.household import Household, settle
from tests.helpers.members import act

SHARED = Identity.generate()


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """A founder, whose person begins, and others, none of them running."""
    return settle(tmp_path, {"attic": "member", "barn": "trusted", "cabin": "member", "shed": "member"})


def named(household: Household, owner: Owner, *names: str, number: int = 1) -> statements.HelpersNamed:
    """The founder's person has named these witnesses."""
    recovery, held = keyring.load_identity(household.founder.recovery_key), household.roster
    witnesses = tuple(household.key(name).node_id for name in names)
    content = CommunityAuthor(held, recovery).named_helpers(SHARED.node_id, 259_200, witnesses)
    household.happen(act(held, household.key(), statements.HELPERS_NAMED, content, now_ms=now_ms()))
    assert content.number == number
    return content


@pytest.mark.req("PERSON-47")
def test_who_helps_agrees_and_sees_for_whom(here: Here, household: Household) -> None:
    owner, place = begin(household), ("--home", household["attic"].path)
    assert here("helpers", "kept", *place) == 0
    assert "keeps no share for anybody" in here.out
    assert here("helpers", "accept", "cabin", *place) == 5
    assert "has no person yet" in here.err
    for _ in range(2):
        assert here.json("helpers", "accept", "founder", *place) == {
            "person": owner.person,
            "name": "founder",
        }
    (path,) = household["attic"].helping.iterdir()
    path.write_text(json.dumps({"person": owner.person, "number": 2, "share": "words"}))
    here.json("helpers", "accept", owner.person, *place)
    assert json.loads(path.read_bytes())["share"] == "words"
    assert here.json("helpers", "kept", *place) == [
        {"person": owner.person, "name": "founder", "share_here": True}
    ]
    for damage in ("{", "[]"):
        path.write_text(damage)
        assert here("helpers", "kept", *place) == 2
        assert f"{path} is damaged" in here.err
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.req("PERSON-47")
def test_helpers_are_shown_with_who_has_left(here: Here, tmp_path: Path) -> None:
    household = settle(tmp_path, dict.fromkeys(("attic", "barn", "cabin"), "member"))
    owner, place = begin(household), ("--home", household.founder.path)
    assert here("helpers", "list", *place) == 0
    assert "you have no helpers" in here.out
    statement = named(household, owner, "attic", "barn", "cabin")
    helpers = [KnownMember(household.key(name).node_id, name) for name in ("attic", "barn")]
    helping.remember_helpers(household.founder, statement.number, helpers)
    household.revoke("cabin")
    page = here.json("helpers", "list", *place)
    assert [one["name"] for one in page["helpers"]] == ["attic", "barn"]
    assert sorted((one["name"], one["is_member"]) for one in page["witnesses"]) == [
        ("", False),
        ("attic", True),
        ("barn", True),
    ]
    assert here("helpers", "list", *place) == 0
    assert "waiting time: 3 d" in here.out
    rows = [" ".join(line.split()) for line in here.out.splitlines()]
    gone = ids.short_id(household.key("cabin").node_id)
    assert {"attic has a share", "barn has a share"} <= set(rows)
    assert f"{gone} witness not a member any more: choose anew" in rows
    # Chosen anew elsewhere: who has the shares is not known here.
    named(household, owner, "attic", number=2)
    assert here.json("helpers", "list", *place)["helpers"] == []


@pytest.mark.req("PERSON-47")
def test_a_new_home_gets_a_code_and_gives_up(here: Here, household: Household) -> None:
    owner, place = begin(household), ("--home", household["shed"].path)
    assert here("helpers", "ask", "founder", *place) == 5
    assert "has no helpers" in here.err
    assert here("helpers", "ask", *place) == 5
    named(household, owner, "attic", "barn", "cabin")
    page = here.json("helpers", "ask", "founder", *place)
    node = household.key("shed").node_id
    assert helping.node_with_code(household.roster, owner.person, page["code"].upper()).node_id == node
    assert page == here.json("helpers", "ask", *place)
    assert here("helpers", "begin", *place) == 2
    for _ in range(2):
        assert here.json("helpers", "ask", "--stop", *place) == {"person": ""}
    assert not household["shed"].recovering.exists()
    assert here("helpers", "begin", "--keep-all", *place) == 5
    assert here("helpers", "choose", "attic", "barn", "cabin", *place) == 5


@pytest.mark.req("PERSON-47", "ATTACK-83")
def test_a_code_is_of_one_node_of_one_person(household: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    held: Roster = household.roster
    nodes = [one.node_id for one in held.members]
    codes = {statements.share_code(held.community_id, person, one) for one in nodes for person in nodes}
    assert len(codes) == len(nodes) ** 2
    with pytest.raises(HearthNetError) as none:
        helping.node_with_code(held, nodes[0], "aaaa-aaaa-aaaa")
    assert none.value.code == "not_found"
    monkeypatch.setattr(statements, "share_code", lambda *_: "aaaaaaaaaaaa")
    with pytest.raises(HearthNetError) as two:
        helping.node_with_code(held, nodes[0], "aaaa-aaaa-aaaa")
    assert two.value.code == "bad_request"


@pytest.mark.req("PERSON-47", "ATTACK-83")
def test_a_code_of_another_persons_node_is_refused(household: Household) -> None:
    """Somebody has read it out as that of the person whose share is here."""
    owner, barn = begin(household), household.key("barn")
    held, paper, key = household.roster, Identity.generate(), Identity.generate()
    code = statements.share_code(held.community_id, owner.person, barn.node_id)
    assert helping.node_with_code(household.roster, owner.person, code).node_id == barn.node_id
    household.happen(CommunityAuthor(held, barn).key_person(paper, key, now_ms()))
    household.happen(CommunityAuthor(household.roster, barn).add_node(paper.node_id, key, "Barn", now_ms()))
    with pytest.raises(HearthNetError, match="of a node of barn") as refused:
        helping.node_with_code(household.roster, owner.person, code)
    assert refused.value.code == "bad_request"


@pytest.mark.req("PERSON-47")
def test_a_recovery_begun_twice_has_one_key(here: Here, household: Household) -> None:
    """The node was stopped: what the first command has signed waits, and counts all the same."""
    owner, home = begin(household), household["shed"]
    key = Identity.generate()
    statement = CommunityAuthor(
        household.roster, keyring.load_identity(household.founder.recovery_key)
    ).named_helpers(key.node_id, 86_400, (household.key("barn").node_id,))
    household.happen(
        act(household.roster, household.key(), statements.HELPERS_NAMED, statement, now_ms=now_ms())
    )
    here.json("helpers", "ask", "founder", "--home", home.path)
    for number, share in enumerate(split(key)[:2]):
        (home.recovering / f"{number}.share").write_text(share)
    found = list[str]()
    for _ in range(2):
        assert here("helpers", "begin", "--keep-all", "--yes", "--home", home.path) == 3
        found.append(keyring.load_identity(home.recovering / "person.key").node_id)
    begun = [one["data"]["key"] for one in json.loads(home.recovery_statements.read_bytes())]
    assert len({*found, *begun}) == 1
    assert owner.person == statement.person


@pytest.mark.req("PERSON-42")
def test_shares_that_were_not_all_handed_out_use_up_their_number(here: Here, household: Household) -> None:
    """A helper has that statement, and could put it beside the next one in the log."""
    begin(household)
    place = ("--home", household.founder.path)
    for number in (1, 2):
        assert here("helpers", "choose", "attic", "barn", "cabin", "--yes", *place) == 3
        assert helping.last_number(household.founder) == number
    assert helping.remembered_helpers(household.founder, 2) == []
    assert here("helpers", "forget", "--yes", *place) == 3
    (none,) = json.loads(household.founder.recovery_statements.read_bytes())
    assert none["data"]["number"] == 3


@pytest.mark.req("PERSON-47", "ATTACK-80")
def test_homes_that_helpers_invited_witness_by_name_alone(household: Household) -> None:
    """Two colluding helpers could have invited any number of them; a person with two homes has one word."""
    owner, held = begin(household), household.roster
    helpers = [KnownMember(household.key(name).node_id, name) for name in ("attic", "cabin")]
    found = helping.witnesses_of(household.roster, helpers, (), owner.person)
    assert found == [household.key(name).node_id for name in ("attic", "cabin", "barn")]
    found = helping.witnesses_of(household.roster, helpers, ("shed", "founder"), owner.person)
    assert found == [household.key(name).node_id for name in ("attic", "cabin", "shed", "barn")]
    for names in (("attic", "barn"), ("attic", "attic", "barn"), ("attic", "barn", "founder")):
        with pytest.raises(HearthNetError) as refused:
            helping.chosen_helpers(household.roster, names, owner.person)
        assert refused.value.code == "bad_request"
    assert len(helping.chosen_helpers(household.roster, ("attic", "barn", "shed"), owner.person)) == 3
    assert held.community_id == household.roster.community_id
