"""The saved runs of this node: their store, their display, and decisions about their calls."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from hearthnet.agent.devices.other_devices import FoundRun, OtherDevices
from hearthnet.agent.loop.state import Phase
from hearthnet.agent.persistence import run_view
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_record import EffectRecord, RunRecord
from hearthnet.agent.persistence.saved_runs import RunDetails, SavedRuns, allowed_call, status_of
from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit, PendingApproval
from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import Store
from hearthnet.cli.input import yes_no
from hearthnet.cli.input.confirm import exact_lines, place_of
from hearthnet.cli.input.json_input import read_json
from hearthnet.cli.input.member_lookup import principal_name, roster_of
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import counted, one_line, shorten
from hearthnet.cli.workflows import device_runs
from hearthnet.core.errors import OK, REFUSED, HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.home_persons import HomePersons
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.trust.authorization.token import is_owner
from hearthnet.trust.keys import Identity

_HEADINGS: Final = ("run", "since", "for", "state", "question")
_QUESTION: Final = 60
_THEIRS: Final = "only they see it"
_OUTSIDE: Final = frozenset({"run", "principal", "state", "started_at", "saved_at", "expires_at"})
"""What the owner sees of the run of another person of the home."""
_ALTERED: Final = "what is stored was changed; nothing of it is used"
_VIA: Final = "runs"
_UNTRUSTED: Final = "the model has read what others wrote, which may have led it"
_ARGUMENTS: Final = 'one object with all arguments: {"title": "...", ...}'


@contextlib.asynccontextmanager
async def open_run_store(home: Home, identity: Identity) -> AsyncIterator[StoredRuns]:
    """Yield the store of runs, connected at first need; raises as `Store.connect` then."""

    async def connect() -> Store:
        return await Store.connect(home, "runs")

    runs = StoredRuns(connect, identity, DiskGuard(home))
    try:
        yield runs
    finally:
        await runs.close()


@contextlib.asynccontextmanager
async def open_saved_runs(home: Home) -> AsyncIterator[SavedRuns]:
    """Yield the saved runs of this node, for showing them and deciding about their calls."""
    read_node_state(home)  # raises if no node runs
    identity = load_identity(home.device_key)
    async with open_run_store(home, identity) as runs:
        yield SavedRuns(runs, identity, roster_of(home).community_id)


def is_private(home: Home, record: RunRecord) -> bool:
    """Return whether a run is of another person of the home, whose question is not the owner's to see."""
    node, _, guest = record.principal.partition("/")
    return node == record.owner and HomePersons(home).find(guest) is not None


def check_visible(home: Home, record: RunRecord) -> None:
    """Check that the owner may see and decide what a run asks.

    Raises:
        HearthNetError: `unauthorized` for the run of another person of the home.
    """
    if is_private(home, record):
        guest = record.principal.partition("/")[2]
        raise HearthNetError(
            "unauthorized",
            f"the run {record.run} is of {guest}, who alone sees and decides it; you may end it: "
            f"hearthnet runs cancel {record.run}",
            rule="person",
        )


async def list_all(home: Home, *, json: bool) -> None:
    """Print all saved runs, of other devices too; of those of other persons that they are there."""
    async with open_saved_runs(home) as saved:
        listing = await saved.listing()
        waiting = [await saved.waiting(record) for record in listing.runs]
    others = await _at_other_devices(home)
    at_others = {run["run"] for _, run in others}
    runs = list(zip(listing.runs, waiting, strict=True))
    # What another device has taken over is listed as that one's.
    runs = [
        (record, pending) for record, pending in runs if not record.moved_to or record.run not in at_others
    ]
    values = [_listed(home, record, pending) for record, pending in runs]
    values += [{"run": run, "state": "altered"} for run in listing.altered]
    values += [{**run, "device": name} for name, run in others]
    now = now_ms()
    rows = [
        (
            record.run,
            format_time(record.started_at, now),
            _run_owner(record),
            _state(record, pending),
            _THEIRS if is_private(home, record) else _question(record),
        )
        for record, pending in runs
    ]
    rows += [(run, "", "", "altered", _ALTERED) for run in listing.altered]
    rows += [_row_of_device(name, run, now) for name, run in others]
    terminal.listing(json, values, _HEADINGS, rows, "no run of the last day called anything")


async def _at_other_devices(home: Home) -> list[tuple[str, dict[str, Any]]]:
    """Return the runs of the person's other nodes with the names of these."""
    if not device_runs.has_other_nodes(home):
        return []
    async with await Bus.connect(home, name="cli runs") as bus:
        return await OtherDevices(home, bus).listing()


def _row_of_device(name: str, run: dict[str, Any], now: int) -> tuple[str, str, str, str, str]:
    """Return the line of a run of another device."""
    state = _state_text(run["state"], len(run["pending"]))
    question = shorten(one_line(run["question"]), _QUESTION)
    return run["run"], format_time(run["started_at"], now), f"you, at {name}", state, question


