"""Whose token and whose yes: the authority of a client's run (docs/decisions/0101)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.events import Dispatch
from hearthnet.agent.persistence.decision_log import DecisionLog, SignedDecision
from hearthnet.agent.runtime.authority import RunAuthority, Scopes
from hearthnet.agent.runtime.client_authority import (
    ClientApprover,
    ClientAuthority,
    ClientPrincipal,
    approval_template,
    verify_approval,
)
from hearthnet.agent.tools.builtin import builtin_tools, capability_tool
from hearthnet.agent.tools.toolbox import BoundTool, Toolbox
from hearthnet.agent.tools.types import Approve, PendingApproval, ToolDefinition
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol.offer import OfferRecord
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.approval import ANY_PROVIDER, PURPOSE, Approval, sign_approval
from hearthnet.trust.authorization.token import Scope
from hearthnet.trust.keys import Identity

pytestmark = pytest.mark.asyncio
NODE = Identity(b"n" * 32)
GUEST = Identity(b"g" * 32)
COMMUNITY = Identity(b"c" * 32).node_id
RUN, CALL, KEY = "01JZZZZZZZZZZZZZZZZZZZZZ01", "p", "01JZZZZZZZZZZZZZZZZZZZZZ02"
DIGEST = "blake3:" + "1" * 64
CID = "blake3:" + "0" * 64


def view(node: str, capability: str) -> OfferView:
    record = OfferRecord(
        capability=capability,
        instance="abcdefgh",
        schema_hash="",
        params={},
        max_concurrent=1,
        in_flight=0,
        issued_at=0,
        expires_at=1,
    )
    return OfferView(node, parse_capability(capability), record)


class Mesh:
    """Who offers what."""

    def __init__(self, *nodes: Identity) -> None:
        self.nodes = nodes

    async def offers(self, capability: str | None = None) -> list[OfferView]:
        return [view(node.node_id, capability or "") for node in self.nodes]


def tool(name: str, **fixed: Any) -> BoundTool:
    (made,) = Toolbox([capability_tool(name, fixed)])
    assert isinstance(made, BoundTool)
    return made


POSTING, INGESTING = tool("market.post"), tool("rag.ingest")


def composed() -> BoundTool:
    (search,) = builtin_tools(["search_corpus"], {"search_corpus": {"corpus": "probe"}})
    wrapped = msgspec.structs.replace(
        search,
        bound_capability="llm.tools.call",
        bound_params={"target_capability": "rag.query@1.0", "corpus": "probe"},
    )
    (made,) = Toolbox([wrapped])
    assert isinstance(made, BoundTool)
    return made


def acting(key: str = GUEST.node_id, scope: Scope | None = None) -> ClientPrincipal:
    return ClientPrincipal(
        f"{NODE.node_id}/anna", key, scope or Scope(("market.post",)), lambda approver: f"token of {approver}"
    )


def call(tool: BoundTool = POSTING) -> Dispatch:
    return Dispatch(
        tool_call_id=CALL,
        name=tool.definition.name,
        capability=tool.capability,
        body={},
        client_id=KEY,
        timeout_ms=1000,
        arguments_digest=DIGEST,
        provider=NODE.node_id if tool is POSTING else "",
    )


def asked(capability: str = "market.post@1.0") -> PendingApproval:
    return PendingApproval(
        confirmation_id="c",
        run=RUN,
        tool_call_id=CALL,
        name="x",
        capability=capability,
        arguments={},
        body={},
        arguments_digest=DIGEST,
        client_id=KEY,
        expires_at=now_ms() + 60_000,
        provider=NODE.node_id if capability == POSTING.capability else "",
    )


class Said(DecisionLog):
    """What was decided: a yes that came with `approval`, about every call; nothing without one."""

    def __init__(self, approval: Approval | None) -> None:
        self.approval = approval

    async def decided(self, run: str, confirmation_id: str) -> SignedDecision | None:
        return None if self.approval is None else decision(GUEST.node_id, approval=self.approval)


def decision(by: str, **more: Any) -> SignedDecision:
    """A yes of `by` to the call."""
    return SignedDecision(
        run=RUN,
        tool_call_id=CALL,
        confirmation_id=KEY,
        capability="market.post@1.0",
        client_id=KEY,
        shown=DIGEST,
        by=by,
        via="runs",
        time=1,
        since=0,
        **{"digest": DIGEST, "decision": Approve(), **more},
    )


def authority(who: ClientPrincipal, said: Approval | None = None) -> ClientAuthority:
    return ClientAuthority(NODE, COMMUNITY, RUN, who, Said(said))


async def wanted(tool: BoundTool = POSTING, mesh: Mesh | None = None) -> Approval:
    """What the guest is shown to sign."""
    return await approval_template(
        tool, asked(tool.capability), GUEST.node_id, NODE.node_id, COMMUNITY, mesh or Mesh()
    )


# --- tokens


@pytest.mark.req("SESS-1")
async def test_the_model_and_the_tools_are_asked_under_the_clients_token() -> None:
    mine = authority(acting())
    assert mine.model_token() == mine.token(POSTING) == mine.token(POSTING, NODE.node_id) == "token of "


@pytest.mark.req("SESS-9")
async def test_what_another_key_of_the_client_approved_goes_out_under_its_token() -> None:
    other = Identity(b"o" * 32)
    mine = authority(acting())
    own = await wanted()
    assert mine.token(POSTING, approval=own) == "token of "
    theirs = msgspec.structs.replace(own, approver=other.node_id)
    assert mine.token(POSTING, approval=theirs) == f"token of {other.node_id}"
    gateway = msgspec.structs.replace(own, approver=NODE.node_id, via="gateway")
    assert mine.token(POSTING, approval=gateway) == "token of "


@pytest.mark.req("SESS-1")
async def test_no_other_node_makes_calls_for_a_client() -> None:
    mine = authority(acting(""))
    with pytest.raises(HearthNetError, match="only this node") as caught:
        mine.token(composed(), GUEST.node_id)
    assert caught.value.code == "unauthorized"
    with pytest.raises(HearthNetError, match="only this node"):
        await mine.approve(POSTING, call(), Mesh(), GUEST.node_id)


# --- approvals


@pytest.mark.req("SESS-1", "SESS-2")
async def test_the_clients_own_approval_is_sent_and_none_is_made_up() -> None:
    signed = sign_approval(GUEST, await wanted())
    assert await authority(acting(), signed).approve(POSTING, call(), Mesh()) == signed
    with pytest.raises(HearthNetError, match="own signed approval") as caught:
        await authority(acting()).approve(POSTING, call(), Mesh())
    assert caught.value.code == "unauthorized"
    nobody = ClientAuthority(NODE, COMMUNITY, RUN, acting(), None)
    with pytest.raises(HearthNetError, match="own signed approval"):
        await nobody.approve(POSTING, call(), Mesh())
    given = await authority(acting("")).approve(POSTING, call(), Mesh())
    assert (given.approver, given.via, given.arguments_digest) == (NODE.node_id, "gateway", DIGEST)
    signed_document.check(given, NODE.node_id, PURPOSE)


@pytest.mark.req("SESS-10")
async def test_an_effect_on_a_node_is_approved_for_the_one_that_there_is() -> None:
    for mesh in (Mesh(NODE), Mesh(GUEST, NODE)):
        assert (await wanted(INGESTING, mesh)).provider == NODE.node_id
    assert (await wanted(INGESTING, Mesh(GUEST))).provider == GUEST.node_id
    for mesh, code, said in (
        (Mesh(), "not_found", "nobody offers rag.ingest@1.0 now"),
        (Mesh(GUEST, Identity.generate()), "bad_request", "cannot tell for which home"),
    ):
        with pytest.raises(HearthNetError, match=said) as caught:
            await wanted(INGESTING, mesh)
        assert caught.value.code == code
    assert (await wanted(tool("community.promote"))).provider == ANY_PROVIDER


@pytest.mark.req("SESS-10")
async def test_what_is_signed_ends_with_the_question_and_not_before_it_begins() -> None:
    question = asked()
    for expires_at in (question.expires_at, 1):
        shown = msgspec.structs.replace(question, expires_at=expires_at)
        given = await approval_template(POSTING, shown, GUEST.node_id, NODE.node_id, COMMUNITY, Mesh())
        assert given.expires == max(expires_at, given.time)


@pytest.mark.req("SESS-10")
async def test_what_no_provider_asks_for_takes_no_signature() -> None:
    voter = ClientApprover("p", GUEST.node_id, NODE.node_id, COMMUNITY, Mesh())
    own = ToolDefinition("look", "", {"type": "object"}, None, None, True)
    (mine,) = Toolbox([own])
    assert await voter.approval_template(mine, asked("")) is None
    assert await voter.approval_template(tool("rag.query", corpus="probe"), asked()) is None
    await voter.check(mine, asked(""), None, now_ms())
    keyless = ClientApprover("p", "", NODE.node_id, COMMUNITY, Mesh())
    assert await keyless.approval_template(POSTING, asked()) is None
    with pytest.raises(HearthNetError, match="takes your signed approval") as caught:
        await voter.check(POSTING, asked(), None, now_ms())
    assert caught.value.details["rule"] == "approval"


FORGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "of another key": ({"approver": NODE.node_id}, "invalid_signature", ""),
    "by a gateway": ({"via": "gateway"}, "unauthorized", "way of consent"),
    "for other arguments": ({"arguments_digest": CID}, "unauthorized", "arguments"),
    "for another effect": ({"idempotency_key": "other"}, "unauthorized", "idempotency key"),
    "for another run": ({"run": KEY}, "unauthorized", "run"),
    "for another capability": ({"capability": "market.expire@1.0"}, "unauthorized", "capability"),
    "for another community": ({"community": NODE.node_id}, "unauthorized", "community"),
    "for another gateway": ({"actor": GUEST.node_id}, "unauthorized", "actor"),
    "for any provider": ({"provider": ANY_PROVIDER}, "unauthorized", "provider"),
    "for another call": ({"tool_call_id": "q"}, "unauthorized", "tool call"),
    "without an id": ({"id": "mine"}, "unauthorized", "tool call"),
    "too old": ({"time": 1000, "expires": 2000}, "expired", ""),
    "not yet": ({"time": 2**52, "expires": 2**52}, "expired", ""),
    "for ever": ({"expires": 2**52}, "expired", ""),
}


@pytest.mark.req("SESS-10")
@pytest.mark.parametrize("change", FORGED)
async def test_only_exactly_what_was_shown_is_an_approval(change: str) -> None:
    fields, code, rule = FORGED[change]
    expected = await wanted()
    verify_approval(sign_approval(GUEST, expected), expected, now_ms())
    changed = msgspec.structs.replace(expected, **fields)
    if changed.approver == GUEST.node_id:
        changed = sign_approval(GUEST, changed)
    with pytest.raises(HearthNetError) as caught:
        verify_approval(changed, expected, now_ms())
    assert (caught.value.code, caught.value.details.get("rule", "")) == (code, rule)


@pytest.mark.req("SESS-10")
async def test_approval_may_not_live_longer_than_its_question() -> None:
    expected = await wanted()
    longer = sign_approval(GUEST, msgspec.structs.replace(expected, expires=expected.expires + 1))
    with pytest.raises(HearthNetError) as caught:
        verify_approval(longer, expected, now_ms())
    assert (caught.value.code, caught.value.details) == ("unauthorized", {"rule": "expires"})


# --- the scope


@pytest.mark.req("SESS-6")
@pytest.mark.parametrize(
    ("tool", "scope", "covered"),
    [
        (POSTING, Scope(("market.post",)), True),
        (POSTING, Scope(("market.list",)), False),
        (tool("rag.query", corpus="a"), Scope(("rag.query",), {"corpus": ["a"]}), True),
        (tool("rag.query", corpus="b"), Scope(("rag.query",), {"corpus": ["a"]}), False),
        (tool("rag.query"), Scope(("rag.query",), {"corpus": ["a"]}), True),
        (POSTING, Scope(("market.post",), {"corpus": ["a"]}), False),
        (POSTING, Scope(("market.post",), {"input.category": ["offer"]}), True),
        (POSTING, Scope(("market.post",), {"input.corpus": ["a"]}), False),
        (composed(), Scope(("rag.query",)), False),
        (composed(), Scope(("rag.query", "llm.tools.call")), True),
    ],
)
async def test_a_tool_is_covered_where_some_call_is(tool: BoundTool, scope: Scope, covered: bool) -> None:
    assert acting(scope=scope).covers(tool) is covered


@pytest.mark.req("SESS-6")
async def test_the_clients_own_tools_take_no_scope() -> None:
    (mine,) = Toolbox([ToolDefinition("look", "", {"type": "object"}, None, None, False)])
    assert acting().covers(mine)


# --- the owner's page


class Decided(DecisionLog):
    """One decision, about every call."""

    def __init__(self, said: SignedDecision) -> None:
        self.said = said

    async def decided(self, run: str, confirmation_id: str) -> SignedDecision | None:
        return self.said


def owners(said: SignedDecision) -> ClientAuthority:
    """The authority of the owner's page, where `said` was decided."""
    own = RunAuthority(NODE, COMMUNITY, RUN, Scopes([POSTING]))
    return ClientAuthority(NODE, COMMUNITY, RUN, acting(), Decided(said), owner=own)


@pytest.mark.req("SESS-20")
async def test_authority_owner_yes_goes_out_in_the_owners_name() -> None:
    mine = owners(decision(NODE.node_id))
    given = await mine.approve(POSTING, call(), Mesh())
    assert (given.approver, given.via or "", given.arguments_digest) == (NODE.node_id, "", DIGEST)
    assert mine.token(POSTING, approval=given).startswith("hntoken://")
    assert mine.token(POSTING) == mine.model_token() == "token of "


@pytest.mark.req("SESS-20")
@pytest.mark.parametrize(
    "said",
    [decision(GUEST.node_id), decision(NODE.node_id, digest=CID), decision(NODE.node_id, digest="")],
    ids=["another", "another call", "a no"],
)
async def test_authority_owner_yes_to_something_else_is_none(said: SignedDecision) -> None:
    with pytest.raises(HearthNetError, match="own signed approval"):
        await owners(said).approve(POSTING, call(), Mesh())
