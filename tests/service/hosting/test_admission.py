"""Who gets in: tokens, approvals, signatures, replays and clocks, at a real provider."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import msgspec
import pytest

from hearthnet.bus.bus import Bus, find_contract
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import Frame
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.grant import Grant, sign_grant
from hearthnet.trust.authorization.revocation import TokenRevocation
from hearthnet.trust.authorization.token import Scope, decode, mint
from hearthnet.trust.community import commands
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.probe import POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import wait_for
from tests.service.workers import audited

pytestmark = pytest.mark.asyncio
RUN = ids.new_ulid()


def _token(bus: Bus, *capabilities: str, run: str = RUN, **constraints: list[Any]) -> str:
    peer = bus.peer
    scope = Scope(capabilities=capabilities, params_constraints=constraints)
    return mint(
        peer.identity,
        subject=peer.node_id,
        audience=peer.community,
        scope=scope,
        now_ms=now_ms(),
        ttl_seconds=60,
        run=run,
    )


def _approval(bus: Bus, body: dict[str, Any], **changes: Any) -> Approval:
    """An approval of exactly this call, less what a test changes about it; always properly signed."""
    peer, now = bus.peer, now_ms()
    fields: dict[str, Any] = {
        "id": ids.new_ulid(),
        "community": peer.community,
        "approver": peer.node_id,
        "actor": peer.node_id,
        "provider": peer.node_id,
        "capability": POST,
        "arguments_digest": digest(body),
        "idempotency_key": body["input"]["client_id"],
        "run": RUN,
        "tool_call_id": "call_1",
        "time": now,
        "expires": now + 60_000,
    }
    return sign_approval(peer.identity, Approval(**{**fields, **changes}))


async def _code(work: Any) -> str:
    with pytest.raises(HearthNetError) as caught:
        await work
    return caught.value.code


@pytest.mark.req("ADMIT-1")
async def test_a_model_driven_effect_needs_an_approval_and_happens_once(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        body, token = post(ids.new_ulid()), _token(bus, POST)
        assert await _code(bus.call(POST, body, token=token, run=RUN)) == "unauthorized"
        assert service.calls == []
        approval = _approval(bus, body)
        first = await bus.call(POST, body, token=token, run=RUN, approval=approval)
        again = await bus.call(POST, body, token=token, run=RUN, approval=approval)
    assert first.output == again.output
    assert (first.meta["repeated"], again.meta["repeated"]) == (False, True)
    assert first.meta["approval"] == approval.id
    assert first.meta["arguments_digest"] == digest(body)


@pytest.mark.req("ADMIT-2")
@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("arguments", {"arguments_digest": digest({"other": "arguments"})}),
        ("run", {"run": ids.new_ulid()}),
        ("actor", {"actor": Identity.generate().node_id}),
        ("provider", {"provider": Identity.generate().node_id}),
        ("capability", {"capability": "market.expire@1.0"}),
        ("idempotency key", {"idempotency_key": ids.new_ulid()}),
        ("community", {"community": Identity.generate().node_id}),
        ("version", {"v": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_approval_of_something_else_is_none(mesh: Mesh, rule: str, change: dict[str, Any]) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        body = post(ids.new_ulid())
        approval = _approval(bus, body, **change)
        own, token = bus.peer.node_id, _token(bus, POST)
        with pytest.raises(HearthNetError) as caught:
            await bus.call(POST, body, token=token, run=RUN, approval=approval, node=own)
        assert (caught.value.code, caught.value.rule) == ("unauthorized", rule)
        assert service.calls == []


@pytest.mark.req("ADMIT-2")
async def test_an_approval_that_is_forged_or_too_late_is_none(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        body, token, now = post(ids.new_ulid()), _token(bus, POST), now_ms()
        honest = _approval(bus, body)
        stranger = Identity.generate()
        forged = sign_approval(stranger, msgspec.structs.replace(honest, approver=stranger.node_id))
        bent = msgspec.structs.replace(honest, expires=honest.expires + 1)
        late = _approval(bus, body, time=now - 500_000, expires=now - 400_000)
        for approval, code in ((forged, "unauthorized"), (bent, "invalid_signature"), (late, "expired")):
            assert await _code(bus.call(POST, body, token=token, run=RUN, approval=approval)) == code
        assert service.calls == []
        assert (await bus.call(POST, body, token=token, run=RUN, approval=honest)).output


@pytest.mark.req("ADMIT-3")
async def test_the_outcome_of_an_effect_outlives_its_approval(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        body, token, now = post(ids.new_ulid()), _token(bus, POST), now_ms()
        first = await bus.call(POST, body, token=token, run=RUN, approval=_approval(bus, body))
        late = _approval(bus, body, time=now - 500_000, expires=now - 400_000)
        assert (await bus.call(POST, body, token=token, run=RUN, approval=late)).output == first.output


@pytest.mark.req("EFFECT-9")
async def test_expired_approval_of_an_event_leaves_no_trace(mesh: Mesh) -> None:
    service, past = ProbeService(), {"time": now_ms() - 500_000, "expires": now_ms() - 400_000}
    async with mesh.hosting(service), await mesh.bus() as bus, await mesh.store() as store:
        body, token = post(ids.new_ulid()), _token(bus, POST)
        late = _approval(bus, body, **past)
        assert await _code(bus.call(POST, body, token=token, run=RUN, approval=late)) == "expired"
        assert service.calls == []
        log, _ = await audited(mesh, AuditLog(store, mesh.identity))
    assert log == []


@pytest.mark.req("ADMIT-4")
async def test_a_token_narrows_what_its_holder_may_do(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        fine = _token(bus, "rag.query@1.0", corpus=["probe"])
        assert (await bus.call(QUERY, query(), token=fine, run=RUN)).output
        for token, run, code in (
            (_token(bus, "rag.list_corpora@1.0"), RUN, "token_scope_insufficient"),
            (_token(bus, "rag.query@1.1"), RUN, "token_scope_insufficient"),
            (_token(bus, "rag.query", corpus=["other"]), RUN, "token_scope_insufficient"),
            (_token(bus, "rag.query", model=["m"]), RUN, "token_scope_insufficient"),
            (fine, ids.new_ulid(), "token_scope_insufficient"),
            (fine, "", "token_scope_insufficient"),
            (f"{fine[:-86]}{'A' * 86}", RUN, "token_invalid"),
            ("hntoken://v1/nonsense", RUN, "bad_request"),
        ):
            assert await _code(bus.call(QUERY, query(), token=token, run=run)) == code
    assert len(service.calls) == 1


def _session(bus: Bus, **more: Any) -> str:
    """The node's own token for its guest Eva, whose gateway it is."""
    peer = bus.peer
    return mint(
        peer.identity,
        subject=peer.node_id,
        audience=peer.community,
        scope=Scope((POST, "rag.query"), **more.pop("limits", {})),
        now_ms=now_ms(),
        ttl_seconds=60,
        principal="eva",
        **more,
    )


