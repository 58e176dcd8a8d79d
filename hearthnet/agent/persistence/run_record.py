"""The saved form of a run, from which any process of its node can continue it.

    HN-RUN1 <64 hex characters: keyed BLAKE3 of all that follows the line break> <j or z>\n
    JSON of a RunRecord, `z`: compressed

The key is derived from the node's identity. A process that can write to the store and does not hold that
key can destroy a run, but cannot forge words, arguments or decisions in it.

See: docs/decisions/0070.
"""

from __future__ import annotations

import hmac
import zlib
from typing import Any, Final

import blake3
import msgspec

from hearthnet.agent.loop.approvals import pending_of
from hearthnet.agent.loop.happened import unsigned
from hearthnet.agent.loop.state import CallPhase, CallState, Phase, RunState
from hearthnet.agent.tools.toolbox import BoundTool, Toolbox
from hearthnet.agent.tools.types import PendingApproval, ToolDefinition
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.core.canonical_json import digest, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.keys import Identity

LIFE_MS: Final = 24 * 60 * 60 * 1000
"""The time after the last save for which a run can be resumed."""
_MAGIC: Final = b"HN-RUN1 "
_PLAIN: Final = b" j\n"
_PACKED: Final = b" z\n"
_HEAD: Final = len(_MAGIC) + 64 + len(_PLAIN)
_LARGE: Final = 256 * 1024
_MOST: Final = 16 * 1024 * 1024
_UNCHANGING: Final = ("request", "tools", "told")
"""The first fields of a record, which are the same in all versions of a run."""
_WAITING: Final = {
    CallPhase.PENDING: "pending",
    CallPhase.QUEUED: "approved",
    CallPhase.RUNNING: "claimed",
    CallPhase.WANTED: "claimed",
}


class EffectRecord(msgspec.Struct, kw_only=True):
    """One call that a person has to decide about, as it stood when the run was saved.

    `asked` is the call as the person sees it: the complete body, its digest, the expiry. `status` is
    `pending`, `approved`, `claimed` (about to be sent, or sent), or the end of the call (`CallStatus`). Times
    are milliseconds since the epoch, 0 for steps that have not happened; `result` is the hash of the result
    for the model. `grant` is the standing grant that replaces a decision, and `use` the number of its use.
    """

    asked: PendingApproval
    status: str
    proposed_at: int
    claimed_at: int = 0
    ended_at: int = 0
    result: str = ""
    grant: str = ""
    use: int = 0


class RunRecord(msgspec.Struct, kw_only=True):
    """A saved run.

    `owner` is the node that keeps it, `principal` the one it works for, `key` the node id whose signature the
    principal's approvals take (empty: the node's own). `request` is the request to the model without
    messages; `tools` are the tools it may call, `contracts` the digest of their contracts, `told` those
    contracts that came with no installation. `writer` is the process that drives it; `traceparent` the span
    in which it began. `by_owner`: only the node's owner has driven it, at the command line or at the page
    (others may have the same principal). `moved_to` is the device of the person that drives it now, empty
    for this one; `moves` counts how often it was taken over. Times are milliseconds since the epoch.
    """

    # The unchanging fields come first: `Sealer` encodes them once.
    request: dict[str, Any]
    tools: list[ToolDefinition]
    told: list[Contract] = []
    run: str
    owner: str
    principal: str
    state: RunState
    contracts: str
    per_tool_seconds: float
    started_at: int
    saved_at: int = 0
    writer: str = ""
    via: str = ""
    effects: list[EffectRecord] = []
    key: str = ""
    traceparent: str = ""
    by_owner: bool = False
    moved_to: str = ""
    moves: int = 0
    v: int = 1

    @property
    def expires_at(self) -> int:
        """The time until which it can be resumed."""
        return self.saved_at + LIFE_MS

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""
        return self.state.phase is Phase.ENDED

    @property
    def pending(self) -> list[PendingApproval]:
        """The calls that wait for a person here."""
        if self.moved_to:
            return []
        return [effect.asked for effect in self.effects if effect.status == "pending"]

    @property
    def is_owners(self) -> bool:
        """Return whether it is the run of the node's owner, whose other devices may go on with it."""
        return self.principal == self.owner or self.by_owner

    def effect(self, name: str) -> EffectRecord | None:
        """Return the call with this tool call id or confirmation id."""
        known = (one for one in self.effects if name in (one.asked.tool_call_id, one.asked.confirmation_id))
        return next(known, None)

    def note(self, calls: list[CallState]) -> None:
        """Update `effects` from `calls` of this run."""
        for call in calls:
            # No person decides before it is settled which home the call is for.
            if not call.confirmation_id or (call.locating and call.open):
                continue
            effect = self.effect(call.confirmation_id)
            if effect is None:
                effect = EffectRecord(
                    asked=pending_of(self.run, call), status="pending", proposed_at=call.shown_at
                )
                self.effects.append(effect)
            self._bring_up(effect, call)

    def list_effects(self) -> None:
        """List the effects of a run that was saved before there was such a list.

        How they ended was not kept with a signature, so those that may have been sent count as unknown.
        """
        state = self.state
        asked = {effect.asked.tool_call_id for effect in self.effects}
        known = {effect.tool_call_id for effect in state.effects}
        for call in state.calls:
            call.changes |= call.id in asked
        for effect in self.effects:
            if effect.ended_at and effect.asked.tool_call_id not in known:
                state.effects.append(unsigned(effect.asked, effect.status))
        state.listed = True

    def _bring_up(self, effect: EffectRecord, call: CallState) -> None:
        if effect.ended_at:
            return
        effect.asked = pending_of(self.run, call)
        effect.claimed_at, effect.grant, effect.use = call.dispatched_at, call.grant, call.use
        if call.open:
            effect.status = _WAITING[call.phase]
            return
        ends = {record.tool_call_id: record.status for record in self.state.records}
        effect.status, effect.ended_at = ends[call.id], self.state.now
        effect.result = digest(call.content)


