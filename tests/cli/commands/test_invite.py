"""Invites from the command line, and what redeeming refuses before anybody is asked."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.supervisor.os.lock import home_lock
from hearthnet.trust.community import commands
from hearthnet.trust.community.invites import InviteText
from hearthnet.trust.keys import Identity
from tests.cli.conftest import Here
from tests.helpers.household import Household, make_home, settle
from tests.helpers.members import let_in_any_name

FAR = Identity(bytes([7] * 32))


def text(**changed: object) -> str:
    """An invite of somebody else's community, at an address where nobody listens."""
    invite = InviteText(
        community_id=FAR.node_id,
        seed=ids.b64(bytes(32)),
        address="127.0.0.1:1",
        fingerprint="",
        inviter=FAR.node_id,
        name="Ahornweg",
        expires_at=now_ms() + 60_000,
    )
    return msgspec.structs.replace(invite, **changed).encode()


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """A founder and one member, neither of them running."""
    return settle(tmp_path, {"attic": "member"})


# --- list, withdraw


@pytest.mark.req("JOIN-3")
def test_open_invites_are_listed_without_a_running_node(
    here: Here, household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in_any_name(monkeypatch)
    home = household["attic"].path
    assert here("invite", "list", "--home", home) == 0
    assert "there is no open invite" in here.out
    shed = household.invite("Shed", hours=48)
    barn = household.invite("Barn\x1b[2J", hours=1)
    assert here("invite", "list", "--home", home) == 0
    headings, *rows = here.out.splitlines()
    assert headings.split() == ["invite", "for", "made", "by", "until"]
    assert [row.split()[0] for row in rows] == [barn.event_id, shed.event_id]
    assert "Barn\\x1b[2J" in rows[0]
    assert " founder " in rows[1]
    assert here("invite", "list", "--json", "--home", home) == 0
    page = json.loads(here.out)
    assert [one["event_id"] for one in page] == [barn.event_id, shed.event_id]
    assert page[1]["display_name"] == "Shed"
    assert page[1]["inviter"] == household.key().node_id
    assert page[1]["invitee_node_id"] is None


@pytest.mark.req("JOIN-3")
def test_an_invite_to_withdraw_is_named_by_id_name_or_text(here: Here, household: Household) -> None:
    home = household.founder.path
    invite = household.invite("Shed")
    for name in (invite.event_id, "Shed"):
        assert here("invite", "withdraw", name, "--home", home) == 3, "found, and no node to withdraw it"
    for name in ("Barn", ids.new_ulid(), text()):
        assert here("invite", "withdraw", name, "--home", home) == 5
        assert "there is no such open invite" in here.err
    at_once = Identity(bytes([8] * 32))
    with_text = commands.CommunityAuthor(household.roster, household.key()).invite(
        at_once, display_name="Loft", expires_at=now_ms() + 60_000, now_ms=now_ms()
    )
    household.happen(with_text)
    assert here("invite", "withdraw", text(seed=ids.b64(bytes([8] * 32))), "--home", home) == 3
    household.invite("Shed")
    assert here("invite", "withdraw", "Shed", "--home", home) == 2
    assert "2 invites are called 'Shed'" in here.err
    assert invite.event_id in here.err


@pytest.mark.req("JOIN-3")
@pytest.mark.parametrize(
    ("expires", "said"),
    [
        ("8d", "'8d' is outside what is allowed, 1 min to 7 d"),
        ("10s", "'10s' is outside what is allowed, 1 min to 7 d"),
        ("soon", "'soon' is no length of time"),
    ],
)
def test_how_long_an_invite_is_good_has_bounds(
    here: Here, household: Household, expires: str, said: str
) -> None:
    assert here("invite", "create", "--expires", expires, "--home", household.founder.path) == 2
    assert said in here.err
    assert here.err.count("\n") == 1


@pytest.mark.req("CLI-4", "JOIN-3")
def test_an_invite_is_made_by_a_running_node(here: Here, household: Household) -> None:
    assert here("invite", "create", "--home", household.founder.path) == 3
    assert "hearthnet up" in here.err


# --- redeem


@pytest.mark.req("JOIN-4")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("hello", "this is no invite; one begins with hninvite://v1/"),
        ("", "this is no invite; one begins with hninvite://v1/"),
        ("hninvite://v1/", "the invite is damaged; copy the whole text once more, or ask for another"),
        (text()[:-1], "the invite is damaged; copy the whole text once more, or ask for another"),
        (text()[:50], "the invite is damaged; copy the whole text once more, or ask for another"),
        (
            text().replace("A", "B", 1),
            "the invite is damaged; copy the whole text once more, or ask for another",
        ),
        (text() + "x" * 3000, "this is no invite; one begins with hninvite://v1/"),
    ],
)
def test_a_damaged_invite_is_refused_and_nothing_is_made(
    here: Here, home: Path, given: str, said: str
) -> None:
    assert here("invite", "redeem", given) == 2
    assert here.err == f"hearthnet: {said}\n"
    assert list(home.iterdir()) == []


