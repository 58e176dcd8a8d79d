"""Invites that several have to agree to, from the command line, where no node runs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.core.times import now_ms
from hearthnet.trust.community import commands, proposals
from hearthnet.trust.community.roster import Policy
from hearthnet.trust.keys import Identity
from tests.cli.conftest import Here
from tests.helpers.household import Household, settle

NEWCOMER = Identity(bytes([9] * 32)).node_id


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """A founder, a trusted member and two plain ones; only the trusted invite, three of them together."""
    household = settle(tmp_path, {"attic": "trusted", "barn": "trusted", "cellar": "member"})
    rule(household, min_signatures_to_invite=3, default_member_can_invite=False)
    return household


def rule(household: Household, **members: object) -> None:
    """The community's root changes the rules."""
    policy = msgspec.structs.replace(Policy(), **members)
    root = keyring.load_identity(household.founder.community_key)
    household.happen(commands.CommunityAuthor(household.roster, root).set_policy(policy, now_ms()))


def run_at(here: Here, household: Household, name: str, *arguments: str) -> int:
    """Runs a command in the home of `name`, the founder's without one."""
    home = household[name] if name else household.founder
    return here("invite", *arguments, "--home", home.path)


def propose(here: Here, household: Household) -> str:
    """The founder's proposal, as text."""
    assert run_at(here, household, "", "create", "--for", NEWCOMER, "--name", "Shed", "--json") == 0
    page = json.loads(here.out)
    assert (page["done"], page["signatures"], page["needed"]) == (False, 1, 3)
    return str(page["proposal"])


@pytest.mark.req("JOIN-10")
def test_a_proposal_goes_round_until_there_are_enough_signatures(here: Here, household: Household) -> None:
    assert run_at(here, household, "", "create", "--for", NEWCOMER, "--name", "Shed", "--expires", "2h") == 0
    first = here.out.strip()
    assert "it takes 2 more signatures, of members with level trusted other than Shed" in here.err
    assert here.err.endswith("hearthnet invite sign TEXT\n")
    assert run_at(here, household, "attic", "sign", first, "--yes", "--json") == 0
    second = json.loads(here.out)
    assert (second["done"], second["signatures"], second["needed"]) == (False, 2, 3)
    assert run_at(here, household, "barn", "sign", second["proposal"], "--yes") == 0
    assert "enough have signed, but no node runs here" in here.err
    signed = proposals.decode(here.out.strip())
    assert len(signed.check(household.roster)) == 3
    assert (signed.target_node_id, signed.what) == (NEWCOMER, "Shed")
    assert 0 < signed.expires_at - now_ms() <= 7_200_000


@pytest.mark.req("JOIN-10")
def test_a_text_from_a_pipe_is_signed(
    here: Here, household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(propose(here, household) + "\n"))
    assert run_at(here, household, "attic", "sign", "-", "--yes", "--json") == 0
    assert json.loads(here.out)["signatures"] == 2


@pytest.mark.req("JOIN-10")
def test_what_cannot_be_agreed_to_is_one_line_with_its_exit_code(here: Here, household: Household) -> None:
    text = propose(here, household)
    proposal = proposals.decode(text)

    def altered(**members: object) -> str:
        return proposals.encode(msgspec.structs.replace(proposal, **{"co_signers": (), **members}))

    member = household.key("cellar").node_id
    for name, given, status, said in (
        ("cellar", [text, "--yes"], 4, "it takes level trusted"),
        ("attic", [text], 7, "say it with --yes"),
        ("attic", [text[:-1], "--yes"], 2, "the proposal is damaged"),
        ("attic", [altered(expires_at=1), "--yes"], 4, "the proposal has expired"),
        ("attic", [altered(target_node_id=member), "--yes"], 2, "is a member already"),
        ("attic", [altered(community_id=NEWCOMER), "--yes"], 4, "about another community"),
        (
            "attic",
            [altered(what="Barn", co_signers=proposal.co_signers), "--yes"],
            4,
            "something else",
        ),
    ):
        assert run_at(here, household, name, "sign", *given) == status
        assert said in here.err
        assert here.err.count("\n") == 1
    assert run_at(here, household, "cellar", "create", "--for", NEWCOMER) == 4
    assert "it takes level trusted" in here.err
    assert run_at(here, household, "", "create", "--for", NEWCOMER, "--name", "x" * 65) == 2
    assert "at most 64 characters" in here.err
    assert run_at(here, household, "", "create", "--for", "attic") == 2
    assert here.err == "hearthnet: 'attic' is not a node id (ed25519: and 43 characters)\n"
    assert here("revoke", "--sign", text, "--yes", "--home", household["attic"].path) == 2
    assert "the proposal is for: hearthnet invite sign" in here.err


@pytest.mark.req("JOIN-10")
def test_where_one_signature_is_enough_the_node_itself_is_asked(here: Here, household: Household) -> None:
    rule(household)
    assert run_at(here, household, "", "create", "--for", NEWCOMER) == 3
    assert "no node is running" in here.err
    assert here.out == "", "no proposal to pass on"


@pytest.mark.req("JOIN-10")
def test_who_was_put_out_comes_back_by_a_new_agreement_alone(here: Here, household: Household) -> None:
    gone = household.key("cellar").node_id
    before = proposals.decode(propose(here, household))
    rule(household, min_signatures_to_invite=3, min_signatures_to_revoke=1)
    household.revoke("cellar")
    assert run_at(here, household, "", "create", "--for", gone, "--json") == 0
    proposal = proposals.decode(json.loads(here.out)["proposal"])
    assert proposal.recalls == household.roster.revocation_of(gone)
    old = msgspec.structs.replace(before, target_node_id=gone, co_signers=())
    assert run_at(here, household, "attic", "sign", proposals.encode(old), "--yes") == 4
    assert "propose it anew" in here.err
