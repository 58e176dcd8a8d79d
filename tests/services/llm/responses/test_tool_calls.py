"""llm.tools.call over a real bus: whose authority it has, how deep it goes, what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import hearthnet
from hearthnet import Call, Stream
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.toolbox import TOOLS_CALL, TOOLS_CALL_ID, Toolbox
from hearthnet.agent.tools.types import Approve, Decision, Deny, PendingApproval, ToolCall, ToolDefinition
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity
from hearthnet_llm import LlmService
from tests.agent.bench import POST as POST_ARGUMENTS
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
RUN = "01HZX3Q4R5S6T7V8W9XA0BC1D2"


def wrapped(capability: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A body for llm.tools.call."""
    given = {"tool_call_id": "tc_1", "target_capability": capability, "target_body": body, **more}
    return {"params": {}, "input": given}


def token(bus: Bus, issuer: Identity, subject: str, *capabilities: str, **more: Any) -> str:
    """A run token of `issuer` for the node `subject`."""
    return mint(
        issuer,
        subject=subject,
        audience=bus.peer.community,
        scope=Scope(capabilities=capabilities, params_constraints=more.pop("constraints", {})),
        now_ms=now_ms(),
        ttl_seconds=300,
        run=more.pop("run", RUN),
    )


def approval(bus: Bus, issuer: Identity, actor: str, body: dict[str, Any]) -> dict[str, Any]:
    """A yes of `issuer` to the post `body` by the node `actor`."""
    now = now_ms()
    signed = Approval(
        id=ids.new_ulid(now),
        community=bus.peer.community,
        approver=issuer.node_id,
        actor=actor,
        provider=actor,
        capability=POST,
        arguments_digest=digest(body),
        idempotency_key=body["input"]["client_id"],
        run=RUN,
        tool_call_id="tc_1",
        time=now,
        expires=now + 60_000,
    )
    built: dict[str, Any] = msgspec.to_builtins(sign_approval(issuer, signed))
    return built


@contextlib.asynccontextmanager
async def at_work(
    mesh: Mesh, probe: ProbeService, *, at: Home | None = None, guest: bool = False
) -> AsyncIterator[tuple[Bus, Bus]]:
    """The bus of a caller, the home's or its guest's, and that of the process that makes its calls; both
    know what there is.
    """
    bus = await (mesh.guest_bus() if guest else mesh.bus())
    async with bus, mesh.hosting(probe), mesh.hosting(LlmService(), at=at) as host:
        own = Bus(host.peer)
        await wait_for_offers(own, QUERY, POST, CHAT, TOOLS_CALL_ID)
        await wait_for_offers(bus, QUERY, POST, CHAT, TOOLS_CALL_ID)
        yield bus, own


async def wait_for_offers(bus: Bus, *capabilities: str) -> None:
    """Until all of them are offered, as `bus` sees it."""

    async def there() -> bool:
        found = [await bus.offers(capability) for capability in capabilities]
        return all(found)

    await wait_for(there, 30, "the offers")


async def refused(bus: Bus, body: dict[str, Any], **options: Any) -> HearthNetError:
    """What llm.tools.call raises for `body`."""
    with pytest.raises(HearthNetError) as raised:
        await bus.call(TOOLS_CALL_ID, body, **options)
    return raised.value


@pytest.mark.req("LLM-90")
async def test_a_plain_call_has_the_targets_answer(mesh: Mesh) -> None:
    probe = ProbeService()
    async with at_work(mesh, probe) as (bus, _):
        reply = await bus.call(TOOLS_CALL_ID, wrapped(QUERY, query()))
        drained = await bus.call(TOOLS_CALL_ID, wrapped(CHAT, {**CHAT_BODY, "params": {"model": "probe"}}))
        body = post(ids.new_ulid(now_ms()))
        typed = await bus.call(TOOLS_CALL_ID, wrapped(POST, body))
        again = await bus.call(TOOLS_CALL_ID, wrapped(POST, body))
        direct = await bus.call(QUERY, query())
    assert reply.output == direct.output
    assert {**reply.meta, "ms": 0} == {**direct.meta, "ms": 0}
    assert typed.output["event_id"]
    assert [frame["data"]["text"] for frame in drained.output["frames"]] == ["t0", "t1", "t2"]
    assert drained.output["final"]["model"] == "probe"
    assert typed.output == again.output
    asked, *_ = probe.calls
    assert (asked.principal, asked.token, asked.hops) == (mesh.identity.node_id, "", 1)