def contracts_digest(toolbox: Toolbox) -> str:
    """Return one digest of the tools' contracts; a change of it voids what a person was shown."""
    bound = [tool for tool in toolbox if isinstance(tool, BoundTool)]
    return digest([[tool.capability, tool.contract.schema_hash] for tool in bound])


def dynamic_contracts(toolbox: Toolbox) -> list[Contract]:
    """Return the contracts that a process which continues the run may not have installed."""
    bound = [tool.contract for tool in toolbox if isinstance(tool, BoundTool)]
    return [contract for contract in bound if is_provider_defined(contract.name)]


class Sealer:
    """The encoder of one stored run; unchanging parts are encoded and hashed once."""

    def __init__(self, record: RunRecord, key: bytes) -> None:
        self._key = key
        self._encoded: dict[str, Any] = {
            name: msgspec.Raw(_ENCODE(getattr(record, name))) for name in _UNCHANGING
        }
        members = (f'"{name}":'.encode() + bytes(raw) for name, raw in self._encoded.items())
        self._head = b"{" + b",".join(members)
        self._hash = blake3.blake3(_PLAIN + self._head, key=key)

    def seal(self, record: RunRecord) -> bytes:
        """Return the bytes to store for the present `record`."""
        body = _ENCODE(msgspec.structs.replace(record, **self._encoded))
        if len(body) > _LARGE:
            packed = zlib.compress(body, 1)
            return _MAGIC + _seal_of(_PACKED + packed, self._key) + _PACKED + packed
        hashed = self._hash.copy()
        hashed.update(body[len(self._head) :])
        return _MAGIC + hashed.hexdigest().encode("ascii") + _PLAIN + body


def unseal(data: bytes, run: str, identity: Identity) -> RunRecord:
    """Return the record in `data`, and register the contracts that it contains.

    Raises:
        HearthNetError: `invalid_signature` if it is not what this node saved under the id `run`.
    """
    seal, rest = data[len(_MAGIC) : _HEAD - len(_PLAIN)], data[_HEAD - len(_PLAIN) :]
    if not data.startswith(_MAGIC) or not hmac.compare_digest(seal, _seal_of(rest, identity.runs_key())):
        raise altered(run)
    body = rest[len(_PLAIN) :]
    if rest.startswith(_PACKED):
        body = zlib.decompressobj().decompress(body, _MOST)
    record = read_json(body, _DECODER)
    if (record.run, record.owner) != (run, identity.node_id):
        raise altered(run)
    if not record.state.listed:
        record.list_effects()
    for contract in record.told:
        # What a provider has told since counts more, where the version is its author's.
        if not contracts().has_learned(contract.capability):
            contracts().learn(contract)
    return record


def altered(run: str) -> HearthNetError:
    """Return the error for stored data that this node has not written."""
    return HearthNetError(
        "invalid_signature",
        f"what is stored of the run {run} was altered; nothing of it is carried out: ask again",
        details={"run": run},
    )


def _seal_of(data: bytes, key: bytes) -> bytes:
    return blake3.blake3(data, key=key).hexdigest().encode("ascii")


_ENCODE: Final = msgspec.json.Encoder().encode
_DECODER: Final = msgspec.json.Decoder(RunRecord)
