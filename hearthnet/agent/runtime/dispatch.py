"""Execution of one tool call over the bus, under the run's authority.

See: docs/protocol/agent.md#sending-an-effect, docs/protocol/agent.md#results-as-the-model-reads-them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import msgspec

from hearthnet.agent.loop.events import (
    Dispatch,
    GrantUsed,
    Located,
    NotGranted,
    NotLocated,
    ToolFailed,
    ToolReturned,
)
from hearthnet.agent.loop.happened import LOST
from hearthnet.agent.loop.state import client_id_of
from hearthnet.agent.runtime import spans
from hearthnet.agent.runtime.authority import CallAuthority
from hearthnet.agent.runtime.grant_store import GrantBook
from hearthnet.agent.runtime.ports import AnswerPort, BusPort, Clock, ResultsPort
from hearthnet.agent.runtime.stream_collector import Answered, OnProgress, collect
from hearthnet.agent.tools.everybody import is_for_everybody, merged
from hearthnet.agent.tools.providers import home_in, home_of, provider_of
from hearthnet.agent.tools.result_text import READ_RESULT, excerpt, json_text, piece, surely_fits
from hearthnet.agent.tools.toolbox import TOOLS_CALL_ID, BoundTool, Toolbox
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.bus.calls.attempt import CallOptions
from hearthnet.bus.calls.unary import EffectInDoubt
from hearthnet.bus.routing.named_homes import at_home, of_copy
from hearthnet.contracts.namespaces import is_derived, is_provider_defined
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.approval import ANY_PROVIDER

ATTEMPTS_OF_EFFECTS: Final = 4
"""The number of times that an effect is sent while its reply is lost."""
PATIENCE_WITH_EFFECTS: Final = 2
"""The time for sending an effect again, as a multiple of the call's own limit."""
PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
_BUSY: Final = frozenset({"capacity_exceeded", "rate_limited"})
_GRACE_SECONDS: Final = 1.0
_ASKING_SECONDS: Final = 8.0
"""The most time in which every home may answer, at most half of the call's."""
_log: Final = logging.getLogger(__name__)


