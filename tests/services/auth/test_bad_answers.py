"""A member that answers with something else than what was asked for."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest

from hearthnet import Call, Offer, Reply, Service, capability
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import HEADS, SetDigest, SetDigests
from hearthnet.contracts.contract import Contract
from hearthnet_auth.schemas import SyncInput
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import INVITE, SYNC, living

pytestmark = pytest.mark.asyncio
BAD: list[Any] = [None, 5, [], {}, {"events": 5, "revocations": None, "more": "x"}, {"events": [[]]}]


class Liar(Service):
    """Offers `community.sync`, and answers what it likes."""

    name: ClassVar[str] = "liar"

    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def offers(self) -> list[Offer]:
        """The one."""
        return [Offer(capability=SYNC)]

    @capability(SYNC)
    async def sync(self, call: Call[Any, SyncInput]) -> Reply:
        """The next bad answer."""
        self.given += 1
        return Reply(BAD[min(self.given, len(BAD)) - 1])


@pytest.mark.req("COMMUNITY-4", "COMMUNITY-5")
async def test_who_answers_nonsense_is_passed_over_and_others_are_still_asked(
    street: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchecked(contract: Contract, body: Any) -> None:
        """The liar's library checks nothing."""

    monkeypatch.setattr(Contract, "check_reply", unchecked)
    monkeypatch.setattr("hearthnet.service.community.peer_heads._AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("hearthnet.service.community.peer_heads.FRUITLESS_SECONDS", 0.0)
    liar, (carol_home, _) = Liar(), street.others
    async with (
        living(street, street.home) as founder,
        living(street, carol_home) as carol,
        street.hosting(liar, at=street.guest),
        await street.guest_bus() as guest,
    ):
        before = 0

        def asked() -> bool:
            return liar.given > before

        for count in range(1_000, 1_000 + len(BAD)):
            before = liar.given
            claimed = SetDigests(SetDigest(count, "blake3:" + "f" * 64), SetDigest(0, ""))
            await gossip_frames.publish(guest.peer.sender, HEADS, msgspec.json.encode(claimed))
            await wait_for(asked, what=f"claim {count} to be looked at")
        # What carol does now is told to nobody: the founder has it only by asking her, beside the liar.
        carol.auth._chain._publish = _silence  # type: ignore[method-assign, assignment]
        made = await carol.do(INVITE)

        def known() -> bool:
            return made["event_id"] in {one.event_id for one in founder.auth._membership.roster.events}

        await wait_for(known, what="the founder to have asked carol")


async def _silence(*_news: Any) -> None:
    """Tells nobody."""
