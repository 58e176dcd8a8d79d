"""A home comes in by an invite that two members agreed to: a text goes to one whose node is off, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.core import ids
from tests.helpers.household import make_home, settle
from tests.helpers.shell import Shell

pytestmark = pytest.mark.e2e


@pytest.mark.req("JOIN-10", "COMMUNITY-12")
def test_a_home_joins_by_an_invite_that_two_agreed_to(tmp_path: Path) -> None:
    household = settle(tmp_path, {"kitchen": "member"}, '["auth"]')
    hearth, kitchen = Shell(household.founder.path), Shell(household["kitchen"].path)
    attic = Shell(make_home(tmp_path / "attic", "attic", '["auth"]').path)
    with attic.node():  # its key is made; until now it is alone
        newcomer = attic.json("members", "--json")["node_id"]
    rules = {"params": {}, "input": {"min_signatures_to_invite": 2}}
    with hearth.node():
        hearth.json("call", "community.policy", "--body", json.dumps(rules), "--json")
        refused = hearth.run("invite", "create", "--json")
        assert refused.returncode == 2
        assert "hearthnet invite create --for NODE_ID" in refused.stderr
        proposed = hearth.json("invite", "create", "--for", newcomer, "--json")
        assert (proposed["done"], proposed["signatures"], proposed["needed"]) == (False, 1, 2)
        alone = hearth.json("invite", "sign", proposed["proposal"], "--yes", "--json")
        assert (alone["done"], alone["signatures"]) == (False, 1), "one's own signature counts once"
        agreed = kitchen.json("invite", "sign", proposed["proposal"], "--yes", "--json")
        assert not agreed["done"], "no node runs there"
        made = hearth.json("invite", "sign", agreed["proposal"], "--yes", "--json")
        assert made["done"]
        again = hearth.json("invite", "sign", agreed["proposal"], "--yes", "--json")
        assert again["event_id"] == made["event_id"]
        assert [one["invitee_node_id"] for one in hearth.json("invite", "list", "--json")] == [newcomer]
        assert ids.short_id(newcomer) in hearth.run("invite", "list").stdout, "it has no name"
        stranger = Shell(make_home(tmp_path / "barn", "barn", '["auth"]').path)
        other = stranger.run("invite", "redeem", "--json", stdin=made["invite"])
        assert other.returncode == 4
        assert "the invite is for another node" in other.stderr.splitlines()[-1], other.stderr
        joined = attic.run("invite", "redeem", "--json", stdin=made["invite"])
        assert joined.returncode == 0, joined.stderr
        members = {one["node_id"] for one in hearth.json("members", "--json")["members"]}
        assert newcomer in members
        assert load_identity(household["kitchen"].device_key).node_id in members
