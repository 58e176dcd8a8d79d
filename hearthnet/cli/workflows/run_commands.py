"""The saved runs of this node: their store, their display, and decisions about their calls."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from hearthnet.agent.loop.state import Phase
from hearthnet.agent.persistence import run_view
from hearthnet.agent.persistence.decision_log import StoredDecision
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_record import EffectRecord, RunRecord
from hearthnet.agent.persistence.saved_runs import RunDetails, SavedRuns, status_of
from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit, PendingApproval
from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import Store
from hearthnet.cli.input import yes_no
from hearthnet.cli.input.confirm import exact_lines, place_of
from hearthnet.cli.input.json_input import read_json
from hearthnet.cli.input.member_lookup import principal_name, roster_of
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import counted, one_line, shorten
from hearthnet.core.errors import OK, REFUSED, HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import now_ms
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.trust.authorization.token import is_owner
from hearthnet.trust.keys import Identity

_HEADINGS: Final = ("run", "since", "for", "state", "question")
_QUESTION: Final = 60
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


async def list_all(home: Home, *, json: bool) -> None:
    """Print all saved runs."""
    async with open_saved_runs(home) as saved:
        listing = await saved.listing()
        waiting = [await saved.waiting(record) for record in listing.runs]
    runs = list(zip(listing.runs, waiting, strict=True))
    values = [_listed(record, pending) for record, pending in runs]
    values += [{"run": run, "state": "altered"} for run in listing.altered]
    now = now_ms()
    rows = [
        (
            record.run,
            format_time(record.started_at, now),
            _run_owner(record),
            _state(record, pending),
            _question(record),
        )
        for record, pending in runs
    ]
    rows += [(run, "", "", "altered", _ALTERED) for run in listing.altered]
    terminal.listing(json, values, _HEADINGS, rows, "no run of the last day called anything")


async def show_one(home: Home, run: str, *, json: bool) -> None:
    """Print one run with all its calls."""
    async with open_saved_runs(home) as saved:
        page = await saved.page(run)
        pending = await saved.waiting(page.record)
    if json:
        calls = run_view.calls(page, now_ms())
        terminal.json_page({**_listed(page.record, pending), "calls": calls})
        return
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
    async with open_saved_runs(home) as saved:
        record = (await saved.load(run)).record
        pending = await _chosen_call(saved, record, call)
        decision = Approve() if arguments is None else Edit(arguments)
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
    async with open_saved_runs(home) as saved:
        record = (await saved.load(run)).record
        return await _decide(saved, await _chosen_call(saved, record, call), Deny(reason), json=json)


async def cancel_one(home: Home, run: str, *, json: bool) -> None:
    """End a run."""
    async with open_saved_runs(home) as saved:
        record = await saved.cancel(run)
    terminal.result(json, _listed(record, []), f"the run {run} is cancelled; nothing that waited was sent")


async def _chosen_call(saved: SavedRuns, record: RunRecord, call: str | None) -> PendingApproval:
    """Return the named call, or the only one that waits."""
    if call is not None:
        effect = record.effect(call)
        if effect is not None:
            return effect.asked
        known = [one.asked.tool_call_id for one in record.effects]
        raise HearthNetError("not_found", f"the run has no call {call[:40]!r}; {_named(known)}", alt=known)
    waiting = [one.tool_call_id for one in await saved.waiting(record)]
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
    expected = {Deny: "denied", Edit: "edited"}.get(type(decision), "approved")
    terminal.result(
        json,
        {"repeated": stored.repeated, **run_view.decision_view(stored.signed)},
        lambda: _print_decision(stored, pending.run),
    )
    return OK if stored.signed.word == expected else REFUSED


def _print_decision(stored: StoredDecision, run: str) -> None:
    signed = stored.signed
    if stored.repeated:
        when = format_time(signed.time, now_ms())
        terminal.line(f"it was {signed.word} before ({when}, {one_line(signed.via)}); that stands")
    else:
        terminal.line(
            f"{signed.word}; where no process waits for it, go on with: hearthnet runs resume {run}"
        )


def _state(record: RunRecord, pending: list[PendingApproval]) -> str:
    if record.ended:
        return "ended"
    if pending:
        return f"{counted(len(pending), 'call')} to decide about"
    return "decided, to be resumed" if record.state.phase is Phase.SUSPENDED else "under way"


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


def _listed(record: RunRecord, pending: list[PendingApproval]) -> dict[str, Any]:
    return {**run_view.summary(record, pending), "question": _question(record)}
