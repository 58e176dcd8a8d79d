"""The id of a call that runs, used again when nobody remembers the frame any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.core import ids
from hearthnet.core.times import now_ms
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.trust.authorization import revocation
from hearthnet.trust.authorization.token import Scope, decode, mint
from tests.attacks.attacker import Attacker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


@pytest.mark.req("ATTACK-5", "ATTACK-21")
async def test_a_second_call_with_the_id_of_one_that_runs_does_not_hide_it(mesh: Mesh) -> None:
    """A call may run for an hour and an id is remembered for minutes. Whoever used its own id again would
    have two calls under one name, and the first one would be found by nobody: not when its token is revoked.
    """
    service = ProbeService()

    async def endless(call: Call[Any, Any]) -> None:
        await asyncio.Event().wait()

    service.answer = endless
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        mallory = Attacker(bus)
        view = await mallory.target(QUERY, mesh.identity.node_id)
        token = mint(
            bus.peer.identity,
            subject=bus.peer.node_id,
            audience=bus.peer.community,
            scope=Scope(capabilities=(QUERY,)),
            now_ms=now_ms(),
            ttl_seconds=600,
        )
        call_id, subject = ids.new_ulid(), mallory.subject(view, QUERY)

        async def send(**changes: Any) -> None:
            header = mallory.header(view, QUERY, query(), id=call_id, **changes)
            frame = mallory.boxed(mallory.inner(header, query(), signed=False), view)
            await bus.peer.link.publish(subject, frame)

        await send(token=token)
        await wait_for(lambda: len(service.calls) == 1, what="the first call")
        host.peer.replay = ReplayWindow()  # as it is some minutes later
        dropped = host.dropped
        await send()
        await wait_for(lambda: host.dropped > dropped or len(service.calls) == 2, what="the second one")

        document = revocation.TokenRevocation.sign(
            bus.peer.identity, decode(token).jti, bus.peer.node_id, "manual", now_ms=now_ms()
        )
        await host.peer.membership.add((), (document,))
        await wait_for(lambda: service.stopped == [call_id], what="the call under the revoked token to end")
        await wait_for(lambda: host.in_flight == 0, what="its place to be free")
        assert len(service.calls) == 1