class Dispatcher:
    """The sender of the calls of one run of `principal`."""

    def __init__(
        self,
        bus: BusPort,
        toolbox: Toolbox,
        authority: CallAuthority,
        run: str,
        clock: Clock,
        grants: GrantBook | None,
        results: ResultsPort | None,
        principal: str = "",
    ) -> None:
        self._bus = bus
        self._toolbox = toolbox
        self._authority = authority
        self._run = run
        self._clock = clock
        self._grants = grants
        self._results = results
        self._principal = principal

    def model_token(self) -> str:
        """Return the token for requests to the model, empty where the run is the node's own."""
        return self._authority.model_token()

    async def outcome(self, call: Dispatch, on_progress: OnProgress) -> ToolReturned | ToolFailed:
        """Run `call` and return its outcome. Raises nothing but `CancelledError`."""
        with spans.tool_span(self._bus.peer, self._run, call) as span:
            outcome: ToolReturned | ToolFailed
            try:
                if call.name == READ_RESULT and not call.capability:
                    outcome = await self._read(call)
                else:
                    outcome = await self._answered(call, on_progress)
            except HearthNetError as error:
                outcome = self._failed(call, error)
            except Exception:
                incident = ids.new_ulid()
                _log.exception("tool call %s of run %s broke [%s]", call.tool_call_id, self._run, incident)
                text = f"unexpected; look in the log for {incident}"
                outcome = self._failed(call, HearthNetError("internal_error", text))
            if span is not None and isinstance(outcome, ToolFailed):
                span.code = outcome.code
            return outcome

    async def _answered(self, call: Dispatch, on_progress: OnProgress) -> ToolReturned | ToolFailed:
        tool = self._toolbox.bound(call.name)
        try:
            consent = await self._consent(tool, call)
        except HearthNetError as error:
            return self._failed(call, error, unsent=True)
        return await self._returned(call, await self._attempts(tool, call, consent, on_progress))

    async def _returned(self, call: Dispatch, answered: Answered) -> ToolReturned:
        """Return the outcome of an answered call; a result that is too large is stored."""
        output, meta = answered.output, answered.meta
        failed = is_derived(call.capability) and isinstance(output, dict) and output.get("is_error") is True
        cid, size, output = await self._stored(call, output)
        return ToolReturned(
            now=self._clock.now_ms(),
            tool_call_id=call.tool_call_id,
            output=output,
            meta=meta,
            cid=cid,
            size=size,
            is_error=failed,
            signed_by=answered.signed_by,
            entry=answered.entry,
        )

    async def _stored(self, call: Dispatch, output: Any) -> tuple[str, int, Any]:
        """Store a result that is too large; return its CID, its size and the part to show.

        The CID is empty for a result that fits or could not be stored.
        """
        most = call.max_result_bytes
        if self._results is None or not most or surely_fits(output, most):
            return "", 0, output
        try:
            text = await asyncio.to_thread(json_text, output)
            data = text.encode("utf-8")
            if len(data) <= call.max_result_bytes:
                return "", 0, output
            cid = await self._results.put(data, self._principal)
        except HearthNetError as error:
            _log.warning("a large result of run %s is not kept: %s", self._run, error.message)
            return "", 0, output
        except Exception:
            # Whatever fails here, the call has happened, and its run waits for the outcome.
            _log.exception("a large result of run %s is not kept", self._run)
            return "", 0, output
        return cid, len(data), await asyncio.to_thread(excerpt, text, cid, call.max_result_bytes)

    async def _read(self, call: Dispatch) -> ToolReturned:
        """Read a part of a stored result."""
        if self._results is None:
            raise HearthNetError("not_found", "results are not kept here; ask for less instead")
        offset = call.body["offset"]
        data, total = await self._results.read(call.body["cid"], offset, call.body["length"])
        output = piece(data, offset, total)
        return ToolReturned(now=self._clock.now_ms(), tool_call_id=call.tool_call_id, output=output, meta={})

    def _failed(self, call: Dispatch, error: HearthNetError, *, unsent: bool = False) -> ToolFailed:
        return ToolFailed(
            now=self._clock.now_ms(),
            tool_call_id=call.tool_call_id,
            code=error.code,
            message=error.message,
            signed_by=error.signed_by,
            entry=error.entry,
            unsent=unsent,
        )

    async def _attempts(
        self, tool: BoundTool, call: Dispatch, consent: CallOptions, on_progress: OnProgress
    ) -> Answered:
        """Send `call`, an effect again under its idempotency key where the contract allows that.

        It is sent a few times where the reply was lost, and for as long as the provider has no place for it.
        """
        if not tool.repeatable_effect:
            return await self._send(tool, call, consent, on_progress)
        clock = asyncio.get_running_loop().time
        until = clock() + PATIENCE_WITH_EFFECTS * call.timeout_ms / 1000
        left, pause, lost = ATTEMPTS_OF_EFFECTS, PAUSE_SECONDS, None
        while True:
            try:
                return await self._send(tool, call, consent, on_progress)
            except HearthNetError as error:
                if error.code in LOST:
                    lost, left = error, left - 1
                elif isinstance(error, EffectInDoubt):
                    lost = error
                elif not (error.code in _BUSY or (lost and error.code == "not_found")):
                    raise
                if not left or clock() + pause > until:
                    # After a lost reply a later refusal does not prove that nothing happened.
                    raise (lost or error) from None
                _log.warning("call %s of run %s is sent again: %s", call.tool_call_id, self._run, error.code)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def granted(self, pending: PendingApproval) -> GrantUsed | NotGranted:
        """Take a use of a standing grant that covers `pending`; an unreadable book has none."""
        use = None
        try:
            tool = self._toolbox.bound(pending.name)
            # A grant is for calls by the owner's node.
            if self._grants is not None and not tool.composed:
                use = await asyncio.to_thread(self._grants.claim_use, pending, tool, now_ms())
        except Exception:
            _log.exception("the standing grants cannot be asked for run %s", self._run)
        now, about = self._clock.now_ms(), pending.confirmation_id
        if use is None:
            return NotGranted(now=now, confirmation_id=about)
        return GrantUsed(now=now, confirmation_id=about, grant=use.grant.id, use=use.number)

    async def located(self, pending: PendingApproval) -> Located | NotLocated:
        """Find the home that the effect in `pending` is for, before a person sees it."""
        about, peer = pending.confirmation_id, self._bus.peer
        try:
            tool = self._toolbox.bound(pending.name)
            named = home_in(tool, pending.arguments)
            node = await provider_of(tool, self._bus, peer.identity.node_id, peer, named)
            home = home_of(peer, node)
        except HearthNetError as error:
            now = self._clock.now_ms()
            return NotLocated(now=now, confirmation_id=about, code=error.code, message=error.message)
        return Located(now=self._clock.now_ms(), confirmation_id=about, provider=node, home=home)

    async def _consent(self, tool: BoundTool, call: Dispatch) -> CallOptions:
        """Return the approval or grant that the provider requires, and the node to call.

        None is sent where the contract has no side effects, even if the tool definition demands a
        confirmation.
        """
        if tool.composed:
            return await self._composed_consent(tool, call)
        if not tool.contract.side_effects:
            return {"node": tool.provider}
        if not call.grant:
            approval = await self._authority.approve(tool, call, self._bus)
            # A call that is approved for one node is sent to that node.
            return {
                "approval": approval,
                "node": "" if approval.provider == ANY_PROVIDER else approval.provider,
            }
        if self._grants is None:
            raise HearthNetError("not_found", "there are no standing grants here; ask the person again")
        grant = await asyncio.to_thread(self._grants.find, call.grant)
        return {"grant": grant, "use": call.use, "node": grant.provider}

    async def _composed_consent(self, tool: BoundTool, call: Dispatch) -> CallOptions:
        """Return the node that makes the call, this one if it can, and the approval for it."""
        own = self._bus.peer.identity.node_id
        nodes = sorted({view.node for view in await self._bus.offers(TOOLS_CALL_ID)})
        # What is for one node is shown to no other on the way.
        if not nodes or (own not in nodes and is_provider_defined(tool.contract.name)):
            raise HearthNetError("not_found", f"nobody offers {TOOLS_CALL_ID}; is the llm service running?")
        node = own if own in nodes else nodes[0]
        if not tool.contract.side_effects:
            return {"node": node}
        return {"node": node, "approval": await self._authority.approve(tool, call, self._bus, node)}

    async def _send_composed(
        self, tool: BoundTool, call: Dispatch, consent: CallOptions, seconds: float
    ) -> Answered:
        """Make the call through llm.tools.call, with a token for the serving node (decision 0072)."""
        approval = consent.get("approval")
        node, token = consent["node"], self._authority.token(tool, approval=approval)
        arguments: dict[str, Any] = {
            "tool_call_id": "tc_" + client_id_of(self._run, call.tool_call_id),
            "target_capability": tool.capability,
            "target_body": call.body,
        }
        if node != self._bus.peer.identity.node_id:
            arguments["token"] = self._authority.token(tool, node)
        if approval is not None:
            arguments["approval"] = msgspec.to_builtins(approval)
        body = {"params": {}, "input": arguments}
        try:
            reply = await self._bus.call(
                TOOLS_CALL_ID, body, timeout_seconds=seconds, token=token, run=self._run, node=node
            )
        except HearthNetError as error:
            error.signed_by = error.entry = ""
            raise
        # The serving node has signed this, and not the provider of the effect.
        return Answered(reply.output, reply.meta, "", "")

    async def _send(
        self, tool: BoundTool, call: Dispatch, consent: CallOptions, on_progress: OnProgress
    ) -> Answered:
        seconds = call.timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                if tool.composed:
                    return await self._send_composed(tool, call, consent, seconds)
                options: CallOptions = {
                    **consent,
                    "timeout_seconds": seconds,
                    "run": self._run,
                    "idempotency_key": call.client_id if tool.effect else "",
                }
                if tool.contract.stream_schema is not None:
                    options["token"] = self._authority.token(tool)
                    stream = self._bus.stream(call.capability, call.body, **options)
                    return await collect(tool.capability, stream, on_progress)
                options["token"] = self._authority.token(tool, approval=consent.get("approval"))
                if is_for_everybody(tool, call.body):
                    return await self._send_to_all(tool, call, options)
                body = call.body
                if tool.provider and of_copy(tool.contract, body, tool.provider):
                    # A copy answers where that home is away, as it does for a corpus that a model names.
                    body, options["node"] = at_home(body, tool.provider), ""
                return _of_reply(await self._bus.call(call.capability, body, **options))
        except TimeoutError:
            raise HearthNetError("timeout", f"{tool.capability} gave no answer in {seconds:g} s") from None

    async def _send_to_all(self, tool: BoundTool, call: Dispatch, options: CallOptions) -> Answered:
        """Ask every home at once; those that do not answer in a part of the call's time are left out."""
        options["timeout_seconds"] = min(call.timeout_ms / 2000, _ASKING_SECONDS)
        del options["node"], options["idempotency_key"]
        found = await self._bus.gather(call.capability, call.body, **options)
        return Answered(merged(tool.contract.name, call.body, found, self._bus.peer), {}, "", "")


def _of_reply(reply: AnswerPort) -> Answered:
    return Answered(reply.output, reply.meta, reply.provider if reply.entry else "", reply.entry)
