"""5. A "no" is not enforced: after a denial the tool's provider never sees the call."""

from __future__ import annotations

import pytest

from hearthnet.agent.tools.types import Approve, Deny
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, acting, says, wants

pytestmark = pytest.mark.asyncio


@pytest.mark.req("PAIN-5", "TOOL-7")
async def test_after_a_denial_the_provider_never_sees_the_call(mesh: Mesh) -> None:
    async with acting(mesh, [wants("market_post", POST, "p")], [says("As you wish.")]) as scene:
        run = await scene.suspended()
        await scene.saved.decide(run, "p", Deny("not mine to lend"), via="test")
        later = await scene.saved.decide(run, "p", Approve(), via="test")
        assert (later.repeated, later.signed.word) == (True, "denied")
        message = await scene.executor().resume(run, {"p": Approve()})
        assert message["content"] == "As you wish."
        assert scene.service.seen() == []
        assert await scene.effects() == []
        assert "not mine to lend" in scene.service.requests[-1][-1]["content"]
