"""One key, or one yes, for two effects where there may be one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash, digest
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.approval import PURPOSE, Approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity
from hearthnet.trust.signed_document import sign
from tests.attacks.attacker import POST, Attacker, post_body
from tests.bus import failing_worker
from tests.helpers.mesh import Mesh
from tests.service.effect_worker import INGEST
from tests.service.workers import working

pytestmark = pytest.mark.asyncio


@pytest.mark.req("ATTACK-14", "BUDGET-3")
async def test_one_key_for_two_kinds_of_effects_counts_twice(mesh: Mesh) -> None:
    """Each service knows its own keys only: the budget of the token has to tell them apart."""
    async with failing_worker.running(mesh), await mesh.guest_bus() as bus:
        with working(mesh) as workers:
            await workers.start(bus)
            gateway = Attacker(bus)
            token = mint(
                mesh.identity,
                subject=bus.peer.node_id,
                audience=bus.peer.community,
                scope=Scope(capabilities=(POST, INGEST), max_effects=1),
                now_ms=now_ms(),
                ttl_seconds=300,
                principal="guest-1",
            )
            posted = post_body()
            key = posted["input"]["client_id"]
            ingested = {"params": {"corpus": "probe"}, "input": {"doc_cid": content_hash(b"x")}}

            async def effect(capability: str, body: dict[str, Any]) -> str:
                now = now_ms()
                approval = Approval(
                    id=ids.new_ulid(),
                    community=bus.peer.community,
                    approver=bus.peer.node_id,
                    actor=bus.peer.node_id,
                    provider=mesh.identity.node_id,
                    capability=capability,
                    arguments_digest=digest(body),
                    idempotency_key=key,
                    run="",
                    tool_call_id="call_1",
                    time=now,
                    expires=now + 60_000,
                    via="gateway",
                )
                consent = msgspec.to_builtins(sign(approval, bus.peer.identity, PURPOSE))
                view = await gateway.target(capability, mesh.identity.node_id)
                return await gateway.call(
                    view, capability, body, signed=True, token=token, approval=consent, idempotency_key=key
                )

            assert await effect(POST, posted) == "ok"
            assert await effect(INGEST, ingested) == "token_scope_insufficient"
            assert await effect(POST, posted) == "ok", "a repetition is free"


@pytest.mark.req("ATTACK-17", "EFFECT-2")
async def test_a_guests_yes_has_one_effect_in_however_many_sessions_its_key_stands(mesh: Mesh) -> None:
    """Who issues sessions can name a guest's key in any number of them, each with client ids of its own."""
    guest = Identity.generate()
    async with failing_worker.running(mesh), await mesh.guest_bus() as bus:
        gateway, body, now = Attacker(bus), post_body(), now_ms()
        approval = Approval(
            id=ids.new_ulid(),
            community=bus.peer.community,
            approver=guest.node_id,
            actor=bus.peer.node_id,
            provider=mesh.identity.node_id,
            capability=POST,
            arguments_digest=digest(body),
            idempotency_key=body["input"]["client_id"],
            run="",
            tool_call_id="call_1",
            time=now,
            expires=now + 60_000,
        )
        consent = msgspec.to_builtins(sign(approval, guest, PURPOSE))
        view = await gateway.target(POST, mesh.identity.node_id)

        def session(principal: str) -> dict[str, Any]:
            token = mint(
                mesh.identity,
                subject=bus.peer.node_id,
                audience=bus.peer.community,
                scope=Scope(capabilities=(POST,)),
                now_ms=now_ms(),
                ttl_seconds=300,
                principal=principal,
                cnf=guest.node_id,
            )
            return {"token": token, "approval": consent}

        assert await gateway.call(view, POST, body, **session("guest-1")) == "ok"
        refused = await gateway.refusal(view, POST, body, **session("guest-2"))
        assert (refused.code, refused.details) == ("unauthorized", {"rule": "used"})
        assert await gateway.call(view, POST, body, **session("guest-1")) == "ok", "a repetition is free"
        async with await mesh.store() as store:
            assert (await store.js.stream_info("MARKET")).state.messages == 1
