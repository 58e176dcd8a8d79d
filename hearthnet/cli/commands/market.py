"""`hearthnet market`: posts, exports and deletions (docs/market.md).

The commands for current posts are in market_posts.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.workflows import market_posts

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.core.home import Home

_STEP: Final = 50


@click.group("market", cls=Commands)
def command() -> None:
    """Offers, requests and announcements of neighbours."""


for _one in (market_posts.list_posts, market_posts.search, market_posts.update, market_posts.end):
    command.add_command(_one)


@command.command("post")
@click.option("--category", type=click.Choice(market_posts.CATEGORIES), default="offer")
@click.option("--title", required=True, help="One line that says what it is about.")
@click.option("--body", required=True, help="The message itself.")
@click.option("--tag", "tags", multiple=True, help="A word to find it by; may be given more than once.")
@click.option("--days", type=click.IntRange(1, 30), default=7, show_default=True, help="How long it stays.")
@click.option(
    "--within",
    type=click.IntRange(1, 7 * 24),
    default=24,
    show_default=True,
    metavar="HOURS",
    help="How long it may wait for the node. Then it is not sent any more without asking you.",
)
@common_options
def post(
    category: str,
    title: str,
    body: str,
    tags: tuple[str, ...],
    days: int,
    within: int,
    home: Home,
    json: bool,
) -> None:
    """Put a post on the market, now, or as soon as the node is there again.

    A post that cannot be sent now waits in the outbox, over restarts, and is posted once. See: hearthnet
    outbox list
    """
    import asyncio

    from hearthnet.bus.bus import find_contract
    from hearthnet.core import ids

    given: dict[str, Any] = {"client_id": ids.new_ulid(), "category": category, "title": title, "body": body}
    given |= {"ttl_seconds": days * market_posts.DAY, **({"tags": list(tags)} if tags else {})}
    request = {"params": {}, "input": given}
    find_contract("market.post@1.0").check_request(request)
    told = asyncio.run(_sent_or_kept(home, request, within * 3600))
    if json:
        terminal.json_page({"client_id": given["client_id"], **told})
    elif told["waits"]:
        terminal.line(f"waits for the node ({told['why']})")
        terminal.info("it is posted once the node is there; to withdraw it: hearthnet outbox remove ID")
    else:
        terminal.line(f"posted: {told['event_id']}")


async def _sent_or_kept(home: Home, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Store a call on the disk and send it; it stays there if it cannot be sent now.

    Raises:
        HearthNetError: `capacity_exceeded` for a full disk, which waiting does not mend.
    """
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.outbox import is_retryable
    from hearthnet.bus.session.keyring import load_roster
    from hearthnet.cli.commands.outbox import outbox_of
    from hearthnet.core.errors import HearthNetError
    from hearthnet.core.times import now_ms

    outbox = outbox_of(home)
    community = load_roster(home.roster).community_id
    kept = outbox.put("market.post@1.0", request, community=community, now_ms=now_ms(), seconds=seconds)
    try:
        async with await Bus.connect(home, name="cli") as bus:
            reply = await bus.call(kept.capability, request)
    except HearthNetError as error:
        full = error.code == "capacity_exceeded" and error.retry_after_ms is None
        if is_retryable(kept.capability, error) and not full:
            return {"waits": True, "why": error.message}
        await outbox.remove(kept.id)
        raise
    await _taken_out(outbox, kept.id)
    return {"waits": False, **reply.output}


async def _taken_out(outbox: Any, client_id: str) -> None:
    """Remove a sent call; the node may have sent and removed it too."""
    import contextlib

    from hearthnet.core.errors import HearthNetError

    with contextlib.suppress(HearthNetError):
        await outbox.remove(client_id)


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--event", "event_id", metavar="ID", help="One post, also somebody else's that is current.")
@common_options
def export(file: Path, event_id: str | None, home: Home, json: bool) -> None:
    """Write all that you wrote on the market, or one post, to FILE, with its proofs.

    FILE may be - for stdout.
    """
    import asyncio

    import msgspec

    from hearthnet.cli.output.text import one_line

    whole = asyncio.run(_exported(home, {"event_id": event_id} if event_id else {}))
    data = msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"
    if str(file) == "-":
        terminal.write(data.decode())
        return
    file.write_bytes(data)
    if json:
        terminal.json_page({"path": str(file), "events": len(whole["events"]), "posts": len(whole["posts"])})
    else:
        terminal.line(
            f"{len(whole['events'])} events in {one_line(str(file))}; see: hearthnet market verify FILE"
        )


