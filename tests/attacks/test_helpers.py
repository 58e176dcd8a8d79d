"""Two colluding helpers of a person, and who has stolen its node, at the processes of a real node.

The victim's node is the third witness, with its own clock. The two others sign whatever they like, at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.keyring import load_roster
from hearthnet.core.ids import new_ulid
from hearthnet.core.times import now_ms
from hearthnet.trust.community import person_statements
from hearthnet.trust.community import recovery_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.persons import Person
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import NO_ANSWER, POST, Attacker, post_body
from tests.attacks.conftest import Victim, under_attack
from tests.attacks.test_persons import RUN, Carol
from tests.attacks.test_recovery import REFUSED_SECONDS, UPDATE, refused, write
from tests.helpers.members import act
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
KINDS = {kind: name for name, kind in statements.STATEMENTS.items()}


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    """A node for each test: a node has one person, and carol's is out of the community in the end."""
    with under_attack(tmp_path) as node:
        yield node


@pytest_asyncio.fixture
async def thief(victim: Victim, mallory: Attacker) -> AsyncIterator[Carol]:
    """Has carol's node; of carol's recovery key it knows nothing."""
    node = await victim.attacker("carol")
    yield Carol(node, victim, mallory.peer.node_id)
    await node.bus.close()


class Colluding:
    """Two helpers with the helpers' key, one of them the member mallory; both are witnesses."""

    def __init__(self, victim: Victim, mallory: Attacker, carol: Carol) -> None:
        self.mallory, self.carol = mallory, carol
        self.shared, self.friend, self.key, self.page = (Identity.generate() for _ in range(4))
        self._victim = victim

    @property
    def held(self) -> Roster:
        """What mallory's process knows."""
        return self.mallory.peer.membership.roster

    @property
    def person(self) -> Person:
        """Carol, as mallory's process has her."""
        found = self.held.person(self.carol.person)
        assert found is not None
        return found

    async def carry(
        self, *contents: person_statements.Statement, place: tuple[int, str, int] | None = None
    ) -> None:
        """Mallory writes the statements."""
        for content in contents:
            own = self.mallory.peer.identity
            event = act(self.held, own, KINDS[type(content)], content, place, now_ms=now_ms())
            await write(self.mallory, event)

    async def chosen(self, wait_seconds: int) -> None:
        """Carol has named them, and the victim as the third witness."""
        author = CommunityAuthor(self.held, self.carol.recovery)
        witnesses = (self._victim.node, self.mallory.peer.node_id, self.friend.node_id)
        await self.carry(author.named_helpers(self.shared.node_id, wait_seconds, witnesses))

    async def begin(
        self, *, place: tuple[int, str, int] | None = None
    ) -> tuple[str, person_statements.Statement]:
        """Announce, sign as witnesses at once, and add a page by the new key; return the removal, too."""
        own = self.carol.own.node_id
        author = CommunityAuthor(self.held, self.shared)
        announced, (removal,) = author.begun_recovery(self.carol.person, self.key, (own,))
        name = statements.recovery_id(self.held.community_id, announced)
        await self.carry(announced, place=place)
        for one in (self.mallory.peer.identity, self.friend):
            await self.carry(statements.witnessed(self.held.community_id, self.carol.person, name, one))
        community = self.held.community_id
        offered = person_statements.offered_device(
            community, self.carol.person, self.key, self.page.node_id, "phone", "x"
        )
        await self.carry(person_statements.consented(community, offered, self.page))
        return name, removal

    async def approval(self, market: OfferView, signer: Identity) -> str:
        """The code of a post in carol's run, approved by a device."""
        body = post_body("By a device")
        yes = self.carol.yes(body, signer, self.carol.person)
        return await self.mallory.call(market, POST, body, token=self.carol.token, run=RUN, approval=yes)


