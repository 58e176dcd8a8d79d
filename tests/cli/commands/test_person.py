"""The person of a home's owner and its devices: shown anywhere, removed at a running node after a yes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hearthnet.bus.session import keyring
from hearthnet.cli.commands import person_removal
from hearthnet.cli.workflows import home_person, person_key
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.home_persons import HomePerson, HomePersons
from hearthnet.supervisor.nats.home_setup import Prepared, make_person
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.cli.conftest import Here
from tests.helpers.household import Household, settle
from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync


class Owner(NamedTuple):
    """The founder's person: its id and its person key."""

    person: str
    key: Identity


def begin(household: Household) -> Owner:
    """Gives the founder a person, with its node."""
    home = household.founder
    make_person(Prepared(home, household.key(), household.roster, None), lambda line: None)  # type: ignore[arg-type]
    key, recovery = keyring.load_identity(home.person_key), keyring.load_identity(home.recovery_key)
    household.happen(CommunityAuthor(household.roster, household.key()).key_person(recovery, key, now_ms()))
    author = CommunityAuthor(household.roster, household.key())
    household.happen(author.add_node(recovery.node_id, key, "Kitchen", now_ms()))
    return Owner(recovery.node_id, key)


def add(household: Household, owner: Owner, name: str) -> str:
    """A phone of the founder's person; returns its key."""
    phone, held = Identity.generate(), household.roster
    offered = statements.offered_device(
        held.community_id, owner.person, owner.key, phone.node_id, "phone", name
    )
    signed = statements.consented(held.community_id, offered, phone)
    household.happen(CommunityAuthor(held, household.key()).add_device(signed, now_ms()))
    return phone.node_id


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """A founder and its attic, none of them running."""
    return settle(tmp_path, {"attic": "member"})


@pytest.mark.req("PERSON-10")
def test_a_home_without_a_person_says_how_it_gets_one(here: Here, household: Household) -> None:
    for command in (("person", "show"), ("device", "list"), ("device", "remove", "x", "--yes")):
        assert here(*command, "--home", household.founder.path) == 5
        assert "this home has no person yet; it gets one when its node is started" in here.err


@pytest.mark.req("PERSON-10")
def test_the_person_is_shown_with_its_devices_and_where_its_keys_are(
    here: Here, household: Household
) -> None:
    owner = begin(household)
    phone = add(household, owner, "Phone")
    place = ("--home", household.founder.path)
    page = here.json("person", "show", *place)
    assert (page["person"], page["short_id"]) == (owner.person, ids.short_id(owner.person))
    assert (page["name"], page["epoch"], page["former"]) == ("founder", 1, [])
    assert [(one["name"], one["kind"], one["this"]) for one in page["devices"]] == [
        ("Kitchen", "node", True),
        ("Phone", "phone", False),
    ]
    assert page["devices"][1]["id"] == phone
    assert (page["recovery_key_here"], page["person_key_here"]) == (True, True)
    assert here.json("device", "list", *place) == page["devices"]
    assert here("person", "show", *place) == 0
    assert "the recovery key is on this computer" in here.out
    household.founder.recovery_key.unlink()
    assert here("person", "show", *place) == 0
    assert "the recovery key is not on this computer" in here.out
    assert here("device", "list", *place) == 0
    assert [line.split()[0] for line in here.out.splitlines()] == ["name", "Kitchen", "Phone"]


@pytest.mark.req("PERSON-10")
def test_a_removal_takes_one_device_and_a_yes(here: Here, household: Household) -> None:
    owner = begin(household)
    for _ in range(2):
        add(household, owner, "Phone")
    place = ("--home", household.founder.path)
    assert here("device", "remove", "Phone", *place) == 2
    assert "2 devices are called 'Phone'" in here.err
    assert here("device", "remove", "Phon", "--yes", *place) == 5
    assert "did you mean Phone?" in here.err
    assert here("device", "remove", "Kitchen", *place) == 7
    assert "say it with --yes" in here.err


