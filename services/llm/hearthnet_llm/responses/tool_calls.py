"""llm.tools.call: one call of a capability on behalf of the caller.

The rights are those of the caller. Nothing is sent under this node's key alone for another node, and a token
must cover both this capability and its target (trust/authorization/authority.py). The bus counts the nesting
of calls in the header.

See: docs/tools.md#calls-that-another-makes, docs/decisions/0072.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet import Bus, Call, HearthNetError, Reply
from hearthnet.agent import drain
from hearthnet.contracts import Contract, contracts, is_provider_defined
from hearthnet.trust import decode_approval, decode_token


class ToolCallRequest(msgspec.Struct, frozen=True):
    """The input of llm.tools.call."""

    tool_call_id: str
    target_capability: str
    target_body: dict[str, Any]
    token: str = ""
    approval: dict[str, Any] | None = None


async def make(bus: Bus, call: Call[Any, ToolCallRequest]) -> Reply:
    """Call the target and return its reply; a stream is collected into one reply.

    Raises:
        HearthNetError: `unauthorized` if nothing permits this node to act for the caller; `bad_request` if
            the body does not fit the target; any error of the target.
    """
    request = call.input
    token = _token(bus.peer.node_id, call)
    contract = await _contract(bus, request.target_capability)
    if contract.is_home_only and not call.caller == call.principal == bus.peer.node_id:
        raise HearthNetError("unauthorized", f"{contract.name} is called at its own home only")
    _check(contract, request.target_body)
    options: dict[str, Any] = {
        "timeout_seconds": call.allowed(),
        "token": token,
        "run": call.run,
        "approval": None if request.approval is None else decode_approval(request.approval),
    }
    if contract.stream_schema is not None:
        stream = bus.stream(contract.id, request.target_body, **options)
        output, meta = await drain(contract.id, stream, lambda _progress: None)
        return Reply(output, meta)
    reply = await bus.call(contract.id, request.target_body, **options)
    return Reply(reply.output, reply.meta)


async def _contract(bus: Bus, capability: str) -> Contract:
    """Return the installed contract, or that told by a provider (contracts/dynamic.py)."""
    return (
        await bus.fetch_contract(capability)
        if is_provider_defined(capability)
        else contracts().get(capability)
    )


def _check(contract: Contract, body: dict[str, Any]) -> None:
    try:
        contract.check_request(body)
    except HearthNetError as error:
        path = error.details.get("path", "")
        raise HearthNetError(
            error.code,
            f"target_body does not fit {contract.id}: {error.message}",
            details={**error.details, "path": f"/input/target_body{path}"},
        ) from error


def _token(own: str, call: Call[Any, ToolCallRequest]) -> str:
    """Return the token for the call of the target: the given one, or that of the call itself.

    Raises:
        HearthNetError: `unauthorized` without a token of the right parties; `token_scope_insufficient` for
            one of another run.
    """
    if not call.input.token:
        if call.caller == own:
            return call.bearer
        raise _refusal(
            "unauthorized",
            f"nothing lets this node act for you; give a run token in input.token whose subject is {own}",
        )
    claims = decode_token(call.input.token)
    issuer, principal = call.caller, ""
    if call.claims is not None:
        issuer, principal = call.claims.iss, call.claims.principal
    if claims.sub != own or (claims.iss, claims.principal) != (issuer, principal):
        raise _refusal(
            "unauthorized",
            "input.token must be issued by whoever the call is for, to the node that serves it",
        )
    if not claims.run or claims.run != call.run:
        raise _refusal("token_scope_insufficient", "input.token must be made for the run of this call")
    return call.input.token


def _refusal(code: str, message: str) -> HearthNetError:
    return HearthNetError(code, message, details={"path": "/input/token"})
