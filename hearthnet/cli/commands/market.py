"""`hearthnet market`: posts, searches, exports and deletions (docs/market.md)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.commands import market_moderation as moderation
from hearthnet.cli.commands.market_lending import lend, print_loans, reserve
from hearthnet.cli.commands.market_moderation import changed, names_of
from hearthnet.cli.input.local_call import call_node, on_bus
from hearthnet.cli.input.options import Commands, common_options, roster_option
from hearthnet.cli.input.yes_no import confirm
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import counted, one_line, shorten
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import from_rfc3339, now_ms

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus

DAY: Final = 86_400
_PLACE_DECIMALS: Final = 3
"""Decimals of the degrees of a place: some 100 m."""
CATEGORIES: Final = ("offer", "request", "info", "emergency")
_REASONS: Final = ("fulfilled", "withdrawn", "user_request", "stale")


@click.group("market", cls=Commands)
def command() -> None:
    """Offers, requests and announcements of neighbours."""


for _verb in (moderation.hide, moderation.unhide, moderation.mute, moderation.unmute, reserve, lend):
    command.add_command(_verb)


def _position(_: click.Context, option: click.Parameter, text: str | None) -> dict[str, float] | None:
    """Return the degrees of latitude and longitude that an option names."""
    if text is None:
        return None
    try:
        lat, lng = map(float, text.split(","))
    except ValueError as error:
        raise click.BadParameter("two numbers, as in 52.52,13.405", param=option) from error
    if not (abs(lat) <= 90 and abs(lng) <= 180):
        raise click.BadParameter("latitude is from -90 to 90, longitude from -180 to 180", param=option)
    return {"lat": lat, "lng": lng}


@command.command("list")
@click.option("--category", type=click.Choice(CATEGORIES))
@click.option("--tag", "tags", multiple=True, help="Only posts with this tag, or with all of several.")
@click.option("--since", type=int, metavar="LAMPORT", help="What changed and what ended since that place.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option(
    "--hidden", is_flag=True, help="The hidden posts in place of the others: who hid them, and why."
)
@click.option("--muted", is_flag=True, help="The authors whom you have muted, in place of posts.")
@click.option(
    "--near", callback=_position, metavar="LAT,LON", help="The nearest first, with their distances."
)
@click.option("--km", type=click.FloatRange(0, min_open=True), help="With --near: no posts farther away.")
@common_options
def list_posts(
    category: str | None,
    tags: tuple[str, ...],
    since: int | None,
    limit: int,
    hidden: bool,
    muted: bool,
    near: dict[str, float] | None,
    km: float | None,
    home: Home,
    json: bool,
) -> None:
    """List what neighbours offer, need and announce, the newest first."""
    if muted:
        moderation.list_muted(home, json)
        return
    fields: dict[str, Any] = {"limit": limit, **({"tags": list(tags)} if tags else {})}
    fields |= {"category": category} if category else {}
    fields |= {"since_lamport": since} if since else {}
    fields |= {"hidden": True} if hidden else {}
    if km and not near:
        raise click.UsageError("--km is measured from --near LAT,LON")
    fields |= {"near": near} if near else {}
    fields |= {"within_km": km} if km else {}
    output = call_node(home, "market.list@1.0", fields)
    if json:
        terminal.json_page(output)
        return
    ended_since, hidden_since = output.get("ended", []), output.get("hidden", [])
    if output["posts"] or not (ended_since or hidden_since):
        _show(home, output["posts"])
    print_loans(home, output["posts"])
    for hiding in [*hidden_since, *(one for post in output["posts"] for one in post.get("hidden", []))]:
        by = names_of(home).get(hiding["by"], ids.short_id(hiding["by"]))
        terminal.line(f"hidden: {hiding['event_id']} by {one_line(by)}: {one_line(hiding['reason'])}")
    for ended in ended_since:
        note = f": {one_line(ended['note'])}" if "note" in ended else ""
        terminal.line(f"ended: {ended['event_id']} ({ended['reason']}{note})")


@command.command("search")
@click.argument("query")
@click.option("-k", type=click.IntRange(1, 50), default=10, show_default=True, help="How many at most.")
@common_options
def search(query: str, k: int, home: Home, json: bool) -> None:
    """Find current posts by words, and by meaning where the mesh has a model for that."""
    output = call_node(home, "market.search@1.0", {"query": query, "k": k})
    terminal.result(json, output, lambda: _show(home, output["posts"]))


@command.command("update")
@click.argument("event_id")
@click.option("--category", type=click.Choice(CATEGORIES))
@click.option("--title", help="One line that says what it is about.")
@click.option("--body", help="The message itself.")
@click.option("--tag", "tags", multiple=True, help="All its tags from now on; may be given more than once.")
@click.option("--days", type=click.IntRange(1, 30), help="How long it stays, from now.")
@common_options
def update(
    event_id: str,
    category: str | None,
    title: str | None,
    body: str | None,
    tags: tuple[str, ...],
    days: int | None,
    home: Home,
    json: bool,
) -> None:
    """Change a post of yours; fields that are not named stay as they are."""
    named = {"category": category, "title": title, "body": body, "tags": list(tags) or None}
    fields: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    fields |= {"ttl_seconds": days * DAY} if days else {}
    if not fields:
        raise click.UsageError("say what is to be different, such as --body TEXT")
    changed(home, "update", {"event_id": event_id, "fields": fields}, f"changed: {event_id}", json)


@command.command("end")
@click.argument("event_id")
@click.option(
    "--reason",
    type=click.Choice(_REASONS),
    default="withdrawn",
    show_default=True,
    help="user_request is for the author alone.",
)
@click.option("--note", help="Why, in your words: its author and all who follow the post read it.")
@common_options
def end(event_id: str, reason: str, note: str | None, home: Home, json: bool) -> None:
    """End a post before its time.

    It must be one of yours; a trusted member may end any post.
    """
    fields = {"event_id": event_id, "reason": reason, **({"note": note} if note else {})}
    changed(home, "expire", fields, f"ended: {event_id}", json)


def _show(home: Home, posts: list[dict[str, Any]]) -> None:
    if not posts:
        terminal.line("nothing found")
        return
    now = now_ms()
    names = names_of(home)
    measured = any("km" in post for post in posts)
    rows = [
        (
            post["event_id"],
            post["category"],
            shorten(one_line(post["title"]), 40),
            names.get(post["author"], ids.short_id(post["author"])),
            format_time(from_rfc3339(post["expires_at"]), now),
            *([f"{post['km']:g}" if "km" in post else ""] if measured else []),
        )
        for post in posts
    ]
    columns = ("event id", "category", "title", "by", "until", *(["km"] if measured else []))
    terminal.table(columns, rows)


_STEP: Final = 50


@command.command("post")
@click.option("--category", type=click.Choice(CATEGORIES), default="offer")
@click.option("--title", required=True, help="One line that says what it is about.")
@click.option("--body", required=True, help="The message itself.")
@click.option("--tag", "tags", multiple=True, help="A word to find it by; may be given more than once.")
@click.option("--days", type=click.IntRange(1, 30), default=7, show_default=True, help="How long it stays.")
@click.option("--place", callback=_position, metavar="LAT,LON", help="Where it is; rounded to some 100 m.")
@click.option("--place-name", default="", help="The place in words, such as Mill Lane.")
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
    place: dict[str, float] | None,
    place_name: str,
    within: int,
    home: Home,
    json: bool,
) -> None:
    """Put a post on the market, now, or as soon as the node is there again.

    A post that cannot be sent now waits in the outbox, over restarts, and is posted once. See: hearthnet
    outbox list
    """
    from hearthnet.bus.bus import find_contract

    fields: dict[str, Any] = {"client_id": ids.new_ulid(), "category": category, "title": title, "body": body}
    fields |= {"ttl_seconds": days * DAY, **({"tags": list(tags)} if tags else {})}
    if place_name and not place:
        raise click.UsageError("--place-name takes --place LAT,LON")
    if place:  # rounded before it is signed: every home gets the signed request
        rough = {name: round(degrees, _PLACE_DECIMALS) for name, degrees in place.items()}
        fields["location"] = {**rough, "label": place_name}
    request = {"params": {}, "input": fields}
    find_contract("market.post@1.0").check_request(request)
    sent = asyncio.run(_send_or_queue(home, request, within * 3600))
    if json:
        terminal.json_page({"client_id": fields["client_id"], **sent})
    elif sent["waits"]:
        terminal.line(f"waits for the node ({sent['why']})")
        terminal.info("it is posted once the node is there; to withdraw it: hearthnet outbox remove ID")
    else:
        terminal.line(f"posted: {sent['event_id']}")


async def _send_or_queue(home: Home, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Store a call on the disk and send it; it stays there if it cannot be sent now.

    Raises:
        HearthNetError: `capacity_exceeded` for a full disk, which waiting does not mend.
    """
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.outbox import is_retryable
    from hearthnet.bus.session.keyring import load_roster
    from hearthnet.cli.commands.outbox import outbox_of

    outbox = outbox_of(home)
    community = load_roster(home.roster).community_id
    stored = outbox.put("market.post@1.0", request, community=community, now_ms=now_ms(), seconds=seconds)
    try:
        async with await Bus.connect(home, name="cli") as bus:
            reply = await bus.call(stored.capability, request)
    except HearthNetError as error:
        full = error.code == "capacity_exceeded" and error.retry_after_ms is None
        if is_retryable(stored.capability, error) and not full:
            return {"waits": True, "why": error.message}
        await outbox.remove(stored.id)
        raise
    with contextlib.suppress(HearthNetError):  # the node may have sent and removed it too
        await outbox.remove(stored.id)
    return {"waits": False, **reply.output}


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--event", "event_id", metavar="ID", help="One post, also somebody else's that is current.")
@common_options
def export(file: Path, event_id: str | None, home: Home, json: bool) -> None:
    """Write all that you wrote on the market, or one post, to FILE, with its proofs.

    FILE may be - for stdout.
    """
    import msgspec

    whole = on_bus(home, lambda bus: _exported(bus, {"event_id": event_id} if event_id else {}))
    data = msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"
    if str(file) == "-":
        terminal.write(data.decode())
        return
    file.write_bytes(data)
    terminal.result(
        json,
        {"path": str(file), "events": len(whole["events"]), "posts": len(whole["posts"])},
        f"{len(whole['events'])} events in {one_line(str(file))}; see: hearthnet market verify FILE",
    )