async def _exported(home: Home, wanted: dict[str, Any]) -> dict[str, Any]:
    from hearthnet.bus.bus import Bus

    whole: dict[str, Any] = {"events": [], "posts": []}
    place, more = 0, True
    async with await Bus.connect(home, name="cli") as bus:
        while more:
            given = {**wanted, "since_lamport": place, "limit": _STEP}
            output = (await bus.call("market.export@1.0", {"params": {}, "input": given})).output
            whole = {name: whole[name] + output[name] for name in whole}
            place, more = output["max_lamport"], output["more"]
    return whole


@command.command("verify")
@click.argument("file", metavar="FILE")
@click.option(
    "--roster",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The members of the community that the export is from. Default: those of this home.",
)
@common_options
def verify(file: str, roster: Path | None, home: Home, json: bool) -> None:
    """Prove the authors of the events in an export, without any node.

    FILE may be - for stdin. Events without proof are named, and the exit code is 4.
    """
    from hearthnet.bus.session.keyring import load_roster
    from hearthnet.cli.input.json_input import read_json
    from hearthnet.cli.output.text import one_line
    from hearthnet.cli.workflows import market_proofs
    from hearthnet.core.errors import HearthNetError

    whole = read_json(file if file == "-" else f"@{file}", "FILE", '{"events": [...], "posts": [...]}')
    members = load_roster(roster or home.roster)
    try:
        wrong = [
            f"event {event['event_id']}: {why}"
            for event in whole["events"]
            if (why := market_proofs.problem(event, members))
        ]
        wrong += market_proofs.shown(whole)
        count = len(whole["events"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise HearthNetError("bad_request", f"{one_line(file)} is no export of the market") from error
    if wrong:
        words = "; ".join(one_line(line) for line in wrong[:5])
        raise HearthNetError("invalid_signature", f"{len(wrong)} not proved: {words}")
    terminal.result(json, {"proved": count}, f"proved: {count} events, each asked for by its author")


@command.command("delete")
@click.argument("event_id", required=False)
@click.option("--all", "everything", is_flag=True, help="All that you wrote.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
def delete(event_id: str | None, everything: bool, yes: bool, home: Home, json: bool) -> None:
    """Delete a post of yours, or all of them, for good.

    They are removed from the market, its log and the disk.
    """
    import asyncio

    from hearthnet.cli.input.yes_no import confirm
    from hearthnet.cli.output.text import counted

    if bool(event_id) == everything:
        raise click.UsageError("name one post, or --all")
    what = "all that you wrote on the market" if everything else f"the post {event_id}"
    confirm(f"Delete {what}, for good?", given=yes, option="--yes")
    given = {"all": True} if everything else {"event_id": event_id}
    told = asyncio.run(_deleted(home, given))
    if json:
        terminal.json_page(told)
        return
    terminal.line(f"deleted: {counted(told['deleted'], 'post')}")
    if not told["erased"]:
        terminal.info("the words are not off the disk yet")


async def _deleted(home: Home, given: dict[str, Any]) -> dict[str, Any]:
    from hearthnet.bus.bus import Bus

    told: dict[str, Any] = {"deleted": 0, "erased": True}
    async with await Bus.connect(home, name="cli") as bus:
        while True:
            output, erased = await _delete_some(bus, given)
            told = {"deleted": told["deleted"] + output["deleted"], "erased": told["erased"] and erased}
            if not output["remaining"] or "all" not in given:
                return told


async def _delete_some(bus: Bus, given: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    from hearthnet.core import ids

    request = {"params": {}, "input": {"client_id": ids.new_ulid(), **given}}
    reply = await bus.call("market.delete@1.0", request)
    return dict(reply.output), bool(reply.meta.get("erased"))