@pytest.mark.req("LLM-90")
async def test_what_does_not_fit_the_target_is_refused_with_its_path(mesh: Mesh) -> None:
    probe = ProbeService()
    async with at_work(mesh, probe) as (bus, _):
        unfit = await refused(bus, wrapped(QUERY, {"params": {"corpus": "probe"}, "input": {"query": 7}}))
        missing = await refused(bus, wrapped("rag.query@9.0", query()))

        async def answer(_call: Call[Any, Any]) -> None:
            raise RuntimeError("broken")

        probe.answer = answer
        broken = await refused(bus, wrapped(QUERY, query()))
    assert (unfit.code, unfit.details["path"]) == ("bad_request", "/input/target_body/input/query")
    assert unfit.message.startswith("target_body does not fit rag.query@1.0: ")
    assert (missing.code, missing.message) == (
        "schema_mismatch",
        "rag.query@9.0 is not a version known here; there is rag.query@1.0",
    )
    assert broken.code == "internal_error"
    assert broken.message.startswith("rag.query@1.0 failed; its log has the reason")
    assert len(probe.calls) == 1, "what does not fit never comes to it"


@pytest.mark.req("LLM-91")
async def test_another_node_acts_under_a_token_for_it_and_never_by_itself(mesh: Mesh) -> None:
    """The guest has the home's executor make its calls: in the guest's name, within its token."""
    probe, home = ProbeService(), mesh.identity.node_id
    async with at_work(mesh, probe, guest=True) as (bus, _):
        guest = bus.peer.identity
        good = token(bus, guest, home, QUERY, constraints={"corpus": ["probe"]})
        await bus.call(TOOLS_CALL_ID, wrapped(QUERY, query(), token=good), run=RUN)
        (asked,) = probe.calls
        assert (asked.caller, asked.principal, asked.run) == (home, guest.node_id, RUN)
        without = await refused(bus, wrapped(QUERY, query()), run=RUN)
        other_run = await refused(bus, wrapped(QUERY, query(), token=good), run=ids.new_ulid(now_ms()))
        no_run = await refused(bus, wrapped(QUERY, query(), token=token(bus, guest, home, QUERY, run="")))
        self_made = token(bus, guest, guest.node_id, QUERY)
        for_another = await refused(bus, wrapped(QUERY, query(), token=self_made), run=RUN)
        stolen = token(bus, mesh.identity, home, QUERY)
        not_mine = await refused(bus, wrapped(QUERY, query(), token=stolen), run=RUN)
        too_little = await refused(bus, wrapped(POST, post(RUN), token=good), run=RUN)
        elsewhere = token(bus, guest, home, QUERY, constraints={"corpus": ["system"]})
        other_value = await refused(bus, wrapped(QUERY, query(), token=elsewhere), run=RUN)
    assert (without.code, for_another.code, not_mine.code) == ("unauthorized",) * 3
    assert without.message.endswith(f"give a run token in input.token whose subject is {home}")
    assert {for_another.message, not_mine.message} == {
        "input.token must be issued by whoever the call is for, to the node that serves it"
    }
    too_narrow = (other_run.code, no_run.code, too_little.code, other_value.code)
    assert too_narrow == ("token_scope_insufficient",) * 4
    assert {other_run.message, no_run.message} == {"input.token must be made for the run of this call"}
    assert too_little.message == "the token does not cover market.post@1.0"
    assert "corpus" in other_value.message
    assert len(probe.calls) == 1