async def _exported(bus: Bus, selection: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {"events": [], "posts": []}
    place, more = 0, True
    while more:
        fields = {**selection, "since_lamport": place, "limit": _STEP}
        output = (await bus.call("market.export@1.0", {"params": {}, "input": fields})).output
        whole = {name: whole[name] + output[name] for name in whole}
        place, more = output["max_lamport"], output["more"]
    return whole


@command.command("verify")
@click.argument("file", metavar="FILE")
@roster_option("the export")
@common_options
def verify(file: str, roster: Path | None, home: Home, json: bool) -> None:
    """Prove the authors of the events in an export, without any node.

    FILE may be - for stdin. Events without proof are named, and the exit code is 4.
    """
    from hearthnet.bus.session.keyring import load_roster
    from hearthnet.cli.input.json_input import read_json
    from hearthnet.cli.workflows import market_proofs

    whole = read_json(file if file == "-" else f"@{file}", "FILE", '{"events": [...], "posts": [...]}')
    members = load_roster(roster or home.roster)
    try:
        wrong = [
            f"event {event['event_id']}: {why}"
            for event in whole["events"]
            if (why := market_proofs.problem(event, members))
        ]
        wrong += market_proofs.differences(whole)
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
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def delete(event_id: str | None, everything: bool, confirmed: bool, home: Home, json: bool) -> None:
    """Delete a post of yours, or all of them, for good.

    They are removed from the market, its log and the disk. The home's owner can name anybody's post.
    """
    if bool(event_id) == everything:
        raise click.UsageError("name one post, or --all")
    what = "all that you wrote on the market" if everything else f"the post {event_id}"
    confirm(f"Delete {what}, for good?", confirmed=confirmed, option="--yes")
    fields = {"all": True} if everything else {"event_id": event_id}
    deleted = on_bus(home, lambda bus: _deleted(bus, fields))
    _print_removed(deleted, "deleted", json)


@command.command("erase")
@click.argument("event_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@common_options
def erase(event_ids: tuple[str, ...], confirmed: bool, home: Home, json: bool) -> None:
    """Erase posts of anybody from the market of this home, for good.

    Only the home's owner can. What stays is that you erased them, when, and hashes; they do not come back.
    """
    confirm(f"Erase {counted(len(event_ids), 'post')}, for good?", confirmed=confirmed, option="--yes")
    erased = on_bus(home, lambda bus: _erased(bus, event_ids))
    _print_removed(erased, "erased", json)


def _print_removed(page: dict[str, Any], how: str, json: bool) -> None:
    if json:
        terminal.json_page(page)
        return
    terminal.line(f"{how}: {counted(page['deleted'], 'post')}")
    if not page["erased"]:
        terminal.info("the words are not off the disk yet")


async def _erased(bus: Bus, event_ids: tuple[str, ...]) -> dict[str, Any]:
    """Delete each post at this home, whoever wrote it."""
    total: dict[str, Any] = {"deleted": 0, "erased": True}
    for event_id in event_ids:
        one = await _deleted(bus, {"event_id": event_id})
        total = {"deleted": total["deleted"] + one["deleted"], "erased": total["erased"] and one["erased"]}
    return total


async def _deleted(bus: Bus, fields: dict[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {"deleted": 0, "erased": True}
    while True:
        request = {"params": {}, "input": {"client_id": ids.new_ulid(), **fields}}
        reply = await bus.call("market.delete@1.0", request)
        erased = total["erased"] and bool(reply.meta.get("erased"))
        total = {"deleted": total["deleted"] + reply.output["deleted"], "erased": erased}
        if not reply.output["remaining"] or "all" not in fields:
            return total