async def show_one(home: Home, run: str, *, json: bool) -> None:
    """Print one run with all its calls."""
    async with open_saved_runs(home) as saved, device_runs.elsewhere(home, saved, run) as place:
        found = None if place is None else place[1]
        page = await saved.page(run) if found is None else found.details
        check_visible(home, page.record)
        pending = await saved.waiting(page.record) if found is None else found.waiting
    if json:
        calls = run_view.calls(page, now_ms())
        device = {} if found is None else {"device": found.name}
        terminal.json_page({**_listed(home, page.record, pending), **device, "calls": calls})
        return
    if found is not None:
        terminal.line(f"at {found.name}{'' if found.is_there else ', which is away: as it was last'}")
    now = now_ms()
    terminal.line(f"{_question(page.record)}")
    when = format_time(page.record.started_at, now)
    terminal.line(f"{_state(page.record, pending)}; asked {when}{_for(page.record)}")
    if page.record.state.untrusted:
        terminal.line(_UNTRUSTED)
    for effect in page.record.effects:
        _show(effect, page, now)


async def approve_call(
    home: Home, run: str, call: str | None, edit: str | None, option: str, *, confirmed: bool, json: bool
) -> int:
    """Show one call as it would be sent, and allow it if the person confirms.

    `edit` is the source (`body.read_json`) of other arguments, given by `option`. Returns the exit code.
    """
    arguments = None if edit is None else read_json(edit, option, _ARGUMENTS)
    if arguments is not None and not isinstance(arguments, dict):
        raise HearthNetError("bad_request", f"{option} must be {_ARGUMENTS}")
    decision = Approve() if arguments is None else Edit(arguments)
    async with open_saved_runs(home) as saved, device_runs.elsewhere(home, saved, run) as place:
        if place is not None:
            return await _approve_at_device(place, call, decision, confirmed=confirmed, json=json)
        record = (await saved.load(run)).record
        check_visible(home, record)
        pending = _chosen_call(record, await saved.waiting(record), call)
        if await saved.decision_log.find(pending) is None:
            # Ask only if there is no decision yet; an earlier one is returned as it is.
            saved.check_waits(record, pending.tool_call_id, decision)
            if not json:
                shown = pending
                if arguments is not None:
                    shown = await saved.preview(run, pending.tool_call_id, arguments)
                _print_request(shown, record.owner, untrusted=record.state.untrusted)
            yes_no.confirm("Allow exactly this?", confirmed=confirmed, option="--yes")
        return await _decide(saved, pending, decision, json=json)


async def deny_call(home: Home, run: str, call: str | None, reason: str, *, json: bool) -> int:
    """Refuse one call; return the exit code."""
    async with open_saved_runs(home) as saved, device_runs.elsewhere(home, saved, run) as place:
        if place is not None:
            devices, found = place
            pending = _chosen_call(found.record, found.waiting, call)
            return _print_outcome(
                await devices.decide(found, pending, Deny(reason)), Deny(reason), run, json=json
            )
        record = (await saved.load(run)).record
        check_visible(home, record)
        pending = _chosen_call(record, await saved.waiting(record), call)
        return await _decide(saved, pending, Deny(reason), json=json)


async def _approve_at_device(
    place: tuple[OtherDevices, FoundRun],
    call: str | None,
    decision: Approve | Edit,
    *,
    confirmed: bool,
    json: bool,
) -> int:
    """Approve a call of a run of another device there."""
    devices, found = place
    record = found.record
    pending = _chosen_call(record, found.waiting, call)
    if found.is_there and pending in found.waiting:
        if not json:
            shown = allowed_call(record, pending, decision)
            _print_request(shown, record.owner, untrusted=record.state.untrusted)
        yes_no.confirm("Allow exactly this?", confirmed=confirmed, option="--yes")
    output = await devices.decide(found, pending, decision)
    return _print_outcome(output, decision, record.run, json=json)


async def cancel_one(home: Home, run: str, *, json: bool) -> None:
    """End a run."""
    async with open_saved_runs(home) as saved:
        record = await saved.cancel(run)
    terminal.result(
        json, _listed(home, record, []), f"the run {run} is cancelled; nothing that waited was sent"
    )


def _chosen_call(record: RunRecord, pending: list[PendingApproval], call: str | None) -> PendingApproval:
    """Return the named call, or the only one that is `pending`."""
    if call is not None:
        effect = record.effect(call)
        if effect is not None:
            return effect.asked
        known = [one.asked.tool_call_id for one in record.effects]
        raise HearthNetError("not_found", f"the run has no call {call[:40]!r}; {_named(known)}", alt=known)
    waiting = [one.tool_call_id for one in pending]
    if not waiting:
        raise HearthNetError("not_found", f"no call of the run {record.run} waits for a decision")
    if len(waiting) > 1:
        raise HearthNetError("bad_request", f"several calls wait, name one; {_named(waiting)}", alt=waiting)
    return next(one for one in record.pending if one.tool_call_id == waiting[0])


