"""A run as it goes to another device of its person, and what that device makes of it.

The copy is the record with its decisions, packed. On the way it is in a sealed frame; at rest it is sealed
for the node that has it. Its contents count because a device of the person vouches for them: for the record
by the frame, for each decision by its own signature.

See: docs/protocol/persons.md#runs, docs/decisions/0209-devices-share-runs-and-conversations.md.
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from hearthnet.agent.loop.state import CallPhase, CallState
from hearthnet.agent.persistence.decision_log import SignedDecision
from hearthnet.agent.persistence.run_record import RunRecord, Sealer
from hearthnet.agent.persistence.saved_runs import LoadedRun, SavedRuns
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import b64, is_ulid, unb64
from hearthnet.core.times import now_ms
from hearthnet.trust.keys import Identity

MAX_BYTES: Final = 187_500
"""The size of a packed copy, so that it fits into one frame; a larger run stays at its device."""
_MAX_UNPACKED: Final = 16 * 1024 * 1024


class RunCopy(msgspec.Struct, kw_only=True):
    """A saved run of the device `record.owner`, and the decisions about its calls."""

    record: RunRecord
    decisions: list[SignedDecision] = []

    @property
    def home(self) -> str:
        """The device that it is a copy of."""
        return self.record.owner

    @property
    def age(self) -> tuple[int, int]:
        """A number that is higher the newer the copy is, among copies of one run."""
        return self.record.moves, self.record.saved_at


async def copy_of(saved: SavedRuns, record: RunRecord) -> RunCopy:
    """Return the copy of a saved run of this node."""
    decisions = await saved.decisions(record)
    return RunCopy(record=record, decisions=list(decisions.values()))


def pack(copy: RunCopy) -> bytes:
    """Return the bytes of a copy.

    Raises:
        HearthNetError: `payload_too_large` if the run is too large to be copied.
    """
    data = zlib.compress(msgspec.json.encode(copy), 6)
    if len(data) > MAX_BYTES:
        raise HearthNetError(
            "payload_too_large",
            f"the run {copy.record.run} is too large for another device; go on where it was begun",
            details={"limit": MAX_BYTES},
        )
    return data


def unpack(data: bytes) -> RunCopy:
    """Return the copy in `data`.

    Raises:
        HearthNetError: `bad_request` if there is none, or it is too large.
    """
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(data, _MAX_UNPACKED)
    except zlib.error as error:
        raise HearthNetError("bad_request", f"this is no copy of a run: {error}") from error
    if unpacking.unconsumed_tail:
        raise HearthNetError("bad_request", "the copy of a run is too large")
    copy = read_json(body, _DECODER)
    if not is_ulid(copy.record.run):
        raise HearthNetError("bad_request", "the copy of a run has no id of a run")
    if not copy.record.state.listed:
        copy.record.list_effects()
    return copy


def to_text(copy: RunCopy) -> str:
    """Return a copy for a frame; raises as `pack`."""
    return b64(pack(copy))


def from_text(text: str, home: str) -> RunCopy:
    """Return the copy that the device `home` has sent.

    Raises:
        HearthNetError: `bad_request` if it is malformed; `unauthorized` if it is of another device.
    """
    try:
        copy = unpack(unb64(text))
    except ValueError as error:
        raise HearthNetError("bad_request", "this is no copy of a run") from error
    if copy.home != home:
        raise HearthNetError("unauthorized", "a device hands out its own runs only")
    return copy


async def adopt(
    saved: SavedRuns, copy: RunCopy, identity: Identity, earlier: LoadedRun | None, *, is_away: bool
) -> RunRecord:
    """Save the run of another device as one of this node; return its record.

    `earlier` is what this node has of it; `is_away`: that device does not answer. Tokens and approvals are
    made anew by this node. Ids and idempotency keys stay, so that an effect that the other device
    sends, too, happens once at its provider.

    Raises:
        HearthNetError: `invalid_signature` for a decision that is not that device's; `bad_request` if the
            run has ended; as `RunStore.save`.
    """
    record, home = copy.record, copy.home
    if record.ended:
        raise HearthNetError("bad_request", f"the run {record.run} has ended; ask anew")
    for decision in copy.decisions:
        if decision.run == record.run and record.effect(decision.confirmation_id) is not None:
            await saved.decision_log.take_over(decision, home)
    decided = {one.confirmation_id for one in copy.decisions}
    for call in record.state.calls:
        if call.open and call.effect:
            _settle(call, home, is_decided=call.confirmation_id in decided, is_away=is_away)
    # A home that is not settled is not decided about: the call is shown again when the run goes on.
    unsettled = {call.confirmation_id for call in record.state.calls if call.locating}
    record.effects = [one for one in record.effects if one.asked.confirmation_id not in unsettled]
    if is_away:
        record.tools = [_unbound(tool, home) for tool in record.tools]
    record.state.granted = []
    record.owner = record.principal = identity.node_id
    record.key, record.by_owner, record.moved_to = "", True, ""
    record.moves += 1
    record.saved_at = now_ms()
    revision = 0 if earlier is None else earlier.revision
    await saved.store.save(record.run, Sealer(record, identity.runs_key()).seal(record), revision)
    return record


def _unbound(tool: ToolDefinition, home: str) -> ToolDefinition:
    """Return a tool whose effects were for `home` as one whose home is settled call by call.

    The tool of a contract that only that home defines stays its own.
    """
    if tool.provider != home or not tool.side_effects or is_provider_defined(tool.bound_capability or ""):
        return tool
    return msgspec.structs.replace(tool, provider="")


def _settle(call: CallState, home: str, *, is_decided: bool, is_away: bool) -> None:
    """Settle where an effect goes that was begun at the device `home`.

    What that device may have sent goes where it would have sent it, so that the provider recognizes the key.
    A question about an effect on that device, which is away, is asked for a home of now. What a standing
    grant of that device has allowed is asked, too.
    """
    if call.phase in (CallPhase.QUEUED, CallPhase.RUNNING):
        call.provider = call.provider or home
        if call.grant:
            call.phase, call.grant, call.use = CallPhase.PENDING, "", 0
    elif is_decided:
        call.provider = call.provider or home
    elif is_away and call.provider == home:
        call.provider = call.home = ""
        call.locating = True


_DECODER: Final = msgspec.json.Decoder(RunCopy)
