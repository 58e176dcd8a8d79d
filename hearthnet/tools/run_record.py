"""A run as it is saved: everything that another process needs to go on with it (docs/decisions/0070).

    HN-RUN1 <64 hex characters: keyed BLAKE3 of all that follows the line break> <j or z>\n
    JSON of a RunRecord, `z`: compressed

The key follows from the node's identity. Whoever can write to the store and does not hold that key can lose a
run, but cannot put other words, other arguments or another yes into it.
"""

from __future__ import annotations

import hmac
import zlib
from typing import Any, Final

import blake3
import msgspec

from hearthnet.canonical import digest, read_json
from hearthnet.contracts import Contract, contracts, is_told
from hearthnet.errors import HearthNetError
from hearthnet.tools.asking import pending_of
from hearthnet.tools.state import CallPhase, CallState, Phase, RunState
from hearthnet.tools.toolbox import BoundTool, Toolbox
from hearthnet.tools.types import Pending, ToolDefinition
from hearthnet.trust.keys import Identity

LIFE_MS: Final = 24 * 60 * 60 * 1000
"""How long a run can be resumed after it was saved last."""
_MAGIC: Final = b"HN-RUN1 "
_PLAIN: Final = b" j\n"
_PACKED: Final = b" z\n"
_HEAD: Final = len(_MAGIC) + 64 + len(_PLAIN)
_LARGE: Final = 256 * 1024
_MOST: Final = 16 * 1024 * 1024
_UNCHANGING: Final = ("request", "tools", "told")
"""The first fields of a record, which are the same in all that is saved of a run."""
_WAITING: Final = {
    CallPhase.PENDING: "pending",
    CallPhase.QUEUED: "approved",
    CallPhase.RUNNING: "claimed",
    CallPhase.WANTED: "claimed",
}


class EffectRecord(msgspec.Struct, kw_only=True):
    """One call that a person has to decide about, as it stood when the run was saved.

    `asked` is what that person is shown: the complete body, its digest, until when. `status` is `pending`,
    `approved`, `claimed` (about to be sent, or sent), or how the call ended (`CallStatus`). Times are
    milliseconds since the epoch, 0 for what has not happened; `result` is the hash of what the model is told.
    `grant` is the standing grant that stands in for a decision, and `use` which use of it.
    """

    asked: Pending
    status: str
    proposed_at: int
    claimed_at: int = 0
    ended_at: int = 0
    result: str = ""
    grant: str = ""
    use: int = 0


class RunRecord(msgspec.Struct, kw_only=True):
    """A saved run.

    `owner` is the node that keeps it, `principal` the one it works for, `key` whose signature that one's
    approvals take (empty: the node's). `request` is what
    the model is asked besides its messages; `tools` what it may call, `contracts` the digest of what these
    are bound to, `told` the contracts among it that came with no installation. `writer` is the process that
    drives it; `traceparent` the step of the trace that it began in. `by_owner`: the node's owner alone has
    driven it, at the command line or at the page; others may have the principal's name. Times are
    milliseconds since the epoch.
    """

    # First what stays as it is while the run lasts: `Sealer` reads its bytes once.
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
    v: int = 1

    @property
    def expires_at(self) -> int:
        """Until when it can be resumed."""
        return self.saved_at + LIFE_MS

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.state.phase is Phase.ENDED

    @property
    def pending(self) -> list[Pending]:
        """What waits for a person."""
        return [effect.asked for effect in self.effects if effect.status == "pending"]

    def effect(self, name: str) -> EffectRecord | None:
        """The call with this tool call id or confirmation id."""
        known = (one for one in self.effects if name in (one.asked.tool_call_id, one.asked.confirmation_id))
        return next(known, None)

    def note(self, calls: list[CallState]) -> None:
        """Brings `effects` up to what `calls` say, which belong to this run."""
        for call in calls:
            # Nobody decides before it is settled for which home it is.
            if not call.confirmation_id or (call.locating and call.open):
                continue
            effect = self.effect(call.confirmation_id)
            if effect is None:
                effect = EffectRecord(
                    asked=pending_of(self.run, call), status="pending", proposed_at=call.shown_at
                )
                self.effects.append(effect)
            self._bring_up(effect, call)

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
    """One digest for what the tools do: another one, and what was shown may mean something else."""
    bound = [tool for tool in toolbox if isinstance(tool, BoundTool)]
    return digest([[tool.capability, tool.contract.schema_hash] for tool in bound])


def told_contracts(toolbox: Toolbox) -> list[Contract]:
    """The contracts that another process may not know, and that whoever goes on with the run needs."""
    bound = [tool.contract for tool in toolbox if isinstance(tool, BoundTool)]
    return [contract for contract in bound if is_told(contract.name)]


class Sealer:
    """Makes the bytes that are stored of one run; what stays the same in them is encoded and hashed once."""

    def __init__(self, record: RunRecord, key: bytes) -> None:
        self._key = key
        self._encoded: dict[str, Any] = {
            name: msgspec.Raw(_ENCODE(getattr(record, name))) for name in _UNCHANGING
        }
        members = (f'"{name}":'.encode() + bytes(raw) for name, raw in self._encoded.items())
        self._head = b"{" + b",".join(members)
        self._hash = blake3.blake3(_PLAIN + self._head, key=key)

    def seal(self, record: RunRecord) -> bytes:
        """The bytes to store of `record`, as it stands now."""
        body = _ENCODE(msgspec.structs.replace(record, **self._encoded))
        if len(body) > _LARGE:
            packed = zlib.compress(body, 1)
            return _MAGIC + _seal_of(_PACKED + packed, self._key) + _PACKED + packed
        hashed = self._hash.copy()
        hashed.update(body[len(self._head) :])
        return _MAGIC + hashed.hexdigest().encode("ascii") + _PLAIN + body


def unseal(data: bytes, run: str, identity: Identity) -> RunRecord:
    """The record in `data`; `invalid_signature` where it is not what this node saved under the id `run`.

    The contracts that it brings along are known from then on.
    """
    kept, rest = data[len(_MAGIC) : _HEAD - len(_PLAIN)], data[_HEAD - len(_PLAIN) :]
    if not data.startswith(_MAGIC) or not hmac.compare_digest(kept, _seal_of(rest, identity.runs_key())):
        raise altered(run)
    body = rest[len(_PLAIN) :]
    if rest.startswith(_PACKED):
        body = zlib.decompressobj().decompress(body, _MOST)
    record = read_json(body, _DECODER)
    if (record.run, record.owner) != (run, identity.node_id):
        raise altered(run)
    for contract in record.told:
        contracts().learn(contract)
    return record


def altered(run: str) -> HearthNetError:
    """The error for something stored that this node has not written."""
    return HearthNetError(
        "invalid_signature",
        f"what is stored of the run {run} was altered; nothing of it is carried out: ask again",
        details={"run": run},
    )


def _seal_of(data: bytes, key: bytes) -> bytes:
    return blake3.blake3(data, key=key).hexdigest().encode("ascii")


_ENCODE: Final = msgspec.json.Encoder().encode
_DECODER: Final = msgspec.json.Decoder(RunRecord)