@pytest.mark.req("AUTHOR-4")
async def test_contract_of_a_home_is_told_to_no_other_caller(mesh: Mesh) -> None:
    """Neither what a body lacks nor whether there is such a capability, with a token or without."""
    service, home = hearthnet.Service("hello"), mesh.identity.node_id

    @service.capability("hello.greet@1.0", trust="member")
    async def greet(name: str) -> str:
        """Greet a person by name."""
        return f"Hello {name}"

    async with mesh.hosting(service), at_work(mesh, ProbeService(), guest=True) as (bus, _):
        lent = token(bus, bus.peer.identity, home, "hello.greet")
        empty: dict[str, Any] = {"params": {}, "input": {}}
        bare = await refused(bus, wrapped("hello.greet@1.0", empty), run=RUN)
        known = await refused(bus, wrapped("hello.greet@1.0", empty, token=lent), run=RUN)
        assert (bare.code, "nothing lets this node act for you" in bare.message) == ("unauthorized", True)
        assert (known.code, known.message) == ("unauthorized", "hello.greet is called at its own home only")


@pytest.mark.req("LLM-91")
async def test_an_effect_takes_the_persons_approval_of_the_targets_call(mesh: Mesh) -> None:
    probe, home = ProbeService(), mesh.identity.node_id
    async with at_work(mesh, probe, guest=True) as (bus, _):
        guest = bus.peer.identity
        lent = token(bus, guest, home, POST)
        body = post(ids.new_ulid(now_ms()))
        unasked = await refused(bus, wrapped(POST, body, token=lent), run=RUN)
        yes = approval(bus, guest, home, body)
        other = post(ids.new_ulid(now_ms()), "Bread")
        altered = await refused(bus, wrapped(POST, other, token=lent, approval=yes), run=RUN)
        forged = approval(bus, mesh.identity, home, body)
        not_hers = await refused(bus, wrapped(POST, body, token=lent, approval=forged), run=RUN)
        assert probe.calls == []
        await bus.call(TOOLS_CALL_ID, wrapped(POST, body, token=lent, approval=yes), run=RUN)
    assert (unasked.code, altered.code, not_hers.code) == ("unauthorized",) * 3
    assert unasked.message == "market.post@1.0 has side effects and needs the person's approval"
    assert (altered.details, not_hers.details) == ({"rule": "arguments"}, {"rule": "approver"})
    (posted,) = probe.calls
    assert posted.principal == guest.node_id


@pytest.mark.req("LLM-92")
async def test_a_nested_call_and_one_that_is_too_deep(mesh: Mesh) -> None:
    probe = ProbeService()
    async with at_work(mesh, probe) as (bus, _):
        body = wrapped(QUERY, query())
        for _ in range(5):
            body = wrapped(TOOLS_CALL_ID, body)
        reply = await bus.call(TOOLS_CALL_ID, body)
        assert len(reply.output["chunks"]) == 1
        assert [call.hops for call in probe.calls] == [6]
        body = wrapped(TOOLS_CALL_ID, body)
        deep = await refused(bus, body)
        many = token(bus, mesh.identity, mesh.identity.node_id, TOOLS_CALL_ID, QUERY)
        covered = await refused(bus, body, token=many, run=RUN)
    assert (deep.code, deep.details["rule"]) == ("bad_request", "hops")
    assert (covered.code, covered.message) == (
        "bad_request",
        "llm.tools.call lies in itself more than 6 times",
    )
    assert len(probe.calls) == 1


@pytest.mark.req("LLM-92")
async def test_a_cycle_ends_with_an_error(mesh: Mesh) -> None:
    """A service whose answer takes llm.tools.call, which calls that service."""
    probe = ProbeService(places=32)
    async with at_work(mesh, probe) as (bus, own):

        async def answer(_call: Call[Any, Any]) -> None:
            await own.call(TOOLS_CALL_ID, wrapped(QUERY, query()))

        probe.answer = answer
        ended = await asyncio.wait_for(refused(bus, wrapped(QUERY, query())), 30)
    assert (ended.code, ended.details["rule"]) == ("bad_request", "hops")
    assert [call.hops for call in probe.calls] == [1, 3, 5]


