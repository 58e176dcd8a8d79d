"""The authority of a run in its owner's name: run tokens and signed approvals.

A call that a model made is never sent under the owner's bare key. It carries a run token, which covers some
of the declared tools for a few minutes. So the provider of a side effect demands an approval, and the loop
cannot cause one without a person's decision.

Tools with the same bound params share a token, reads and effects apart: a provider verifies each token
once, and a constraint would refuse every call of a tool that lacks the param. The token for reads names no
run and serves all runs of an executor (docs/decisions/0076). It does not limit the number of calls: its
holder is its owner, who could make another at any time. The loop counts the calls (docs/decisions/0006).

Times come from the wall clock, as the provider's do, and not from the run's own clock, which never jumps:
after the computer's clock has been corrected during a run, signatures must have the right time.

See: docs/protocol/agent.md#authority-of-the-calls, docs/protocol/approvals.md#approval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec

from hearthnet.agent.loop.events import Dispatch
from hearthnet.agent.tools.providers import Offers, provider_of
from hearthnet.agent.tools.toolbox import TOOLS_CALL_ID, BoundTool
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity

TOKEN_TTL_SECONDS: Final = 300
RENEW_SECONDS: Final = 60
MOST_CALLS_ELSEWHERE: Final = 128
"""The number of calls, at each provider, for which a token held by another node is good."""
MOST_CAPABILITIES: Final = 16
MOST_CHARACTERS: Final = 640
"""Limits on the capabilities of one token and the total length of their names.

These many fit into the bytes of a token, beside the constraints of the tools' bound params.
"""
APPROVAL_TTL_MS: Final = 120_000


class CallAuthority(Protocol):
    """The tokens under which a run's calls are sent, and the approvals that its effects carry."""

    def token(self, tool: BoundTool, holder: str = "", approval: Approval | None = None) -> str: ...
    def model_token(self) -> str: ...
    async def approve(self, tool: BoundTool, call: Dispatch, bus: Offers, actor: str = "") -> Approval: ...


_Alike = tuple[bytes, bool, bool]
"""The key of the tools that share a token: bound params, having effects, being composed."""
_Tokens = dict[tuple[int, str], tuple[str, int]]
"""Tokens by number and holder, with the time at which each was made."""


class Scopes:
    """The scopes of a run's tokens, for each tool; made once for all runs with these tools."""

    def __init__(self, tools: Iterable[BoundTool]) -> None:
        alike: dict[_Alike, dict[str, list[str]]] = {}
        self._limits: dict[_Alike, dict[str, list[Any]]] = {}
        for tool in tools:
            limits = _constraints(tool)
            key = canonical_json(limits), tool.effect, tool.composed
            self._limits[key] = limits
            alike.setdefault(key, {}).setdefault(tool.capability, []).append(tool.definition.name)
        self._of: dict[str, tuple[int, Scope]] = {}
        self.reads: Final[_Tokens] = {}
        """The tokens under which the owner's own node reads, in every run."""
        for key, named in alike.items():
            self._share(key, named)

    def _share(self, key: _Alike, named: dict[str, list[str]]) -> None:
        for some in _portions(sorted(named)):
            covered = (TOOLS_CALL_ID, *some) if key[2] else some
            scope = Scope(capabilities=covered, params_constraints=self._limits[key])
            number = len({number for number, _ in self._of.values()})
            self._of |= {name: (number, scope) for capability in some for name in named[capability]}

    def of(self, tool: BoundTool) -> tuple[int, Scope]:
        """Return the number and the scope of the token that covers `tool`."""
        return self._of[tool.definition.name]


def _constraints(tool: BoundTool) -> dict[str, list[Any]]:
    bound = tool.contract.split_arguments({}, tool.bound_params)
    constraints = {name: [value] for name, value in bound["params"].items()}
    return constraints | {f"input.{name}": [value] for name, value in bound["input"].items()}


