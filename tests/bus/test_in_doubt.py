"""Effects whose answer is lost, or cannot be given: nobody is told that they failed.

See: docs/protocol/discovery.md#outcome-in-doubt.
"""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet import Call, Reply, capability
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.frame import Frame
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, Anything, ProbeService, post

pytestmark = pytest.mark.asyncio


class Careless(ProbeService):
    """Posts, and answers what its contract does not know."""

    @capability(POST, event_sourced=True)
    async def post(self, call: Call[Anything, Anything]) -> Reply:
        """Appends, and forgets what it was asked."""
        await super().post(call)
        return Reply({"event_id": 7})


@pytest.mark.req("BUS-84")
async def test_an_effect_has_not_failed_because_its_answer_does(mesh: Mesh) -> None:
    service = Careless()
    async with mesh.hosting(service), await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="it was done, but its answer cannot be given") as caught:
            await bus.call(POST, post(ids.new_ulid()))
        assert caught.value.code == "outcome_unknown"
    assert len(service.calls) == 1


@pytest.mark.req("BUS-84")
async def test_a_later_refusal_does_not_say_that_a_lost_effect_failed(mesh: Mesh) -> None:
    """The answer is lost with the connection; who is asked again takes nothing more."""
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        take = host.receive_call

        def take_the_first(frame: Frame) -> None:
            if frame.header.capability == POST and host.in_flight == 0 and not host._draining:
                take(frame)
                host._draining = True
                connection = bus.peer.link._connection
                assert connection is not None
                connection.abort()
            else:
                take(frame)

        host.receive_call = take_the_first  # type: ignore[method-assign, assignment]
        body = post(ids.new_ulid())
        with pytest.raises(HearthNetError, match="it may have happened") as caught:
            await bus.call(POST, body)
        assert caught.value.code == "outcome_unknown"
        assert "is stopping" in caught.value.message
        assert len(service.calls) == 1
        host._draining = False
        host.receive_call = take  # type: ignore[method-assign]
        again: dict[str, Any] = (await bus.call(POST, body)).meta
        assert again["repeated"] is True


@pytest.mark.req("BUS-84", "ATTACK-41")
async def test_a_lost_effect_is_not_repeated_at_another_home(mesh: Mesh) -> None:
    """Which knows nothing of the first one's keys, and would have it once more."""
    service, other = ProbeService(), ProbeService()
    async with mesh.hosting(service) as host, mesh.hosting(other, mesh.guest), await mesh.bus() as bus:
        take = host.receive_call

        def take_the_first(frame: Frame) -> None:
            if frame.header.capability == POST and host.in_flight == 0 and not host._draining:
                take(frame)
                host._draining = True
                connection = bus.peer.link._connection
                assert connection is not None
                connection.abort()
            else:
                take(frame)

        host.receive_call = take_the_first  # type: ignore[method-assign, assignment]
        with pytest.raises(HearthNetError, match="it may have happened"):
            await bus.call(POST, post(ids.new_ulid()))
        assert (len(service.calls), len(other.calls)) == (1, 0)