@pytest.mark.req("PERSON-33")
def test_the_person_key_is_fetched_from_other_nodes_alone(household: Household) -> None:
    home = household.founder
    person_key.renew(home)
    assert not home.person_key.exists()
    owner = begin(household)
    add(household, owner, "Phone")
    person = household.roster.person(owner.person)
    assert person is not None
    assert len(person.devices) == 2
    # Neither a phone nor the own node is asked: no bus is needed.
    fetched = person_key._fetched(None, household.key(), person)  # type: ignore[arg-type]
    assert asyncio.run(fetched) is None


@pytest.mark.req("PERSON-8", "PERSON-10")
def test_an_old_home_gets_a_person_and_removes_its_devices(tmp_path: Path) -> None:
    """A home of the version before has no keys of a person; its node is then started twice."""
    neighbourhood = settle_in(tmp_path, "attic", services=("auth",))
    home = neighbourhood.founder
    shell = Shell(home.path)
    with shell.node():
        page = wait_for_sync(lambda: _shown(shell), what="the person to be written down")
        assert page["person"] == keyring.load_identity(home.recovery_key).node_id
        (node,) = page["devices"]
        last = shell.run("device", "remove", node["name"], "--yes")
        assert last.returncode == 2
        assert "the person's last node" in last.stderr
    before = _written(home)
    assert before == [statements.KEYED, statements.DEVICE_ADDED]

    roster, key = _held(home), keyring.load_identity(home.person_key)
    attic = keyring.load_identity(neighbourhood.home("attic").device_key)
    author = CommunityAuthor(roster, attic)
    larger = _merged(roster, author.add_node(page["person"], key, "Attic", now_ms()))
    home.roster.unlink()
    own = keyring.load_identity(home.device_key)
    keyring.write_new(home.roster, rosters.encode(rosters.seal(larger, own)))
    with shell.node():
        assert _written(home) == [*before, statements.DEVICE_ADDED]
        done = shell.json("device", "remove", ids.short_id(attic.node_id), "--yes", "--json")
        assert done["device"] == attic.node_id
        assert [one["name"] for one in shell.json("device", "list", "--json")] == [node["name"]]
        assert attic.node_id in str(shell.json("members", "--json")["revoked"])
        assert shell.run("device", "remove", ids.short_id(attic.node_id), "--yes").returncode == 5


@pytest.mark.req("PERSON-80")
def test_no_device_is_said_to_be_removed_where_the_key_is_not_here(household: Household) -> None:
    owner = begin(household)
    phone = add(household, owner, "Phone")
    home, entry = household.founder, HomePerson(name="anna", person=owner.person, created_at=1)
    assert home_person._remove_devices(home, entry) == []
    key = HomePersons(home).person_key("anna")
    key.parent.mkdir(parents=True)
    home.person_key.rename(key)
    assert phone in home_person._remove_devices(home, entry)


def _shown(shell: Shell) -> dict[str, Any] | None:
    """What `person show` prints, None until there is a person."""
    done = shell.run("person", "show", "--json")
    page: dict[str, Any] = json.loads(done.stdout)
    return page if done.returncode == 0 else None


def _held(home: Home) -> Roster:
    return keyring.load_roster(home.roster)


def _merged(roster: Roster, event: CommunityEvent) -> Roster:
    return rosters.merge(roster, [event])


def _written(home: Home) -> list[str]:
    """The kinds of the events about persons in the home's roster."""
    held = _held(home).events
    return [one.event_type for one in held if isinstance(one.content, statements.Statement)]


@pytest.mark.req("PERSON-80")
def test_what_a_removal_took_and_left_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    done = {
        "devices": ["a"],
        "unfinished": "",
        "documents_removed": 2,
        "files_removed": 0,
        "runs_removed": 1,
        "corpora": ["recipes"],
    }
    person_removal._print_removed("anna", done)
    assert capsys.readouterr().out.splitlines() == [
        "anna is removed, with 1 device",
        "removed: 2 documents, 0 files, 1 run",
        "yours now: recipes; see: hearthnet corpus list",
    ]
    person_removal._print_removed("anna", {**done, "unfinished": "the node does not run"})
    assert capsys.readouterr().err == "the node does not run\n"