@pytest.mark.req("JOIN-4")
def test_an_expired_invite_is_refused_and_nothing_is_made(here: Here, home: Path) -> None:
    end = now_ms() - 1
    assert here("invite", "redeem", text(expires_at=end), "--json") == 4
    assert json.loads(here.out)["error"] == "expired"
    assert here.err.startswith(f"hearthnet: the invite has expired at {rfc3339(end)}, and here it is ")
    assert "set the clock of this computer" in here.err
    assert list(home.iterdir()) == []


@pytest.mark.req("JOIN-4")
def test_the_node_has_to_be_stopped(here: Here, tmp_path: Path) -> None:
    home = make_home(tmp_path / "busy", "busy")
    with home_lock(home):
        assert here("invite", "redeem", text(), "--home", home.path) == 1
    assert "a node is already running" in here.err
    assert "end that one with" in here.err


@pytest.mark.req("JOIN-4")
def test_a_home_with_others_in_its_community_stays_there(here: Here, household: Household) -> None:
    home = household["attic"]
    before = home.roster.read_bytes()
    assert here("invite", "redeem", text(), "--home", home.path) == 1
    assert "belongs to founder's community, with 1 more in it" in here.err
    assert home.roster.read_bytes() == before


@pytest.mark.req("JOIN-4")
def test_an_inviter_that_cannot_be_reached_is_said_and_the_home_stays_as_it_was(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet.supervisor.community.join_client.LINK_SECONDS", 0.3)
    home = settle(tmp_path, {}).founder
    before = home.roster.read_bytes()
    assert here("invite", "redeem", text(), "--home", home.path) == 6
    assert "the home at 127.0.0.1:1 cannot be reached" in here.err
    assert home.roster.read_bytes() == before
    assert not home.upstream.exists()
    assert not (home.run / "joining").exists()


@pytest.mark.req("CLI-3")
def test_a_communitys_name_cannot_steer_the_terminal(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet.supervisor.community.join_client.LINK_SECONDS", 0.1)
    household = settle(tmp_path, {"attic": "member"}, founder_name="evil\\u001b[2J")
    known = text(community_id=household.roster.community_id)
    assert here("invite", "redeem", known, "--home", household["attic"].path) == 6
    assert "belongs to evil\\x1b[2J's community already" in here.err
    assert "\x1b" not in here.err


@pytest.mark.req("JOIN-4")
def test_an_address_beyond_this_computer_takes_a_certificate(here: Here, home: Path) -> None:
    assert here("invite", "redeem", text(address="192.0.2.1:7422")) == 2
    assert "names no certificate" in here.err


@pytest.mark.req("JOIN-4")
def test_an_invite_is_read_from_a_pipe_with_the_breaks_that_pasting_leaves(
    here: Here, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = text(expires_at=1)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"  {expired[:70]}\n{expired[70:]}\n\n"))
    assert here("invite", "redeem") == 4
    assert "has expired" in here.err