@pytest.mark.req("ADMIT-12")
async def test_a_guest_with_a_key_says_yes_and_its_gateway_cannot(mesh: Mesh) -> None:
    service, guest = ProbeService(), Identity.generate()
    async with mesh.hosting(service), await mesh.bus() as bus:
        body, token = post(ids.new_ulid()), _session(bus, cnf=guest.node_id)
        for wrong in (_approval(bus, body), _approval(bus, body, via="gateway")):
            assert await _code(bus.call(POST, body, token=token, run=RUN, approval=wrong)) == "unauthorized"
        assert service.calls == []
        asked = msgspec.structs.replace(_approval(bus, body), approver=guest.node_id, signature="")
        yes = sign_approval(guest, asked)
        first = await bus.call(POST, body, token=token, run=RUN, approval=yes)
        assert first.meta["approval"] == yes.id
    assert service.calls[0].principal == f"{bus.peer.node_id}/eva"


@pytest.mark.req("ADMIT-12")
async def test_a_gateway_says_yes_for_a_guest_without_a_key_and_says_so(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        body, token = post(ids.new_ulid()), _session(bus, limits={"max_effects": 1})
        plain, via = _approval(bus, body), _approval(bus, body, via="gateway")
        assert await _code(bus.call(POST, body, token=token, run=RUN, approval=plain)) == "unauthorized"
        first = await bus.call(POST, body, token=token, run=RUN, approval=via)
        assert (await bus.call(POST, body, token=token, run=RUN, approval=via)).output == first.output
        other = post(ids.new_ulid())
        more = bus.call(POST, other, token=token, run=RUN, approval=_approval(bus, other, via="gateway"))
        assert await _code(more) == "token_scope_insufficient"
        # Two guests of one name at two issuers, or the node itself, are three authors.
        assert (await bus.call(POST, body)).output != first.output


@pytest.mark.req("ADMIT-13")
async def test_a_revoked_token_is_refused_at_once_and_a_known_one_is_not_verified_again(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus:
        token, other = _token(bus, "rag.query@1.0"), _token(bus, "rag.query@1.0")
        for one in (token, token, other):
            assert (await bus.call(QUERY, query(), token=one, run=RUN)).output
        assert host.peer.tokens.claims.cache_info().currsize == 2
        void = TokenRevocation.sign(
            bus.peer.identity, decode(token).jti, bus.peer.node_id, "manual", now_ms=now_ms()
        )
        host.peer.membership.revocations.add(void, host.peer.roster)
        assert await _code(bus.call(QUERY, query(), token=token, run=RUN)) == "token_revoked"
        assert (await bus.call(QUERY, query(), token=other, run=RUN)).output


@pytest.mark.req("ADMIT-13")
async def test_a_limited_token_is_used_up(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        calls = _session(bus, limits={"max_calls_total": 1})
        rate = _session(bus, limits={"rate_limit_per_minute": 1})
        for token, code in ((calls, "token_scope_insufficient"), (rate, "rate_limited")):
            assert (await bus.call(QUERY, query(), token=token)).output
            assert await _code(bus.call(QUERY, query(), token=token)) == code


@pytest.mark.req("ADMIT-13")
async def test_who_was_revoked_has_no_rights_and_gives_none(mesh: Mesh) -> None:
    async with (
        mesh.hosting(ProbeService()) as host,
        await mesh.bus() as bus,
        await mesh.guest_bus() as guest,
    ):
        lent = mint(
            guest.peer.identity,
            subject=bus.peer.node_id,
            audience=bus.peer.community,
            scope=Scope(("rag.query",)),
            now_ms=now_ms(),
            ttl_seconds=60,
        )
        assert (await guest.call(QUERY, query())).output
        assert (await bus.call(QUERY, query(), token=lent)).output
        out = commands.CommunityAuthor(host.peer.roster, mesh.identity).revoke(
            guest.peer.node_id, "gone", client_id="c", now_ms=now_ms()
        )
        assert await host.peer.membership.add([out])
        assert await _code(guest.call(QUERY, query())) == "revoked"
        assert await _code(bus.call(QUERY, query(), token=lent)) == "revoked"
        assert (await bus.call(QUERY, query())).output


def _grant(bus: Bus, **changes: Any) -> Grant:
    """A standing grant of the node to itself for two posts."""
    peer, now = bus.peer, now_ms()
    fields: dict[str, Any] = {
        "id": ids.new_ulid(),
        "community": peer.community,
        "approver": peer.node_id,
        "actor": peer.node_id,
        "provider": peer.node_id,
        "capability": POST,
        "params_constraints": {"input.category": ["offer"]},
        "tool_hash": find_contract(POST).schema_hash,
        "max_uses": 2,
        "time": now,
        "expires": now + 60_000,
    }
    return sign_grant(peer.identity, Grant(**{**fields, **changes}))


@pytest.mark.req("ADMIT-14")
async def test_each_use_of_a_standing_grant_has_one_effect(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        grant, token = _grant(bus), _token(bus, POST)

        async def use(number: int, body: dict[str, Any]) -> Any:
            return await bus.call(POST, body, token=token, run=RUN, grant=grant, use=number)

        one, two = post(ids.new_ulid()), post(ids.new_ulid())
        first = await use(1, one)
        assert (first.meta["grant"], first.meta["use"]) == (grant.id, 1)
        assert (await use(1, one)).output == first.output
        for number in (0, 1, 3):
            assert await _code(use(number, two)) == "unauthorized"
        assert (await use(2, two)).output != first.output


@pytest.mark.req("ADMIT-14")
async def test_a_grant_that_was_revoked_or_comes_with_an_approval_is_none(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        body, grant, token = post(ids.new_ulid()), _grant(bus), _token(bus, POST)
        both = bus.call(POST, body, token=token, run=RUN, grant=grant, use=1, approval=_approval(bus, body))
        assert await _code(both) == "bad_request"
        void = TokenRevocation.sign(bus.peer.identity, grant.id, grant.approver, "manual", now_ms=now_ms())
        host.peer.membership.revocations.add(void, host.peer.roster)
        again = bus.call(POST, body, token=token, run=RUN, grant=grant, use=1)
        assert await _code(again) == "token_revoked"
        assert service.calls == []


def _frame(bus: Bus, host_node: str, instance: str, body: dict[str, Any], **fields: Any) -> tuple[str, bytes]:
    """A call as bytes, unsigned unless the test signs it: for what the library would never send."""
    capability = parse_capability(fields.pop("capability", QUERY))
    header = bus.peer.sender.header(
        "call", ids.new_ulid(), to=host_node, to_instance=instance, capability=str(capability), deadline=5000
    )
    header = msgspec.structs.replace(header, **fields)
    inner = frames.plain(header, msgspec.json.encode(body))
    subject = subjects.call(bus.peer.node_id, host_node, instance, capability)
    return subject, frames.box(inner, bus.peer.sender.keys.to(host_node))


class _Listener:
    """Waits for replies to hand-made frames."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.heard: list[Frame] = []

    async def send(self, frame: tuple[str, bytes], call_id: str) -> None:
        self._bus.peer.replies.expect(call_id, self)
        await self._bus.peer.link.publish(*frame)

    def on_frame(self, frame: Frame) -> None:
        self.heard.append(frame)

    def on_no_responders(self, node: str) -> None:
        raise AssertionError("somebody is there")

    def on_lost(self) -> None:
        """The test is over, and its connection with it."""

    @property
    def codes(self) -> list[str]:
        return [frame.header.code for frame in self.heard]


@pytest.mark.req("ADMIT-5")
async def test_a_captured_frame_counts_once(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        listener, call_id = _Listener(bus), ids.new_ulid()
        frame = _frame(bus, host.peer.node_id, host.peer.instance, query(), id=call_id)
        for _ in range(3):
            await listener.send(frame, call_id)
        await wait_for(lambda: host.dropped == 2, what="the repetitions to be dropped")
        await wait_for(lambda: listener.heard, what="the one answer")
    assert len(service.calls) == 1
    assert listener.codes == [""]


@pytest.mark.req("ADMIT-6")
@pytest.mark.parametrize("minutes", [-5, 5])
async def test_a_clock_that_is_off_is_told_the_time(mesh: Mesh, minutes: int) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        listener, call_id = _Listener(bus), ids.new_ulid()
        off = now_ms() + minutes * 60_000
        await listener.send(
            _frame(bus, host.peer.node_id, host.peer.instance, query(), id=call_id, time=off), call_id
        )
        await wait_for(lambda: listener.heard, what="the refusal")
    assert listener.codes == ["expired"]
    assert abs(msgspec.json.decode(listener.heard[0].body)["details"]["now"] - now_ms()) < 10_000
    assert service.calls == []


@pytest.mark.req("ADMIT-7")
async def test_an_effect_asked_for_without_a_signature_is_refused(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        listener, call_id = _Listener(bus), ids.new_ulid()
        body = post(ids.new_ulid())
        frame = _frame(bus, host.peer.node_id, host.peer.instance, body, id=call_id, capability=POST)
        await listener.send(frame, call_id)
        await wait_for(lambda: listener.heard, what="the refusal")
    assert listener.codes == ["invalid_signature"]
    assert service.calls == []


@pytest.mark.req("CONTRACT-13")
async def test_a_body_over_the_contracts_limit_is_not_read(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        for characters, codes in ((65_000, [""]), (65_536, ["payload_too_large"])):
            listener, call_id = _Listener(bus), ids.new_ulid()
            body = {**query(), "unknown": "x" * characters}
            await listener.send(_frame(bus, host.peer.node_id, host.peer.instance, body, id=call_id), call_id)
            await wait_for(functools.partial(getattr, listener, "heard"), what="the answer")
            assert listener.codes == codes
        # The size is judged first: what is no JSON at all has no better answer.
        subject, _ = _frame(bus, host.peer.node_id, host.peer.instance, body)
        listener, call_id = _Listener(bus), ids.new_ulid()
        header = bus.peer.sender.header(
            "call",
            call_id,
            to=host.peer.node_id,
            to_instance=host.peer.instance,
            capability=QUERY,
            deadline=5000,
        )
        inner = frames.plain(header, b"{" * 65_537)
        sealed = frames.box(inner, bus.peer.sender.keys.to(host.peer.node_id))
        await listener.send((subject, sealed), call_id)
        await wait_for(lambda: listener.heard, what="the refusal")
        assert listener.codes == ["payload_too_large"]
    assert len(service.calls) == 1


@pytest.mark.req("ADMIT-8")
async def test_what_is_not_for_this_process_is_dropped_without_a_word(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        node, instance = host.peer.node_id, host.peer.instance
        listener, call_id = _Listener(bus), ids.new_ulid()
        subject, good = _frame(bus, node, instance, query())
        flipped = good[:-1] + bytes([good[-1] ^ 1])
        bad = [
            b"",
            b"garbage",
            flipped,
            _frame(bus, node, instance, query(), to_instance="aaaaaaaa", id=call_id)[1],
            _frame(bus, node, instance, query(), community=Identity.generate().node_id, id=call_id)[1],
            _frame(bus, node, instance, query(), kind="reply", id=call_id, stream="rag.query.v1")[1],
            _frame(bus, node, instance, query(), sender=Identity.generate().node_id, id=call_id)[1],
        ]
        bus.peer.replies.expect(call_id, listener)
        for data in bad:
            await bus.peer.link.publish(subject, data)
        await wait_for(lambda: host.dropped == len(bad), what="all to be dropped")
        assert service.calls == []
        # Its answer comes behind whatever was said before.
        assert (await bus.call(QUERY, query())).output
        assert listener.heard == []


@pytest.mark.req("ADMIT-9")
async def test_the_server_pins_a_node_to_its_own_name(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus:
        link = await NatsClient.connect(mesh.server.url, mesh.identity.login(), "impostor")
        other = Identity.generate()
        for subject in (
            subjects.call(other.node_id, host.peer.node_id, host.peer.instance, parse_capability(QUERY)),
            subjects.announce(other.node_id, parse_capability(QUERY)),
            subjects.find(other.node_id, "rag.query.v1"),
            "$JS.API.STREAM.LIST",
        ):
            caplog.clear()
            await link.publish(subject, b"x")
            await wait_for(lambda: "Permissions Violation for Publish" in caplog.text, what="a refusal")
            assert f'to "{subject}"' in caplog.text
        await link.close()
        assert (await bus.call(QUERY, query())).output


@pytest.mark.req("ADMIT-10")
async def test_one_client_id_has_one_effect_however_many_ask(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus:
        body = post(ids.new_ulid())
        replies = await asyncio.gather(*(bus.call(POST, body) for _ in range(20)))
        other = post(body["input"]["client_id"], title="Something else")
        assert await _code(bus.call(POST, other)) == "bad_request"
    assert len({reply.output["event_id"] for reply in replies}) == 1
    assert {reply.output["lamport"] for reply in replies} == {1}
    assert sum(not reply.meta["repeated"] for reply in replies) == 1


@pytest.mark.req("ADMIT-11")
async def test_a_post_survives_the_server_dying_under_it(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
        body = post(ids.new_ulid())
        asking = asyncio.create_task(bus.call(POST, body, timeout_seconds=20))
        mesh.restart_server()
        first = await asking
        again = await bus.call(POST, body)
    assert first.output == again.output