def _portions(capabilities: list[str]) -> Iterator[tuple[str, ...]]:
    """Divide capabilities into groups that fit into one token each."""
    some: list[str] = []
    for capability in capabilities:
        if len(some) == MOST_CAPABILITIES or sum(map(len, some)) + len(capability) > MOST_CHARACTERS:
            yield tuple(some)
            some = []
        some.append(capability)
    yield tuple(some)


class RunAuthority:
    """The authority of one run whose owner and executor are the same node."""

    def __init__(
        self, identity: Identity, community: str, run: str, scopes: Scopes, clock: Callable[[], int] = now_ms
    ) -> None:
        """Create the authority; `clock` returns milliseconds since the epoch."""
        self._identity = identity
        self._community = community
        self._run = run
        self._scopes = scopes
        self._clock = clock
        self._tokens: _Tokens = {}

    def token(self, tool: BoundTool, holder: str = "", approval: Approval | None = None) -> str:
        """Return a token for this tool's capability and bound params, renewed before it expires.

        It is for the owner's own node, or for the node `holder` that makes the tool's calls for it; the
        latter covers the tool's capabilities alone, for `MOST_CALLS_ELSEWHERE` calls. It is bound to the run,
        except for reads by the owner's node. `approval` does not matter: all are signed by the same key.
        """
        number, scope = self._scopes.of(tool)
        holder = holder or self._identity.node_id
        reads = holder == self._identity.node_id and not (tool.effect or tool.composed)
        tokens, run = (self._scopes.reads, "") if reads else (self._tokens, self._run)
        now = self._clock()
        token, made_at = tokens.get((number, holder), ("", 0))
        # After the clock was set back, `now` may precede `made_at`.
        if not token or not 0 <= now - made_at < (TOKEN_TTL_SECONDS - RENEW_SECONDS) * 1000:
            token = self._mint(scope, now, holder, run)
            tokens[number, holder] = token, now
        return token

    def model_token(self) -> str:
        """Return no token: the owner's requests to the model are sent under the owner's key."""
        return ""

    def _mint(self, scope: Scope, now: int, holder: str, run: str) -> str:
        if holder != self._identity.node_id:
            covered = tuple(name for name in scope.capabilities if name != TOOLS_CALL_ID)
            scope = msgspec.structs.replace(scope, capabilities=covered, max_calls_total=MOST_CALLS_ELSEWHERE)
        return mint(
            self._identity,
            subject=holder,
            audience=self._community,
            scope=scope,
            now_ms=now,
            ttl_seconds=TOKEN_TTL_SECONDS,
            run=run,
        )

    async def approve(self, tool: BoundTool, call: Dispatch, bus: Offers, actor: str = "") -> Approval:
        """Return the owner's signed approval of exactly this call.

        `actor` is the node that makes the call, empty for the owner's. Call this only for what a person has
        confirmed.
        """
        node, now = self._identity.node_id, self._clock()
        unsigned = await unsigned_approval(
            tool, call, bus, approver=node, actor=node, community=self._community, run=self._run, now=now
        )
        return sign_approval(self._identity, msgspec.structs.replace(unsigned, actor=actor or node))


async def unsigned_approval(
    tool: BoundTool,
    call: Dispatch | PendingApproval,
    bus: Offers,
    *,
    approver: str,
    actor: str,
    community: str,
    run: str,
    now: int,
) -> Approval:
    """Return the approval of exactly this call, without the signature of `approver`.

    `actor` is this node. The approval is valid for `APPROVAL_TTL_MS`. Raises what `provider_of` raises where
    the home that an effect is for is not settled.
    """
    return Approval(
        id=ids.new_ulid(now),
        community=community,
        approver=approver,
        actor=actor,
        provider=call.provider or await provider_of(tool, bus, actor),
        capability=tool.capability,
        arguments_digest=call.arguments_digest,
        idempotency_key=call.client_id,
        run=run,
        tool_call_id=call.tool_call_id,
        time=now,
        expires=now + APPROVAL_TTL_MS,
    )
