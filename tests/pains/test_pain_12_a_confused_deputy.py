"""12. Confused deputy, token passed through: whoever makes a call for somebody has that person's rights and
not its own, and a token stands in the calls it was made for and nowhere else.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from hearthnet import Call, Offer, Stream
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.toolbox import TOOLS_CALL_ID
from hearthnet.agent.tools.types import Approve, Decision, PendingApproval
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import frame as frames
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import SCHEME
from hearthnet.trust.authorization.token import mint as mint_token
from hearthnet_llm import LlmService
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, MODEL, ProbeService
from tests.helpers.waiting import wait_for
from tests.pains.acting import POST, Acting, Turn, says, tools, wants
from tests.service.workers import audited
from tests.services.llm.responses.test_tool_calls import RUN, token, wait_for_offers, wrapped

pytestmark = [pytest.mark.asyncio, pytest.mark.req("PAIN-12")]
POST_ID, EXPIRE, LIST = "market.post@1.0", "market.expire@1.0", "market.list@1.0"
NOT_ITS_OWN = "only its author, or a trusted member, may end a post"


class _Model(ProbeService):
    """A model alone, that says these turns."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__()
        left = list(turns)

        async def talk(_call: Call[Any, Any], stream: Stream) -> None:
            for event, data in left.pop(0):
                await stream.send(event, data)

        self.talk = talk

    def offers(self) -> list[Offer]:
        return [Offer(capability=CHAT, params=MODEL)]


def _body(**fields: Any) -> dict[str, Any]:
    return {"params": {}, "input": fields}


async def _post(bus: Bus) -> str:
    """A post of that node's; its id."""
    given = {"client_id": ids.new_ulid(), "category": "offer", "title": "Mine", "body": "To lend."}
    return str((await bus.call(POST_ID, _body(**given))).output["event_id"])


async def _listed(bus: Bus) -> list[str]:
    return [post["event_id"] for post in (await bus.call(LIST, _body())).output["posts"]]


def _ending(event_id: str) -> dict[str, Any]:
    return _body(client_id=ids.new_ulid(), event_id=event_id, reason="withdrawn")


async def _knows_the_model(bus: Bus) -> bool:
    """Not only the one in the box, which the deputy offers."""
    return any(view.offer.params.get("model") == "probe" for view in await bus.offers(CHAT))


async def _yes(_pending: PendingApproval) -> Decision:
    return Approve()


@pytest.mark.req("MARKET-1")
async def test_a_call_for_one_that_names_anothers_post_is_judged_by_the_ones_rights(mesh: Mesh) -> None:
    """The founder's node, whose post it is, makes the call for its guest, who may not end it."""
    arguments = {"event_id": "", "reason": "withdrawn"}
    model = _Model(
        [("tool_call", {"id": "e", "name": "market_expire", "arguments": arguments})], [says("Well.")]
    )
    market, deputy = MarketService(), LlmService()
    async with (
        mesh.hosting(market),
        mesh.hosting(model),
        mesh.hosting(deputy),
        await mesh.bus() as own,
        await mesh.guest_bus() as guest,
    ):
        await wait_for_offers(guest, EXPIRE, CHAT, TOOLS_CALL_ID)
        await wait_for(lambda: _knows_the_model(guest), 30, "the offer of the model that is played")
        theirs = arguments["event_id"] = await _post(own)

        # A run of the guest's, whose model wants it and whose person says yes.
        executor = ToolExecutor(guest, builtin_tools(["market_expire"]))
        run = executor.open_run({**CHAT_BODY, "params": {"model": "probe"}}, decide=_yes)
        told = (await run.drive()).messages
        (result,) = [message for message in told if message["role"] == "tool"]
        assert result["content"].startswith(f"unauthorized: {NOT_ITS_OWN}")

        # The guest itself, directly.
        with pytest.raises(HearthNetError) as direct:
            await guest.call(EXPIRE, _ending(theirs), timeout_seconds=30)
        assert (direct.value.code, direct.value.message) == ("unauthorized", NOT_ITS_OWN)

        # The founder's node as the guest's deputy, with the guest's token and yes.
        home, body = mesh.identity.node_id, _ending(theirs)
        lent = token(guest, guest.peer.identity, home, EXPIRE)
        given = {"token": lent, "approval": _approval(guest, home, body)}
        asked = wrapped(EXPIRE, body, **given)
        with pytest.raises(HearthNetError) as deputed:
            await guest.call(TOOLS_CALL_ID, asked, node=home, run=RUN, timeout_seconds=30)
        assert deputed.value.code == "unauthorized"
        assert NOT_ITS_OWN in deputed.value.message
        assert await _listed(own) == [theirs]

        # Its own rights it has.
        await own.call(EXPIRE, _ending(theirs), timeout_seconds=30)
        assert await _listed(own) == []


