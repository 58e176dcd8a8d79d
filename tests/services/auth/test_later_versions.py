"""Events of a later version in the roster: carried from home to home, told, and without effect."""

from __future__ import annotations

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.cli.workflows.diagnosis import home_files
from hearthnet.cli.workflows.diagnosis.problem import Examined
from hearthnet.trust import signed_document
from hearthnet.trust.community import events
from hearthnet.trust.community.events import CommunityEvent, Revoked
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import act
from tests.helpers.mesh import Mesh, write_roster
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import INVITE, living


def later(held: Roster, author: Identity) -> CommunityEvent:
    """A revocation with a member that this version does not know: it may limit what it does."""
    content = Revoked(target_node_id=author.node_id, reason="other", client_id="later")
    event = act(held, author, events.REVOKED, content)
    changed = msgspec.structs.replace(event, data={**event.data, "until": "spring"})
    return signed_document.sign(changed, author, events.PURPOSE)


@pytest.mark.req("VERSION-2")
@pytest.mark.asyncio
async def test_an_event_with_a_later_member_is_carried_and_holds_nothing_up(street: Mesh) -> None:
    """The founder is away when dora comes: she gets it from carol, and all that was written after it."""
    carol_home, dora_home = street.others
    async with living(street, carol_home) as carol:
        async with living(street, street.home) as founder:
            held = founder.auth._membership.roster
            event = later(held, keyring.load_identity(street.home.device_key))
            assert await founder.auth._membership.add((event,))
            after = await founder.do(INVITE, display_name="after it")
            await wait_for(
                lambda: founder.auth._membership.roster.version == carol.auth._membership.roster.version,
                what="carol to hear of it",
            )
        async with living(street, dora_home) as dora:
            await wait_for(
                lambda: dora.auth._membership.roster.history.get(event.hash) is not None, what="the event"
            )
            await wait_for(
                lambda: dora.auth._membership.roster.version == carol.auth._membership.roster.version,
                what="all that was written after it",
            )
            roster = dora.auth._membership.roster
    assert after["event_id"] in {one.event_id for one in roster.events}
    assert roster.history.get(event.hash) == event, "not one member was lost"
    assert roster.level(event.author) == "anchor", "it has no effect"
    assert "1 event of the community is of a later version: community.member.revoked" in (
        home_files.later_version(roster)
    )
    write_roster(roster, dora_home)
    (problem,) = home_files.community_version(Examined(dora_home))
    assert (problem.check, problem.severity) == ("community.version", "warning")
    assert "upgrade" in problem.remedy
