"""2. A forged approval: what nobody said yes to is refused, nothing is done, and it is on record once.

The provider is a node of real processes; mallory has a run token of carol's, and has not her key.
"""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import NOT_FOUND
from tests.attacks.attacker import LIST, POST, Attacker, post_body
from tests.attacks.conftest import Victim
from tests.attacks.test_approvals import Lent
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

pytestmark = [pytest.mark.asyncio, pytest.mark.req("PAIN-2", "AUDIT-9")]
Given = tuple[dict[str, Any], dict[str, Any]]


class Forger:
    """Mallory, under a run token of carol's."""

    def __init__(self, victim: Victim, mallory: Attacker, market: OfferView) -> None:
        self.victim, self.mallory, self.market = victim, mallory, market
        self.run = ids.new_ulid()
        self.lent = Lent(victim, mallory, run=self.run)
        self.shell = Shell(victim.home.path)

    async def send(self, body: dict[str, Any], approval: dict[str, Any]) -> str:
        """The wire code of a post under that approval."""
        given = {"token": self.lent.token, "run": self.run, "approval": approval}
        return await self.mallory.call(self.market, POST, body, **given)

    async def effects(self) -> list[str]:
        """The titles of all posts: the effect counter."""
        listed = await self.mallory.bus.call(LIST, {"params": {}, "input": {"limit": 500}})
        return sorted(post["title"] for post in listed.output["posts"])

    def refused(self) -> list[dict[str, Any]]:
        """What the provider's log has of refused approvals in this run."""
        listed = self.shell.json("audit", "list", "--limit", "200", "--json")
        return [one for one in listed if one["kind"] == "refused" and one["run"] == self.run]


@pytest.fixture
def forger(victim: Victim, mallory: Attacker, market: OfferView) -> Forger:
    """In a run of its own."""
    return Forger(victim, mallory, market)


async def never_issued(forger: Forger) -> Given:
    body = post_body("Never issued")
    own = forger.mallory.peer.identity
    return body, forger.lent.yes(body, own, approver=forger.lent.carol.node_id)


async def of_another_user(forger: Forger) -> Given:
    body = post_body("Another user's")
    return body, forger.lent.yes(body, forger.victim.key("gateway"))


async def used(forger: Forger) -> Given:
    """Carol's yes to one post, sent again under another key: her yes was to that effect alone."""
    body = post_body("Used")
    approval = forger.lent.yes(body)
    assert await forger.send(body, approval) == "ok"
    again = {**body, "input": {**body["input"], "client_id": ids.new_ulid()}}
    return again, approval


async def with_other_arguments(forger: Forger) -> Given:
    body = post_body("Other arguments")
    approval = forger.lent.yes(body)
    return {**body, "input": {**body["input"], "title": "Altered"}}, approval


@pytest.mark.parametrize(
    ("forge", "code", "rule"),
    [
        (never_issued, "invalid_signature", "invalid_signature"),
        (of_another_user, "unauthorized", "approver"),
        (used, "unauthorized", "arguments"),
        (with_other_arguments, "unauthorized", "arguments"),
    ],
)
async def test_a_forged_approval_is_refused_and_on_record_once(
    forger: Forger, forge: Any, code: str, rule: str
) -> None:
    body, approval = await forge(forger)
    before = await forger.effects()
    assert await forger.send(body, approval) == code
    assert await forger.effects() == before
    (entry,) = wait_for_sync(forger.refused, 20, "the entry about it")
    assert (entry["code"], entry["rule"], entry["count"]) == (code, rule, 1)
    assert (entry["approval"], entry["digest"]) == (approval["id"], digest(body))
    assert entry["caller"] == forger.mallory.peer.node_id
    assert entry["principal"] == forger.lent.carol.node_id
    assert (entry["outcome"], entry["ended_at"]) == (None, None)
    assert rule in forger.shell.run("audit", "list").stdout
    assert forger.shell.json("audit", "verify", "--json")["whole"] is True


async def test_a_used_standing_grant_is_one_too(forger: Forger) -> None:
    grant = forger.lent.grant(forger.market.node)
    given = {"token": forger.lent.token, "run": forger.run, "grant": grant, "use": 1}
    assert await forger.mallory.call(forger.market, POST, post_body("First use"), **given) == "ok"
    before = await forger.effects()
    again = await forger.mallory.call(forger.market, POST, post_body("Used again"), **given)
    assert again == "unauthorized"
    assert await forger.effects() == before
    (entry,) = wait_for_sync(forger.refused, 20, "the entry about it")
    assert (entry["rule"], entry["grant"], entry["use"]) == ("used", grant["id"], 1)


async def test_nobody_decides_about_a_question_that_was_never_asked(forger: Forger) -> None:
    for command in ("approve", "deny"):
        refused = forger.shell.run("runs", command, ids.new_ulid(), "p")
        assert refused.returncode == NOT_FOUND
        assert "there is no run" in refused.stderr