def _named(calls: list[str]) -> str:
    return f"there are: {', '.join(calls) or 'none'}"


async def _decide(saved: SavedRuns, pending: PendingApproval, decision: Decision, *, json: bool) -> int:
    stored = await saved.decide(
        pending.run, pending.tool_call_id, decision, via=_VIA, shown=pending.arguments_digest
    )
    output = {"repeated": stored.repeated, **run_view.decision_view(stored.signed)}
    return _print_outcome(output, decision, pending.run, json=json)


def _print_outcome(output: dict[str, Any], decision: Decision, run: str, *, json: bool) -> int:
    """Print the decision that counts; return the exit code, which says whether `decision` is the same."""
    expected = {Deny: "denied", Edit: "edited"}.get(type(decision), "approved")
    terminal.result(json, output, lambda: _print_decision(output, run))
    return OK if output["word"] == expected else REFUSED


def _print_decision(output: dict[str, Any], run: str) -> None:
    word = output["word"]
    if output["repeated"]:
        when = format_time(output["time"], now_ms())
        terminal.line(f"it was {word} before ({when}, {one_line(output['via'])}); that stands")
    else:
        terminal.line(f"{word}; where no process waits for it, go on with: hearthnet runs resume {run}")


def _state(record: RunRecord, pending: list[PendingApproval]) -> str:
    if record.moved_to and not record.ended:
        return "left to another device"
    return _state_text(record.state.phase.value, len(pending))


def _state_text(phase: str, pending: int) -> str:
    if phase == Phase.ENDED.value:
        return "ended"
    if pending:
        return f"{counted(pending, 'call')} to decide about"
    return "decided, to be resumed" if phase == Phase.SUSPENDED.value else "under way"


def _run_owner(record: RunRecord) -> str:
    """Return the principal of a run for people: the owner, the owner's page, or a client."""
    if record.principal == record.owner:
        return "you"
    return (
        "you, at the page" if is_owner(record.principal, record.owner) else principal_name(record.principal)
    )


def _for(record: RunRecord) -> str:
    return "" if record.principal == record.owner else f", for {_run_owner(record)}"


def _question(record: RunRecord) -> str:
    """Return the user's last message, on one line."""
    return shorten(one_line(run_view.question(record)), _QUESTION)


def _show(effect: EffectRecord, page: RunDetails, now: int) -> None:
    signed = page.decisions.get(effect.asked.confirmation_id)
    _print_request(effect.asked, page.record.owner)
    terminal.line(f"  {status_of(effect, signed, now)}")
    if signed is not None:
        reason = one_line(signed.decision.reason) if isinstance(signed.decision, Deny) else ""
        how = f"{one_line(signed.via)}{': ' if reason else ''}{reason}"
        terminal.line(
            f"  {signed.word} {format_time(signed.time, now)} by {principal_name(signed.by)}, {how}"
        )
    if effect.grant:
        terminal.line(f"  allowed by the standing grant {effect.grant}, use {effect.use}")
    for entry in run_view.executed(effect, page):
        what = f"executed {entry.digest[:23]}" if entry.kind == "began" else f"result {entry.code or 'done'}"
        terminal.line(f"  {what} {format_time(entry.time, now)}, entry {entry.sequence} of the audit log")


def _print_request(pending: PendingApproval, own: str, *, untrusted: bool = False) -> None:
    """Print exactly what would be sent, with invisible characters as codes; `own` is this node.

    A warning is added if the run has read words of others.
    """
    now = now_ms()
    terminal.line()
    terminal.line(
        terminal.styled(f"{one_line(pending.tool_call_id)}: {pending.capability or 'your own tool'}", "bold")
        + f" ({one_line(pending.name)}), asked until {format_time(pending.expires_at, now)}"
    )
    members = [*pending.body.items()]
    if pending.capability:
        members = [one for part in ("params", "input") for one in pending.body.get(part, {}).items()]
    for line in exact_lines(members):
        terminal.line(line)
    terminal.line(f"  digest {pending.arguments_digest[:23]}")
    if pending.home:
        terminal.line(f"  {place_of(pending, own)}")
    if untrusted or pending.untrusted:
        terminal.line(f"  {_UNTRUSTED}")


def _listed(home: Home, record: RunRecord, pending: list[PendingApproval]) -> dict[str, Any]:
    if is_private(home, record):
        return {name: value for name, value in run_view.summary(record, []).items() if name in _OUTSIDE}
    return {**run_view.summary(record, pending), "question": _question(record)}
