"""19. Approvals without end: pending, expired and denied are three outcomes, late answers included."""

from __future__ import annotations

import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence.saved_runs import status_of
from hearthnet.agent.tools.types import Approve, Deny
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, Scene, acting, says, wants

pytestmark = pytest.mark.asyncio
AN_HOUR = Limits(confirmation_ttl_ms=3_600_000)
TWO_HOURS_MS = 7_200_000


async def stands(scene: Scene, run: str, later_ms: int = 0) -> str:
    """How the call of a run stands."""
    page = await scene.saved.page(run)
    (effect,) = page.record.effects
    return status_of(effect, page.decisions.get(effect.asked.confirmation_id), now_ms() + later_ms)


@pytest.mark.req("PAIN-19", "RUN-8", "TOOL-9")
async def test_pending_expired_and_denied_are_three_and_a_late_yes_is_refused(mesh: Mesh) -> None:
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Well.")]) as scene:
        waiting = await scene.suspended()
        assert await stands(scene, waiting) == "pending"
        denied = await scene.suspended()
        await scene.saved.decide(denied, "p", Deny(), via="test")
        assert await stands(scene, denied) == "denied"
        late = await scene.suspended(limits=AN_HOUR)
        executor, saved = scene.later(TWO_HOURS_MS)
        assert await stands(scene, late) == "pending"
        assert await stands(scene, late, TWO_HOURS_MS) == "expired"
        with pytest.raises(HearthNetError, match="has expired") as caught:
            await saved.decide(late, "p", Approve(), via="test")
        assert caught.value.code == "expired"
        await executor.resume(late)
        assert await stands(scene, late) == "expired"
        with pytest.raises(HearthNetError, match="has expired"):
            await saved.decide(late, "p", Approve(), via="test")
        assert (await saved.decide(late, "p", Deny("no, never"), via="test")).signed.word == "denied"
        assert await stands(scene, late) == "denied"
        kept = await scene.suspended(limits=AN_HOUR)
        await saved.decide(kept, "p", Deny("no, never"), via="test")
        await executor.resume(kept)
        assert "no, never" in scene.service.requests[-1][-1]["content"]
        assert await scene.effects() == []