def composed(name: str, arguments: dict[str, Any] | None = None) -> ToolDefinition:
    """The built-in tool `name`, whose calls llm.tools.call makes."""
    (plain,) = builtin_tools([name], {name: arguments} if arguments else None)
    assert plain.bound_capability is not None
    assert plain.bound_version is not None
    target = f"{plain.bound_capability}@{plain.bound_version[0]}.{plain.bound_version[1]}"
    return ToolDefinition(
        name=plain.name,
        description=plain.description,
        parameters_schema=plain.parameters_schema,
        bound_capability=TOOLS_CALL,
        bound_version=(1, 0),
        side_effects=False,
        bound_params={**plain.bound_params, "target_capability": target},
    )


class _Talking(ProbeService):
    """A model that looks and posts in one turn, then is done."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.talk = self._talk

    async def _talk(self, _call: Call[Any, Any], stream: Stream) -> None:
        self.turn += 1
        if self.turn == 1:
            looks = {"id": "a", "name": "search_corpus", "arguments": {"query": "water"}}
            posts = {"id": "b", "name": "market_post", "arguments": POST_ARGUMENTS}
            await stream.send("tool_call", looks)
            await stream.send("tool_call", posts)
        else:
            await stream.send("token", {"text": "Done."})


@pytest.mark.req("TOOL-57")
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_tool_bound_to_it_is_what_its_target_is(mesh: Mesh, *, elsewhere: bool) -> None:
    """A run of the home, whose tools the home's own llm service or the guest's carries out."""
    probe, asked = _Talking(), list[PendingApproval]()

    async def decide(pending: PendingApproval) -> Decision:
        asked.append(pending)
        return Approve()

    at = mesh.guest if elsewhere else mesh.home
    tools = [composed("search_corpus", {"corpus": "probe"}), composed("market_post")]
    async with at_work(mesh, probe, at=at) as (bus, own):
        executor = ToolExecutor(bus, tools)
        outcome = await executor.open_run({**CHAT_BODY, "params": {"model": "probe"}}, decide=decide).drive()
    assert outcome.done is not None
    assert [tool["status"] for tool in outcome.done["tools"]] == ["completed", "completed"]
    read, posted = (next(c for c in probe.calls if c.contract.id == name) for name in (QUERY, POST))
    assert {read.caller, posted.caller} == {own.peer.node_id}
    assert {read.principal, posted.principal} == {mesh.identity.node_id}
    (question,) = asked
    assert question.capability == POST
    assert posted.body == question.body
    assert posted.approval is not None
    assert posted.approval.arguments_digest == question.arguments_digest


@pytest.mark.req("TOOL-57")
async def test_without_anybody_who_makes_the_call_the_tool_fails(mesh: Mesh) -> None:
    probe = ProbeService()
    async with mesh.hosting(probe), await mesh.bus() as bus:
        executor = ToolExecutor(bus, [composed("search_corpus", {"corpus": "probe"})])
        result = await executor.dispatch(ToolCall("a", "search_corpus", {"query": "water"}))
        denied = await executor.dispatch_confirmed(
            ToolCall("b", "search_corpus", {"query": "water"}), Deny("no")
        )
    assert result.is_error
    assert result.content == "not_found: nobody offers llm.tools.call@1.0; is the llm service running?"
    assert (denied.is_error, denied.content) == (True, "denied: no")
    assert probe.calls == []


@pytest.mark.req("TOOL-57")
@pytest.mark.parametrize("target", [None, TOOLS_CALL_ID, "llm.tools.call", 7])
async def test_a_tool_that_does_not_fix_what_is_called_in_the_end_is_refused(target: Any) -> None:
    plain = composed("search_corpus", {"corpus": "probe"})
    bound = {} if target is None else {"target_capability": target}
    with pytest.raises(HearthNetError, match="target_capability") as raised:
        Toolbox([msgspec.structs.replace(plain, bound_params=bound)])
    assert raised.value.code == "bad_request"
