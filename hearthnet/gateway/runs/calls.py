"""Calls of the mesh that a client makes itself, without a model.

An effect is approved by making the call, where the client has no key: the gateway signs the approval in its
name. A client with a key signs exactly the body that is sent; the gateway can only hand it the unsigned
approval.

See: docs/protocol/gateway.md#effects.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from hearthnet.agent.loop.happened import HAPPENED, nothing, of_call, of_error, stripped, with_list
from hearthnet.agent.runtime.client_authority import approval_template, verify_approval
from hearthnet.agent.tools.builtin import capability_tool
from hearthnet.agent.tools.providers import home_of
from hearthnet.agent.tools.toolbox import BoundTool, Toolbox
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.bus.bus import find_contract
from hearthnet.contracts.namespaces import is_derived, is_provider_defined, refuse_home_only
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.times import now_ms
from hearthnet.gateway.runs.requested_tools import is_prewarming, is_run
from hearthnet.gateway.runs.run import NewRun
from hearthnet.trust.authorization import approval as approvals
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.authority import WRAPPER

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.session.session import Session
    from hearthnet.contracts import Contract
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.runs.runs import GatewayRuns

Frame = dict[str, Any]
Frames = AsyncGenerator[Frame, None]
CALL_ID: Final = "call"
LIFE_MS: Final = 300_000
_LONGEST_MS: Final = 600_000


class CallBody(msgspec.Struct, frozen=True):
    """A received call; a client that signs its calls sends the rest of the envelope with it."""

    capability: Annotated[str, Meta(description="name or name@major.minor")]
    body: Annotated[dict[str, Any], Meta(description="As the request schema of the capability says")]
    version: Annotated[str, Meta(description="major.minor; the newest where it is left out")] = ""
    timeout_ms: Annotated[int | None, Meta(extra_json_schema={"minimum": 1, "maximum": _LONGEST_MS})] = None
    request_id: Annotated[str, Meta(description="A ULID; the same one again has no second effect")] = ""
    approval: Annotated[dict[str, Any] | None, Meta(description="What was handed out, signed")] = None

    @property
    def contract(self) -> Contract:
        """The contract of the called capability.

        Raises:
            HearthNetError: `not_found` for an unknown capability; `schema_mismatch` for an unknown version.
        """
        return find_contract(f"{self.capability}@{self.version}" if self.version else self.capability)

    @property
    def timeout_seconds(self) -> float | None:
        """The caller's own time limit; None for that of the contract."""
        if self.timeout_ms is None:
            return None
        if not 0 < self.timeout_ms <= _LONGEST_MS:
            raise HearthNetError(
                "bad_request",
                f"timeout_ms is a number from 1 to {_LONGEST_MS}",
                details={"path": "/timeout_ms", "rule": "maximum"},
            )
        return self.timeout_ms / 1000


class MeshCall(msgspec.Struct, frozen=True):
    """A call that is sent, under the client's token."""

    contract: Contract
    body: dict[str, Any]
    token: str
    timeout_seconds: float | None = None
    approval: Approval | None = None
    node: str = ""


async def run_or_call(bus: Bus, runs: GatewayRuns, client: Client, call: CallBody) -> NewRun | CallBody:
    """Return the run that a call of `llm.chat` with tools begins; any other call as it is.

    Where the model only reads the beginning of a run in advance, that is a plain call. The contract of a
    capability that came with no installation is fetched from its provider, and the call gets its version.

    Raises:
        HearthNetError: As for `CallBody.contract`; `unauthorized` for a capability of one home alone;
            `token_scope_insufficient` for one that the client's scope does not cover.
    """
    if is_provider_defined(call.capability):
        refuse_home_only(call.capability)
        named = f"{call.capability}@{call.version}" if call.version else call.capability
        client.check_covers(named)
        contract = await bus.fetch_contract(named)
        call = msgspec.structs.replace(call, capability=contract.name, version=contract.version)
    client.check_covers(call.contract.name)
    if is_run(call.contract, call.body):
        return NewRun(call.body)
    if not is_prewarming(call.contract, call.body):
        return call
    return msgspec.structs.replace(call, body=await runs.prewarming(client, call.body))


def is_question(asked: NewRun | CallBody) -> bool:
    """Return whether `asked` is put to a model that answers, and not only read in advance."""
    return isinstance(asked, NewRun) or asks_model(asked.contract, asked.body)


def asks_model(contract: Contract, body: dict[str, Any]) -> bool:
    """Return whether a call is answered by a model; one that calls another capability counts as such."""
    given = body.get("input")
    is_silent = isinstance(given, dict) and given.get("max_tokens") == 0
    return contract.name == WRAPPER or (contract.has_event("token") and not is_silent)


async def answer(bus: Bus, call: MeshCall) -> dict[str, Any]:
    """Return the one answer to a call, with its provider and what happened; its error with that, too."""
    contract = call.contract
    try:
        reply = await bus.call(
            contract.id,
            call.body,
            token=call.token,
            approval=call.approval,
            timeout_seconds=call.timeout_seconds,
        )
    except HearthNetError as error:
        raise _listed(error, contract, bus) from error
    changes = may_change(contract, reply.provider, bus)
    failed = isinstance(reply.output, dict) and reply.output.get("is_error") is True
    code = None if failed and is_derived(contract.name) else ""
    done = of_call(contract.id, reply.provider, reply.entry, code) if changes else nothing()
    body = {**reply.body, "meta": stripped(reply.meta)}
    return {**body, "provider": reply.provider, HAPPENED: done}