async def carol_begins(victim: Victim, thief: Carol, mallory: Attacker) -> Identity:
    """Carol's person is known to all, with a page, which is returned; mallory knows what the victim wrote."""
    page, membership = Identity.generate(), mallory.peer.membership
    asked = {"params": {}, "input": {"heads": membership.roster.heads(), "limit": 1000}}
    reply = await mallory.bus.call("community.sync@1.0", asked, node=victim.node)
    await membership.add([msgspec.convert(one, CommunityEvent) for one in reply.output["events"]], ())
    await thief.begin()
    await thief.add(page)
    await wait_for(lambda: membership.roster.is_device(page.node_id, thief.person), what="carol")
    return page


@pytest.mark.req("ATTACK-80")
async def test_colluding_helpers_wait_and_an_objection_stops_them(
    victim: Victim, mallory: Attacker, market: OfferView, thief: Carol
) -> None:
    """Their announcement is dated back to mallory's first events, and an hour is to pass."""
    page = await carol_begins(victim, thief, mallory)
    two = Colluding(victim, mallory, thief)
    await two.chosen(3_600)
    sequence, previous, _ = two.held.next(mallory.peer.node_id)
    last = two.held.history.get(previous)
    assert last is not None
    name, removal = await two.begin(place=(sequence, previous, last.lamport + 1))
    await two.carry(removal)

    async def seen_by_victim() -> bool:
        found = load_roster(victim.home.roster).person(thief.person)
        return bool(found and found.recoveries and len(found.recoveries[0].witnessed) == 2)

    await wait_for(seen_by_victim, what="both words at the victim")
    assert await two.approval(market, two.page) == "unauthorized"
    assert await two.approval(market, page) == "ok"
    assert (two.person.epoch, two.held.is_revoked(thief.own.node_id)) == (1, False)

    objection = CommunityAuthor(thief.held, thief.own).objection(name)
    await thief.write(act(thief.held, thief.own, KINDS[type(objection)], objection, now_ms=now_ms()))
    await wait_for(lambda: two.person.recoveries[0].objected, what="the objection")
    with pytest.raises(Exception, match="objects to that recovery"):
        CommunityAuthor(two.held, victim.identity).witness(name, now_ms())
    assert await two.approval(market, two.page) == "unauthorized"


@pytest.mark.req("ATTACK-80", "PERSON-46")
async def test_stolen_keys_are_refused_within_2_s_of_the_completion(
    victim: Victim, mallory: Attacker, market: OfferView, thief: Carol
) -> None:
    """The victim signs when its own three seconds are over, and with the third word the old keys end."""
    page = await carol_begins(victim, thief, mallory)
    two = Colluding(victim, mallory, thief)
    late = Identity.generate()
    await two.chosen(3)
    reply = await thief.node.bus.call(POST, post_body("Carol's own"), node=victim.node)

    async def edit() -> str:
        fields = {"client_id": new_ulid(), "event_id": reply.output["event_id"], "fields": {"title": "x"}}
        return await thief.node.call(market, UPDATE, {"params": {}, "input": fields}, signed=True)

    assert await edit() == "ok"
    began = time.monotonic()
    _, removal = await two.begin()
    assert await two.approval(market, two.page) == "unauthorized"
    assert await two.approval(market, page) == "ok"
    await wait_for(lambda: two.person.key == two.key.node_id, what="the third word")
    arrived = time.monotonic()
    assert arrived - began >= 3
    await two.carry(removal)
    of_edit = await refused(edit)
    of_approval = await refused(lambda: two.approval(market, page))
    seconds = time.monotonic() - arrived
    sys.stdout.write(f"third word to refusals: {seconds:.3f} s, {of_edit}, {of_approval}\n")
    assert seconds < REFUSED_SECONDS
    assert of_edit in ("revoked", "partition", NO_ANSWER)
    assert of_approval == "revoked"  # the token of the stolen node, which the page had approved before
    # The old key adds no device any more, and what the new one had signed before counts now.
    offered = person_statements.offered_device(
        victim.community, thief.person, thief.key, late.node_id, "phone", "x"
    )
    await two.carry(person_statements.consented(victim.community, offered, late))
    assert {one.key for one in two.person.devices} == {page.node_id, two.page.node_id}
