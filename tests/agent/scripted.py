"""A scripted stand-in for the part of the bus that runs use: the model has lines, the tools do as told.

It checks every call as a provider would (token, approval), with the real code of `hearthnet.trust`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self, Unpack

import msgspec

from hearthnet.bus.calls.attempt import CallOptions
from hearthnet.bus.calls.gathering import Gathered, ProviderAnswer
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.registry import contracts
from hearthnet.core.canonical_json import digest
from hearthnet.core.capability_name import parse_capability, split_name
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol.offer import OfferRecord
from hearthnet.trust.authorization import grant as grants
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.authorization.approval import Approval, Claimed, check_binding
from hearthnet.trust.authorization.authority import (
    Authority,
    CallerStatus,
    CallRequirement,
    PresentedToken,
    authorize,
)
from hearthnet.trust.authorization.grant import Grant
from hearthnet.trust.keys import Identity

Line = tuple[str, dict[str, Any]] | HearthNetError | Exception | asyncio.Event
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
PROVIDER = Identity(b"p" * 32).node_id
OFFER = OfferRecord(
    capability="market.post@1.0",
    instance="abcdefgh",
    schema_hash="blake3:" + "0" * 64,
    params={},
    max_concurrent=1,
    in_flight=0,
    issued_at=0,
    expires_at=1,
)


class Answer(msgspec.Struct, frozen=True):
    output: Any
    meta: dict[str, Any]
    provider: str = PROVIDER
    entry: str = "01JZZZZZZZZZZZZZZZZZZZZZ09"


class Frame(msgspec.Struct, frozen=True):
    event: str
    data: dict[str, Any]
    signed_by: str = ""
    entry: str = ""


class Sent(msgspec.Struct, frozen=True):
    """A call as the provider got it."""

    capability: str
    body: dict[str, Any]
    claims: tokens.Claims
    consent: Approval | tuple[Grant, int] | None
    run: str
    idempotency_key: str
    timeout: float | None
    node: str

    @property
    def approval(self) -> Approval | None:
        return self.consent if isinstance(self.consent, Approval) else None


class Peer:
    def __init__(self) -> None:
        self.identity = Identity.generate()
        self.community = Identity.generate().node_id
        self.roster: Any = None


class Script:
    """One turn of the model, or the frames of a tool that streams."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self.left = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.left = True

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self._frames()

    async def _frames(self) -> AsyncIterator[Frame]:
        for line in self._lines:
            if isinstance(line, asyncio.Event):
                await line.wait()
            elif isinstance(line, Exception):
                raise line
            else:
                yield Frame(*line)

    async def __anext__(self) -> Frame:
        raise StopAsyncIteration


class ScriptedBus:
    """`turns` are the model's, in order; `tools` say what a capability does; `offered` who offers it, else
    `PROVIDER` does.
    """

    def __init__(self, *turns: list[Line], tools: dict[str, Handler | list[Line]] | None = None) -> None:
        self.peer = Peer()
        self.turns = [Script(turn) for turn in turns]
        self.tools = tools or {}
        self.requests: list[dict[str, Any]] = []
        self.params: list[dict[str, Any]] = []
        """With which those were sent."""
        self.sessions: list[str] = []
        self.calls: list[Sent] = []
        self.offered: list[OfferView] | None = None
        self.asked_under: list[tokens.Claims] = []
        """The tokens with which the model was asked."""
        self.principals: list[str] = []
        """For whom the calls were."""

    def stream(self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]) -> Script:
        self.sessions.append(options.get("session", ""))
        contracts().find(*split_name(capability)).check_request(body)
        if capability == "llm.chat@2.0" and capability not in self.tools:
            if token := options.get("token", ""):
                self.asked_under.append(self._proved(capability, body, token)[0])
            self.requests.append(body["input"])
            self.params.append(body["params"])
            return self.turns[len(self.requests) - 1]
        self._accept(capability, body, options)
        lines = self.tools[capability]
        assert isinstance(lines, list)
        return Script(lines)

    async def call(self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]) -> Answer:
        self._accept(capability, body, options)
        handler = self.tools[capability]
        assert callable(handler)
        return Answer(await handler(body), {"ms": 1})

    async def gather(self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]) -> Gathered:
        """Asks its own node alone."""
        own = self.peer.identity.node_id
        try:
            answer = await self.call(capability, body, **options)
        except HearthNetError as error:
            return Gathered((ProviderAnswer(own, body, "failed", (), error),))
        reply = ReceivedReply({"output": answer.output, "meta": answer.meta}, own, "")
        return Gathered((ProviderAnswer(own, body, "answered", (reply,)),))

    async def offers(self, capability: str | None = None) -> list[OfferView]:
        if self.offered is not None or capability is None:
            return self.offered or []
        return [OfferView(PROVIDER, parse_capability(capability), OFFER)]

    def _proved(self, capability: str, body: dict[str, Any], token: str) -> tuple[tokens.Claims, Authority]:
        contract = contracts().find(*split_name(capability))
        contract.check_request(body)
        caller = self.peer.identity.node_id
        claims = tokens.decode(token)
        claims.check_use(caller=caller, community=self.peer.community, now_ms=now_ms())
        demand = CallRequirement(
            capability=contract.capability, trust="member", node=PROVIDER, side_effects=contract.side_effects
        )
        member = CallerStatus(caller, "member")
        return claims, authorize(
            member, PresentedToken(claims, CallerStatus(claims.iss, "member")), demand, body
        )

    def _accept(self, capability: str, body: dict[str, Any], options: CallOptions) -> None:
        grant, key, run = options.get("grant"), options.get("idempotency_key", ""), options.get("run", "")
        consent = options.get("approval") if grant is None else (grant, options["use"])
        contract = contracts().find(*split_name(capability))
        caller, now = self.peer.identity.node_id, now_ms()
        claims, authority = self._proved(capability, body, options["token"])
        if authority.needs_approval:
            if consent is None:
                raise HearthNetError("unauthorized", "no approval")
            claimed = Claimed(
                community=self.peer.community,
                approver=authority.approver,
                via=authority.via,
                actor=caller,
                provider=PROVIDER,
                capability=capability,
                arguments_digest=digest(body),
                idempotency_key=key,
                run=run,
                shared_effect=contract.is_shared_effect,
            )
            if isinstance(consent, tuple):
                consent[0].check_time(now)
                grants.check_binding(*consent, claimed, contract.schema_hash, body)
            else:
                consent.check_time(now)
                check_binding(consent, claimed)
        self.principals.append(authority.principal)
        seconds, node = options.get("timeout_seconds"), options.get("node", "")
        self.calls.append(Sent(capability, body, claims, consent, run, key, seconds, node))


def says(text: str) -> Line:
    return ("token", {"text": text})


def calls(name: str, arguments: dict[str, Any], call_id: str = "") -> Line:
    return ("tool_call", {"id": call_id, "name": name, "arguments": arguments})


def done(stop_reason: str = "end") -> Line:
    return ("done", {"tokens_in": 3, "tokens_out": 2, "stop_reason": stop_reason, "ms": 1, "model": "m"})


def gives(output: dict[str, Any]) -> Handler:
    """A tool that returns at once."""

    async def handler(_body: dict[str, Any]) -> dict[str, Any]:
        return output

    return handler


def raises(*errors: Exception, then: dict[str, Any] | None = None) -> Handler:
    """A tool that raises these, one a call, and then returns."""
    left = list(errors)

    async def handler(_body: dict[str, Any]) -> dict[str, Any]:
        if left:
            raise left.pop(0)
        return then or {}

    return handler