def may_change(contract: Contract, provider: str, bus: Bus) -> bool:
    """Return whether a call at `provider` is an effect that is listed, as `BoundTool.changes` of its tool."""
    own = bus.peer.node_id
    return contract.side_effects or (is_provider_defined(contract.name) and provider != own)


def _listed(error: HearthNetError, contract: Contract, bus: Bus) -> HearthNetError:
    """Return `error` with what happened by a call of an effect, or of a model."""
    if may_change(contract, error.signed_by, bus):
        return with_list(error, of_error(contract.id, error))
    return with_list(error, nothing()) if contract.has_event("token") else error


async def stream_frames(bus: Bus, call: MeshCall) -> Frames:
    """Yield the frames of a streaming capability without effects; raises its error.

    The end of a model's answer and its error say that nothing happened, whatever the model or its provider
    says. Closing the frames early cancels the work behind them.
    """
    contract = call.contract
    try:
        async with bus.stream(
            contract.id, call.body, token=call.token, timeout_seconds=call.timeout_seconds, node=call.node
        ) as stream:
            async for frame in stream:
                data = stripped(frame.data)
                if frame.event == "done" and may_change(contract, frame.signed_by, bus):
                    data = {**data, HAPPENED: of_call(contract.id, frame.signed_by, frame.entry)}
                elif frame.event == "done" and contract.has_event("token"):
                    data = {**data, HAPPENED: nothing()}
                yield {"event": frame.event, "data": data, "seq": frame.seq}
    except HearthNetError as error:
        raise _listed(error, contract, bus) from error


async def collected(frames: Frames) -> tuple[list[Frame], Frame]:
    """Return all frames but the last, and the last; raises the errors of `frames`."""
    async with aclosing(frames):
        every = [frame async for frame in frames]
    if not every:
        raise Unavailable("the answer ended before it was done; ask again", rule="stream_broken")
    return every[:-1], every[-1]


def with_client_id(contract: Contract, body: dict[str, Any], request_id: Any) -> dict[str, Any]:
    """Return `body` with an idempotency key: its own, else the request's id, else a new one."""
    given = body.get("input")
    if contract.idempotent != "client_id" or not isinstance(given, dict) or "client_id" in given:
        return body
    known = isinstance(request_id, str) and ids.is_ulid(request_id)
    return {**body, "input": {**given, "client_id": request_id if known else ids.new_ulid()}}


def bound_to(contract: Contract) -> BoundTool:
    """Return the capability of `contract` as a tool."""
    return Toolbox([capability_tool(contract.id)]).bound(contract.name)


async def approved(
    bus: Bus,
    client: Client,
    contract: Contract,
    body: dict[str, Any],
    signed: dict[str, Any] | None,
    provider: str = "",
) -> Approval | dict[str, Any]:
    """Return the approval for the call, or the one that the client has to sign first.

    It is for `provider` where the person has seen that. The latter is a `PendingApproval` with `approval`, as
    JSON. Raises the errors of `signed`, and those of `provider_of` where it is not settled which home is
    meant.

    Raises:
        HearthNetError: `not_found` if this node does not offer it, for a client without a key, whom nobody
            shows that another home would carry it out.
    """
    peer = bus.peer
    pending = msgspec.structs.replace(_pending_approval(contract, body), provider=provider)
    expected = await approval_template(
        bound_to(contract), pending, client.key or peer.node_id, peer.node_id, peer.community, bus
    )
    if not client.key:
        if expected.provider not in (approvals.ANY_PROVIDER, peer.node_id, provider):
            raise HearthNetError(
                "not_found",
                f"this home does not offer {contract.id} now, and nobody has said that "
                f"{home_of(peer, expected.provider)} shall do it; call it there with hearthnet call --node",
            )
        return sign_approval(peer.identity, msgspec.structs.replace(expected, via="gateway"))
    if signed is None:
        unsigned = expected.as_json()
        del unsigned["signature"]
        pending = with_home(pending, expected.provider, peer)
        return {**msgspec.to_builtins(pending), "approval": unsigned}
    approval = approvals.decode(signed)
    verify_approval(approval, expected, now_ms())
    return approval


def with_home(pending: PendingApproval, provider: str, peer: Session) -> PendingApproval:
    """Return `pending` with the home that carries it out; unchanged for an effect on a shared log."""
    if provider == approvals.ANY_PROVIDER:
        return pending
    return msgspec.structs.replace(pending, provider=provider, home=home_of(peer, provider))


def _pending_approval(contract: Contract, body: dict[str, Any]) -> PendingApproval:
    contract.check_request(body)
    given = body["input"]
    return PendingApproval(
        confirmation_id=CALL_ID,
        run="",
        tool_call_id=CALL_ID,
        name=contract.name,
        capability=contract.id,
        arguments={**body["params"], **given},
        body=body,
        arguments_digest=digest(body),
        client_id=str(given["client_id"]) if contract.idempotent == "client_id" else "",
        expires_at=now_ms() + LIFE_MS,
    )