def _approval(bus: Bus, actor: str, body: dict[str, Any]) -> dict[str, Any]:
    """That person's yes to ending that post by the node `actor`, whose market it is."""
    owner, now = bus.peer.identity, now_ms()
    approval = Approval(
        id=ids.new_ulid(now),
        community=bus.peer.community,
        approver=owner.node_id,
        actor=actor,
        provider=actor,
        capability=EXPIRE,
        arguments_digest=digest(body),
        idempotency_key=body["input"]["client_id"],
        run=RUN,
        tool_call_id="tc_1",
        time=now,
        expires=now + 60_000,
    )
    made: dict[str, Any] = msgspec.to_builtins(sign_approval(owner, approval))
    return made


class Tap:
    """All that goes over the wire, what is in each box before it is closed, and the tokens."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.inner: list[bytes] = []
        self.tokens: list[str] = []

    def frames(self, *nodes: str) -> list[Frame]:
        """Every boxed frame of these nodes, read."""
        return [self._read(inner, nodes) for inner in self.inner]

    def _read(self, inner: bytes, nodes: tuple[str, ...]) -> Frame:
        for node in nodes:
            try:
                return frames.read(inner, node)
            except FrameError:
                continue
        raise AssertionError("a frame of nobody")


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Tap:
    """Set on every process of the test."""
    tapped, box, keep, mint = Tap(), frames.box, NatsClient._buffer, mint_token

    def boxed(inner: bytes, key: bytes) -> bytes:
        tapped.inner.append(inner)
        return box(inner, key)

    def kept(link: NatsClient, *pieces: bytes) -> None:
        tapped.raw += b"".join(pieces)
        keep(link, *pieces)

    def minted(*given: Any, **more: Any) -> str:
        tapped.tokens.append(mint(*given, **more))
        return tapped.tokens[-1]

    monkeypatch.setattr(frames, "box", boxed)
    monkeypatch.setattr(NatsClient, "_buffer", kept)
    monkeypatch.setattr("hearthnet.agent.runtime.authority.mint", minted)
    return tapped


async def test_a_token_stands_in_its_calls_and_in_no_other_message_log_or_trace(
    mesh: Mesh, tap: Tap, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    turn = [wants("search_corpus", {"query": "w"}, "r"), wants("market_post", POST, "p")]
    service = Acting(turn, [says("Done.")])
    shown: list[Any] = []

    async def listen(frame: dict[str, Any]) -> None:
        shown.append(frame)

    async with (
        mesh.hosting(service) as host,
        await mesh.guest_bus() as bus,
        await mesh.store(mesh.guest) as store,
    ):
        runs = StoredRuns(store, bus.peer.identity)
        executor = ToolExecutor(bus, tools(), store=runs)
        await wait_for_offers(bus, "rag.query@1.0", POST_ID, CHAT)
        outcome = await executor.open_run(CHAT_BODY, stream_to=listen, decide=_yes).drive()
        traces = [repr(one) for peer in (host.peer, bus.peer) for _, one in peer.traces.after(0)]
        kept = await runs.load(outcome.run)
        async with await mesh.store() as at_home:
            log, finding = await audited(mesh, AuditLog(at_home, mesh.identity))

    assert finding is None
    assert kept is not None
    assert len(tap.tokens) == 2, "reads and effects have one each"
    sent = tap.frames(bus.peer.node_id, host.peer.node_id)
    carrying = [frame for frame in sent if any(mark in repr(frame) for mark in [SCHEME, *tap.tokens])]
    assert sorted(frame.header.capability for frame in carrying) == [POST_ID, "rag.query@1.0"]
    for frame in carrying:
        assert frame.header.sender == bus.peer.node_id
        assert frame.header.token in tap.tokens
        assert SCHEME.encode() not in frame.body
    # The audit log keeps the caller's signed frame, its token in it, as the proof of what was asked.
    elsewhere = [shown, outcome.messages, service.requests, traces, [entry.token for entry in log]]
    for place in (bytes(tap.raw), kept.data, caplog.text.encode(), repr(elsewhere).encode()):
        assert SCHEME.encode() not in place
        assert not any(one.encode() in place for one in tap.tokens)
